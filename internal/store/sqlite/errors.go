package sqlite

import (
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/nelkap/nelkap/internal/store"
)

// classify marks errors that lie in the data of a change: the committer halves such a batch until the bad one stands alone (N3). Others say what to do.
func classify(err error) error {
	if code := sqlite.ErrCode(err); code == sqlite.ResultIOErrFsync || code == sqlite.ResultIOErrDirFsync {
		return errors.Join(store.ErrUnsynced, err)
	}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultConstraint, sqlite.ResultMismatch, sqlite.ResultTooBig, sqlite.ResultRange:
		return errors.Join(store.ErrBadChange, err)
	case sqlite.ResultBusy:
		return fmt.Errorf("another program has locked the database's file, such as a SQLite shell with a transaction that is open: end it: %w", err)
	default:
		return err
	}
}
