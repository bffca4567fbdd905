package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/nelkap/nelkap/internal/store"
)

// restoringName is the file that a restored store is written to, until it is whole.
const restoringName = fileName + ".restoring"

// beside opens the store in dir for reading, beside the server that may use it. It takes no lock of the directory: in WAL mode a reader
// sees one commit, and stands in no writer's way.
func beside(ctx context.Context, dir string) (*sqlite.Conn, error) {
	path := filepath.Join(dir, fileName)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: no store in %s: give the directory that the server was started with (%w)", store.ErrNotFound, dir, err)
	}
	if err := checkLog(path); err != nil {
		return nil, err
	}
	// Not OpenReadOnly: where no server runs, the first connection has to make the file that WAL readers share.
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	conn.SetInterrupt(ctx.Done())
	return conn, nil
}

// Backup writes the store in dir, as of one moment, to a new file, which is on disk and whole when it returns; a server may use the store
// meanwhile. Until the copy is done the server's write-ahead log is not cut, and grows by what it writes. ErrExists if there is such a
// file; ErrMoved if the store is moving or has moved.
func Backup(ctx context.Context, dir, file string) (err error) {
	conn, err := beside(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	is, err := readStanding(conn)
	if err != nil {
		return err
	}
	if err := refusal(dir, is); err != nil {
		return err
	}
	if err := absent(file); err != nil {
		return err
	}
	partial, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*.partial")
	if err != nil {
		return fmt.Errorf("making the backup: %w", err)
	}
	if err := fillBackup(conn, partial, file); err != nil {
		return errors.Join(fmt.Errorf("making the backup: %w", err), os.Remove(partial.Name()))
	}
	return syncDir(filepath.Dir(file))
}

// fillBackup copies the store into partial, which it closes, and gives that the name file once it is on disk.
func fillBackup(conn *sqlite.Conn, partial *os.File, file string) error {
	// One transaction that reads, and a new file without what was deleted.
	err := exec(conn, `VACUUM INTO ?`, func(b *binder) { b.text(partial.Name()) })
	if err == nil {
		err = partial.Sync()
	}
	if err := errors.Join(err, partial.Close()); err != nil {
		return err
	}
	if err := absent(file); err != nil { // while it was made, somebody may have made the same
		return err
	}
	return os.Rename(partial.Name(), file)
}

// absent refuses a file that is there.
func absent(file string) error {
	_, err := os.Lstat(file)
	switch {
	case err == nil:
		return fmt.Errorf("%w: %s is there already: give another name", store.ErrExists, file)
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("looking for %s: %w", file, err)
	}
	return nil
}

// Restore makes a store of a backup in dir, which must be empty or absent, and holds its runs until GoOn (N5). It tells how many runs have not
// ended. The store is whole when it returns, and there is none after an error, so that it may be called again. ErrExists if dir is not empty.
func Restore(ctx context.Context, file, dir string) (runs int64, err error) {
	from, err := os.Open(file)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", store.ErrNotFound, err)
	}
	defer from.Close()
	if log, err := os.Stat(file + "-wal"); err == nil && log.Size() > 0 {
		return 0, fmt.Errorf("%s is no backup but the file of a store, and what was saved last stands beside it in %s-wal: back up its directory with nelkap backup, and restore that", file, file)
	}
	if err := makeDir(dir); err != nil {
		return 0, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if err := clearDir(dir); err != nil {
		return 0, err
	}
	path := filepath.Join(dir, restoringName)
	if err := copyTo(path, from); err != nil {
		return 0, fmt.Errorf("copying %s: %w", file, err)
	}
	if runs, err = hold(ctx, path); err != nil {
		return 0, errors.Join(fmt.Errorf("%s can't be restored: %w", file, err), clearDir(dir))
	}
	if err := os.Rename(path, filepath.Join(dir, fileName)); err != nil {
		return 0, fmt.Errorf("restoring %s: %w", file, err)
	}
	return runs, syncDir(dir)
}

// clearDir removes what a restore that was interrupted left behind, and refuses a directory that has anything else.
func clearDir(dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("looking into %s: %w", dir, err)
	}
	for _, entry := range list {
		switch name := entry.Name(); {
		case name == lockName:
		case strings.HasPrefix(name, restoringName):
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return fmt.Errorf("removing what an earlier restore left: %w", err)
			}
		default:
			return fmt.Errorf("%w: %s is not empty (it has %s): give a new directory", store.ErrExists, dir, name)
		}
	}
	return nil
}

// checkRestored refuses a directory in which a restore was broken off before there was a store.
func checkRestored(dir string) error {
	there := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	}
	if there(fileName) || !there(restoringName) {
		return nil
	}
	return fmt.Errorf("%w: a restore into %s was broken off, and there is no store yet: start nelkap restore with the same backup and directory again, or give another directory", store.ErrNotFound, dir)
}

func copyTo(path string, from io.Reader) error {
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err == nil {
		err = to.Sync()
	}
	return errors.Join(err, to.Close())
}

// hold checks a copy of a backup, and marks it as held, all in its one file.
func hold(ctx context.Context, path string) (runs int64, err error) {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	conn.SetInterrupt(ctx.Done())
	if err := checkFile(conn); err != nil {
		return 0, err
	}
	if err := exec(conn, `PRAGMA synchronous = FULL`, nil); err != nil {
		return 0, err
	}
	if err := exec(conn, `PRAGMA journal_mode = DELETE`, nil); err != nil { // a copy of a server's own file is in WAL mode
		return 0, err
	}
	// Without a move: what was restored is another store than the one that may have been moved since.
	if err := writeStanding(conn, store.Standing{Phase: store.PhaseHeld}); err != nil {
		return 0, err
	}
	return countLive(conn)
}

// checkFile refuses what is not a whole store that this server knows.
func checkFile(conn *sqlite.Conn) error {
	var application int64
	if err := query(conn, `PRAGMA application_id`, nil, func(r *scanner) error { application = r.int(); return nil }); err != nil {
		return err
	}
	version, err := schemaVersion(conn)
	if err != nil {
		return err
	}
	switch {
	case application != int64(migrations.AppID):
		return errors.New("it is no backup of a Nelkap store")
	case version > int64(len(migrations.Migrations)):
		return fmt.Errorf("its schema has version %d, and this nelkap knows version %d: restore it with a newer one", version, len(migrations.Migrations))
	}
	var faults []string
	err = query(conn, `PRAGMA integrity_check(10)`, nil, func(r *scanner) error { faults = append(faults, r.text()); return nil })
	if err == nil && !slices.Equal(faults, []string{"ok"}) {
		err = fmt.Errorf("it is damaged: take an older backup (%s)", strings.Join(faults, "; "))
	}
	return err
}
