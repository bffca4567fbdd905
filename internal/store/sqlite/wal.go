package sqlite

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// walLook is how many commits there are between looks at the write-ahead log.
const walLook = 64

// walMax is what the write-ahead log may grow to before readers wait for a moment, in which it is cut. SQLite begins it anew only at a commit
// that meets no reader: while reads overlap without a gap that never comes, and it grows with every commit.
var walMax int64 = 64 << 20

// cutWAL cuts the write-ahead log if it is too long. A reader that is none of this store's (a backup) keeps it as it is: the next try comes
// when it is twice as long. The writer is held.
func (s *Store) cutWAL() {
	if s.commits++; s.commits%walLook != 0 {
		return
	}
	file, err := os.Stat(s.path + "-wal")
	if err != nil || file.Size() < max(s.walNext, walMax) {
		return
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	s.writer.SetBusyTimeout(0)
	defer s.writer.SetBusyTimeout(busyTime)
	s.walNext = 2 * file.Size()
	_ = query(s.writer, `PRAGMA wal_checkpoint(TRUNCATE)`, nil, func(r *scanner) error {
		if busy := r.bool(); !busy {
			s.walNext = 0
		}
		return nil
	})
}

// walMode is what stands in a database's head where it has a write-ahead log: https://www.sqlite.org/fileformat.html#file_format_version_numbers.
// A backup has another mode.
const (
	walMode       = "\x02\x02"
	walModeOffset = 18
)

// checkLog refuses a write-ahead log whose file is missing, empty or a backup in its place. SQLite would remove the log of an empty file, and put its
// pages into any other.
func checkLog(path string) error {
	log, err := os.Stat(path + "-wal")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("opening the store: %w", err)
	case log.Size() == 0:
		return nil
	}
	mode := make([]byte, len(walMode))
	file, err := os.Open(path)
	if err == nil {
		_, err = file.ReadAt(mode, walModeOffset)
		err = errors.Join(err, file.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, io.EOF) {
		return fmt.Errorf("opening the store: %w", err)
	}
	if string(mode) == walMode {
		return nil
	}
	return fmt.Errorf("%s is missing, or another file is in its place: what was saved last stands in %s-wal, and belongs to the file that was there. Put back the file, or restore a backup to another directory", path, path)
}
