package sqlite_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nelkap/nelkap/internal/store/sqlite"
)

// A server may be using the directory, and nothing is left there.
func TestADirectoryIsSeenAsItIs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if _, err := sqlite.Examine(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	s, err := sqlite.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := sqlite.Examine(dir); err != nil || !f.IsStore {
		t.Errorf("beside its server: %+v, %v", f, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := sqlite.Examine(dir)
	if err != nil || !f.IsStore || f.Schema == 0 || f.Schema != f.SchemaKnown || f.Bytes == 0 || f.OthersRead {
		t.Errorf("%+v, %v", f, err)
	}
	after, err := os.ReadDir(dir)
	if err != nil || len(after) != len(before) {
		t.Errorf("%d files became %d, %v", len(before), len(after), err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(f.File, 0o644)); err != nil {
		t.Fatal(err)
	}
	if f, err := sqlite.Examine(dir); err != nil || !f.OthersRead {
		t.Errorf("%+v, %v", f, err)
	}
	if err := os.WriteFile(f.File, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := sqlite.Examine(dir); err != nil || f.IsStore {
		t.Errorf("%+v, %v", f, err)
	}
}
