package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/sqlite"
	"github.com/nelkap/nelkap/internal/store/storetest"
)

// crashed is what a server that was killed leaves of a store: what it wrote last stands in the log alone. The backup was made before that.
func crashed(t *testing.T) (dir, backup string) {
	t.Helper()
	running := t.TempDir()
	s := openIn(t, running)
	for n := range 100 {
		storetest.Commit(t, s, store.InsertRun{Run: storetest.NewRun(n)})
	}
	dir, backup = filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backup")
	if err := sqlite.Backup(t.Context(), running, backup); err != nil {
		t.Fatal(err)
	}
	for n := range 100 {
		storetest.Commit(t, s, store.InsertRun{Run: storetest.NewRun(100 + n)})
	}
	if err := os.CopyFS(dir, os.DirFS(running)); err != nil {
		t.Fatal(err)
	}
	return dir, backup
}

// Rule N5. SQLite removes a log whose file is missing or empty, and puts one into whatever file stands beside it: what was acknowledged would be
// gone, or two stores be mixed.
func TestALogWithoutItsFileIsLeftAsItIs(t *testing.T) {
	for what, spoil := range map[string]func(file, backup string) error{
		"removed":                   func(file, _ string) error { return os.Remove(file) },
		"emptied":                   func(file, _ string) error { return os.Truncate(file, 0) },
		"another, copied over it":   copyOver,
		"another, put in its place": func(file, backup string) error { return errors.Join(os.Remove(file), copyOver(file, backup)) },
	} {
		dir, backup := crashed(t)
		file := filepath.Join(dir, "nelkap.db")
		log, err := os.ReadFile(file + "-wal")
		if err = errors.Join(err, spoil(file, backup)); err != nil {
			t.Fatal(err)
		}
		_, opened := sqlite.Open(t.Context(), dir)
		_, moved := sqlite.OpenSource(t.Context(), dir)
		backedUp := sqlite.Backup(t.Context(), dir, filepath.Join(t.TempDir(), "b"))
		for who, err := range map[string]error{"a server": opened, "a move": moved, "a backup": backedUp} {
			if err == nil || !errors.Is(err, store.ErrNotFound) && !strings.Contains(err.Error(), "nelkap.db-wal") {
				t.Errorf("%s: %s: %v", what, who, err)
			}
		}
		if opened == nil || !strings.Contains(opened.Error(), "Put back the file") {
			t.Errorf("%s: %v", what, opened)
		}
		if after, err := os.ReadFile(file + "-wal"); err != nil || string(after) != string(log) {
			t.Errorf("%s: the log has changed, %v", what, err)
		}
	}
}

func copyOver(file, from string) error {
	content, err := os.ReadFile(from)
	return errors.Join(err, os.WriteFile(file, content, 0o600))
}

// Rule N5. A store's own file, as of a server that runs or was killed, is a whole database, and an old one.
func TestAFileWhoseLogStandsBesideItIsNotRestored(t *testing.T) {
	dir, backup := crashed(t)
	file, restored := filepath.Join(dir, "nelkap.db"), filepath.Join(t.TempDir(), "restored")
	if runs, err := sqlite.Restore(t.Context(), file, restored); err == nil || !strings.Contains(err.Error(), "nelkap backup") {
		t.Fatalf("%d runs of 200, %v", runs, err)
	}
	if runs, err := sqlite.Restore(t.Context(), backup, restored); err != nil || runs != 100 {
		t.Errorf("a backup: %d runs, %v", runs, err)
	}
	if err := openIn(t, dir).Close(); err != nil { // it puts the log into its file
		t.Fatal(err)
	}
	if runs, err := sqlite.Restore(t.Context(), file, filepath.Join(t.TempDir(), "restored")); err != nil || runs != 200 {
		t.Errorf("of a server that has ended: %d runs, %v", runs, err)
	}
}
