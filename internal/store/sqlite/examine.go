package sqlite

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Facts are what Examine finds out of a data directory; whether they are good is for others to say.
type Facts struct {
	File        string // the database's
	Bytes       int64
	IsStore     bool // a SQLite database
	Schema      int64
	SchemaKnown int64 // the version that this program knows
	OthersRead  bool  // other users of the machine may read it
}

// The head of a SQLite database's file: https://www.sqlite.org/fileformat.html#the_database_header.
const (
	headBytes   = 100
	headMagic   = "SQLite format 3\x00"
	headVersion = 60 // where the user's version stands
)

// Examine looks at a data directory beside the server that uses it, or without one. It opens no database: that would make files, which the
// server's user may not read. So of a schema that has just changed it may see the version before. fs.ErrNotExist: there is no store.
func Examine(dir string) (Facts, error) {
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
	head := make([]byte, headBytes)
	if _, err := io.ReadFull(file, head); err != nil {
		return f, nil // what is shorter than a head is no store
	}
	f.IsStore = bytes.HasPrefix(head, []byte(headMagic))
	f.Schema = int64(binary.BigEndian.Uint32(head[headVersion:]))
	return f, nil
}
