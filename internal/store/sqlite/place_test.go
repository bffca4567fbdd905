//go:build unix

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

// What is written to a file that was removed or replaced is gone when the server stops, and once its lock is removed another server may start (N5):
// nothing is acknowledged then. What comes back, as of a disk that was away, is used again.
func TestAStoreWhoseFileHasGoneAcknowledgesNothing(t *testing.T) {
	sqlite.PlaceEvery(t, 0)
	for _, name := range []string{"nelkap.db", "nelkap.db-wal", "lock"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openIn(t, dir)
			n := 0
			commit := func() error {
				n++
				results, err := s.Commit(t.Context(), []store.Change{{store.InsertRun{Run: storetest.NewRun(n)}}})
				if err == nil {
					err = results[0].Err
				}
				return err
			}
			if err := commit(); err != nil {
				t.Fatal(err)
			}
			file, aside := filepath.Join(dir, name), filepath.Join(t.TempDir(), name)
			refused := func(what string) {
				t.Helper()
				if err := commit(); err == nil || errors.Is(err, store.ErrBadChange) || !strings.Contains(err.Error(), file) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if err := os.Rename(file, aside); err != nil {
				t.Fatal(err)
			}
			refused("removed")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			refused("replaced")
			if err := os.Rename(aside, file); err != nil {
				t.Fatal(err)
			}
			if err := commit(); err != nil {
				t.Errorf("it is back: %v", err)
			}
		})
	}
}

// Rule N5. The lock is the directory's, and SQLite keeps the log beside the file that a link leads to.
func TestAFileThatIsALinkIsRefused(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	openIn(t, dir)
	if err := os.Symlink(filepath.Join(dir, "nelkap.db"), filepath.Join(other, "nelkap.db")); err != nil {
		t.Fatal(err)
	}
	_, opened := sqlite.Open(t.Context(), other)
	_, moved := sqlite.OpenSource(t.Context(), other)
	for who, err := range map[string]error{"a server": opened, "a move": moved} {
		if err == nil || !strings.Contains(err.Error(), "symbolic link") {
			t.Errorf("%s beside a server: %v", who, err)
		}
	}
	linked := filepath.Join(t.TempDir(), "linked")
	if err := os.Symlink(dir, linked); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), linked); !errors.Is(err, store.ErrLocked) {
		t.Errorf("a link to the directory: %v", err)
	}
}
