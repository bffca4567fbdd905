package store

import "time"

// DropRuns removes runs that ended at Before or earlier, the oldest end first and at most Limit of them, each with everything that is
// its own; but no further one once RowsMax entries and lines of logs, or BytesMax bytes of the results of last chapters, are gone with those
// before it (zero: no bound). Keys stay; those of its claims say from then on how and when it ended, and expire when they are free (K3). A run
// stays while a wait of it or on it is open: its parent has not heard of its end, or it has a child that has not heard of it. It is the only op
// of its change.
type DropRuns struct {
	Before   time.Time
	Limit    int
	RowsMax  int
	BytesMax int
}

func (DropRuns) op() {}
