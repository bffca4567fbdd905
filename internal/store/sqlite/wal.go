package sqlite

import "os"

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
