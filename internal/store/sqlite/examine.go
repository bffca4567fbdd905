package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"zombiezen.com/go/sqlite"

	"github.com/nelkap/nelkap/internal/store"
)

// Facts are what Examine finds out of a data directory; whether they are good is for others to say.
type Facts struct {
	File        string // the database's
	Bytes       int64
	IsStore     bool // a SQLite database
	Schema      int64
	SchemaKnown int64       // the version that this program knows
	OthersRead  bool        // other users of the machine may read it
	Phase       store.Phase // empty where it can't be told
	Place       string      // where a moving or moved store goes or went
}

// headMagic is what a SQLite database begins with: https://www.sqlite.org/fileformat.html#the_database_header.
const headMagic = "SQLite format 3\x00"

// Examine looks at a data directory beside the server that uses it, or without one. It writes and makes nothing there: files of its own, the
// server's user might not be able to read. fs.ErrNotExist: there is no store.
func Examine(ctx context.Context, dir string) (Facts, error) {
	f := Facts{File: filepath.Join(dir, fileName), SchemaKnown: int64(len(migrations.Migrations))}
	file, err := os.Open(f.File)
	if err != nil {
		return f, fmt.Errorf("opening the store: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return f, fmt.Errorf("reading the store: %w", err)
	}
	above, err := os.Stat(dir)
	if err != nil {
		return f, fmt.Errorf("reading the data directory: %w", err)
	}
	const others = fs.FileMode(0o007)
	f.Bytes, f.OthersRead = info.Size(), info.Mode()&others != 0 && above.Mode()&others != 0
	head := make([]byte, len(headMagic))
	if _, err := io.ReadFull(file, head); err != nil || !bytes.Equal(head, []byte(headMagic)) {
		return f, nil // no store
	}
	switch err := f.read(ctx); sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultNotADB, sqlite.ResultCorrupt: // what follows the head is something else
		return f, nil
	default:
		f.IsStore = true
		return f, err
	}
}

// read reads the newest commit, which may stand in the log alone.
func (f *Facts) read(ctx context.Context) (err error) {
	path, err := filepath.Abs(f.File)
	if err != nil {
		return fmt.Errorf("finding the store: %w", err)
	}
	// A server has a log, and beside it a file that readers of the log share. Where one of them is not there no server uses the store, and the
	// last one has put everything into the one file; only a log that was copied alone is not seen.
	how := "readonly_shm=1"
	for _, suffix := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(path + suffix); errors.Is(err, fs.ErrNotExist) {
			how = "immutable=1"
		}
	}
	address := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(path), RawQuery: "mode=ro&" + how}
	conn, err := sqlite.OpenConn(address.String(), sqlite.OpenReadOnly|sqlite.OpenURI)
	if err != nil {
		return fmt.Errorf("reading the store: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	conn.SetInterrupt(ctx.Done())
	var application int64
	if err := query(conn, `PRAGMA application_id`, nil, func(r *scanner) error { application = r.int(); return nil }); err != nil {
		return fmt.Errorf("reading the store: %w", err)
	}
	if f.Schema, err = schemaVersion(conn); err != nil {
		return fmt.Errorf("reading the store: %w", err)
	}
	if application != int64(migrations.AppID) || f.Schema > f.SchemaKnown {
		return nil // what its phase is called there is not known
	}
	is, err := readStanding(conn)
	f.Phase, f.Place = is.Phase, is.Place
	return err
}
