package sqlite

import (
	"fmt"
	"os"
)

// placed is a file that the writer has open, under its name.
type placed struct {
	path string
	info os.FileInfo // nil until the file is there
}

// inPlace fails where the file, its write-ahead log or the directory's lock is not what it was any more: it was removed, or another was put in its
// place. SQLite would go on writing to what has no name, and all of that is gone once the server stops; and where the lock has gone another server
// may have one (N5). The writer is held.
func (s *Store) inPlace() error {
	for i := range s.files {
		f := &s.files[i]
		now, err := os.Stat(f.path)
		if f.info == nil {
			f.info = now
			continue
		}
		if err != nil || !os.SameFile(f.info, now) {
			return fmt.Errorf("%s was removed, or another file was put in its place, and what is written now could be lost: stop the server, and put back what is missing or restore a backup", f.path)
		}
	}
	return nil
}
