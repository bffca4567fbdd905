package sqlite_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/sqlite"
)

// A server may be using the directory, and nothing is left there.
func TestADirectoryIsSeenAsItIs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if _, err := sqlite.Examine(t.Context(), dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	s, err := sqlite.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	// The server has just begun: everything stands in its log.
	if f, err := sqlite.Examine(t.Context(), dir); err != nil || !f.IsStore || f.Schema == 0 || f.Schema != f.SchemaKnown || f.Phase != store.PhaseActive {
		t.Errorf("beside its server: %+v, %v", f, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := sqlite.Examine(t.Context(), dir)
	if err != nil || !f.IsStore || f.Schema == 0 || f.Schema != f.SchemaKnown || f.Bytes == 0 || f.OthersRead || f.Phase != store.PhaseActive {
		t.Errorf("%+v, %v", f, err)
	}
	after, err := os.ReadDir(dir)
	if err != nil || len(after) != len(before) {
		t.Errorf("%d files became %d, %v", len(before), len(after), err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(f.File, 0o644)); err != nil {
		t.Fatal(err)
	}
	if f, err := sqlite.Examine(t.Context(), dir); err != nil || !f.OthersRead {
		t.Errorf("%+v, %v", f, err)
	}
	if err := os.WriteFile(f.File, append([]byte("SQLite format 3\x00"), make([]byte, 4096)...), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := sqlite.Examine(t.Context(), dir); err != nil || f.IsStore {
		t.Errorf("a head without a body: %+v, %v", f, err)
	}
	if err := os.WriteFile(f.File, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := sqlite.Examine(t.Context(), dir); err != nil || f.IsStore {
		t.Errorf("%+v, %v", f, err)
	}
}

// The server was killed: its log is there, and what its readers share may not be. A name may have what an address escapes.
func TestADirectoryIsSeenAfterACrash(t *testing.T) {
	dir, crashed := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "a b?c#d%20e")
	source := opened(t, dir)
	moved := store.Standing{Phase: store.PhaseMoved, Move: "move_1", Place: "postgres db:5432/nelkap"}
	if err := errors.Join(source.SetStanding(t.Context(), moved), os.CopyFS(crashed, os.DirFS(dir))); err != nil {
		t.Fatal(err)
	}
	list := func() (names []string) {
		entries, err := os.ReadDir(crashed)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	before := list()
	if f, err := sqlite.Examine(t.Context(), crashed); err != nil || !f.IsStore || f.Schema != f.SchemaKnown || f.Phase != moved.Phase || f.Place != moved.Place {
		t.Errorf("%+v, %v", f, err)
	}
	if after := list(); !slices.Equal(before, after) || len(before) < 3 {
		t.Errorf("%v became %v", before, after)
	}
	for _, suffix := range []string{"-shm", "-wal"} {
		if err := os.Remove(filepath.Join(crashed, "nelkap.db"+suffix)); err != nil {
			t.Fatal(err)
		}
		if f, err := sqlite.Examine(t.Context(), crashed); err != nil || !f.IsStore {
			t.Errorf("without %s: %+v, %v", suffix, f, err)
		}
	}
}

// opened is a new store, as who moves it has it.
func opened(t *testing.T, dir string) *sqlite.Source {
	t.Helper()
	s, err := sqlite.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	source, err := sqlite.OpenSource(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { source.Close() })
	return source
}
