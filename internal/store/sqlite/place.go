package sqlite

import (
	"fmt"
	"os"
	"time"
)

// placeEvery is how long the files count as being where they were. Linux notes that a file's times have been asked for, and writes them anew with the
// next sync: asked for with each commit, that took a seventh of a lone step's time.
var placeEvery = 100 * time.Millisecond

// placed is a file that the writer has open, under its name.
type placed struct {
	path string
	info os.FileInfo // nil until the file is there
}

// inPlace fails where the file, its write-ahead log or the directory's lock is not what it was any more: it was removed, or another was put in its
// place. SQLite would go on writing to what has no name, and all of that is gone once the server stops; and where the lock has gone another server
// may have one (N5). The writer is held.
func (s *Store) inPlace() error {
	if time.Since(s.placedAt) < placeEvery {
		return nil
	}
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
	s.placedAt = time.Now()
	return nil
}
