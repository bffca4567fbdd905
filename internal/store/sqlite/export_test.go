package sqlite

import (
	"context"
	"slices"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
)

// Pragmas has every connection that is opened during the test run these too, after the store's own.
func Pragmas(t testing.TB, more ...string) {
	own := pragmas
	pragmas = slices.Concat(own, more)
	t.Cleanup(func() { pragmas = own })
}

// IntegrityCheck is SQLite's own look at the whole file: the faults that it finds.
func (s *Store) IntegrityCheck(ctx context.Context) ([]string, error) {
	var faults []string
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		return query(conn, `PRAGMA integrity_check`, nil, func(r *scanner) error {
			if line := r.text(); line != "ok" {
				faults = append(faults, line)
			}
			return nil
		})
	})
	return faults, err
}

// WatchDirSyncs hands each directory that is synced during the test to saw, before it is.
func WatchDirSyncs(t testing.TB, saw func(dir string)) {
	own := syncDir
	syncDir = func(dir string) error { saw(dir); return own(dir) }
	t.Cleanup(func() { syncDir = own })
}

// BusyTime has commits wait so long for another program during the test.
func BusyTime(t testing.TB, d time.Duration) {
	own := busyTime
	busyTime = d
	t.Cleanup(func() { busyTime = own })
}

// PlaceEvery has the files looked for so often during the test.
func PlaceEvery(t testing.TB, d time.Duration) {
	own := placeEvery
	placeEvery = d
	t.Cleanup(func() { placeEvery = own })
}

// WALMax has the write-ahead log cut at that length during the test.
func WALMax(t testing.TB, bytes int64) {
	own := walMax
	walMax = bytes
	t.Cleanup(func() { walMax = own })
}
