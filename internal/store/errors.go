package store

import (
	"errors"
	"fmt"
)

// The closed list of a store's errors.
var (
	// ErrStale: a run's record has another version, or another current call or playing, than the change expects (N1).
	ErrStale = errors.New("store: the run has changed")
	// ErrCursor is the ErrStale of who goes by a cursor that another has taken.
	ErrCursor = fmt.Errorf("store: the cursor is another's: %w", ErrStale)
	// ErrExists: a run or an event of that id is there already.
	ErrExists = errors.New("store: it exists already")
	// ErrNotFound: there is no such row.
	ErrNotFound = errors.New("store: not found")
	// ErrLocked: another process has the data directory open (N5).
	ErrLocked = errors.New("store: the data directory is in use by another process")
	// ErrBadChange: the change itself is broken; nothing of it was written, and it can never be.
	ErrBadChange = errors.New("store: broken change")
	// ErrRowLocked: somebody who is no server holds a lock on a row of the change. Nothing was written, and the same may be once that has gone.
	ErrRowLocked = errors.New("store: another session of the database has locked the row")
	// ErrUnsynced: a commit failed, and was written: whoever opens the store next, after a crash, may find that it took effect.
	ErrUnsynced = errors.New("store: the commit was written and could not be synced")
	// ErrUnknown: the outcome of a commit is not known.
	ErrUnknown = errors.New("store: the outcome of the commit is not known")
	// ErrUnavailable: the store could not be read, since what keeps it is away for now.
	ErrUnavailable = errors.New("store: the store can't be read now")
)
