package store

import "time"

// DropEvents removes events that were stored at Before or earlier, oldest first and at most Limit of them, and never the newest of all: its
// position must not be used again.
type DropEvents struct {
	Before time.Time
	Limit  int
}
