package store

import "time"

// DropEvents removes, of the first Limit events, those that were stored at Before or earlier, but none before which BytesMax bytes of payloads
// stand (zero: no bound), and never the newest of all: its position must not be used again.
type DropEvents struct {
	Before   time.Time
	Limit    int
	BytesMax int
}
