package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/gofrs/flock"

	"github.com/nelkap/nelkap/internal/store"
)

// lockDir takes the directory's lock, which the kernel frees with the process (N5). ErrLocked if another has it.
func lockDir(dir string) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(dir, lockName))
	ok, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("locking the data directory %s: %w", dir, err)
	}
	if !ok {
		return nil, fmt.Errorf("%s: %w: stop the other server, or give this one another directory", dir, store.ErrLocked)
	}
	return lock, nil
}

// makeDir makes the directory, with those above it that are missing, and returns when their names are on disk. SQLite syncs
// the directory that its files are in, but not that directory's own entry: without this the first power cut could take all.
func makeDir(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("finding the data directory: %w", err)
	}
	var parents []string // of those that are missing, the lowest first
	for missing := dir; ; missing = filepath.Dir(missing) {
		_, err := os.Stat(missing)
		if !errors.Is(err, os.ErrNotExist) {
			break
		}
		parents = append(parents, filepath.Dir(missing))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	for _, parent := range parents {
		if err := syncDir(parent); err != nil {
			return fmt.Errorf("syncing %s, in which the data directory was made: %w", parent, err)
		}
	}
	return nil
}

// makeFile makes a store's empty file, for its owner alone. SQLite would make it for all whom the process's mask lets, in a directory that
// may have been there before. The log and what its readers share are made with the file's permissions.
func makeFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	return file.Close()
}

// checkLink refuses a file that is a symbolic link: the lock of its directory keeps nobody away from the file itself, and SQLite has its log elsewhere.
func checkLink(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("opening the store: %w", err)
	case info.Mode()&os.ModeSymlink == 0:
		return nil
	}
	return fmt.Errorf("%s is a symbolic link, and another server could use the file that it leads to: give the directory that the file is in, or a link to that directory", path)
}

// syncDir has the names in a directory written to the disk. It is a variable for the tests that watch it.
var syncDir = func(dir string) error {
	if runtime.GOOS == "windows" { // which can't sync a directory, and needs not
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
