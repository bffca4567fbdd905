package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/nelkap/nelkap/internal/store"
)

// outcome is what a failure says of a transaction, and what follows from it.
type outcome int

const (
	// outcomeAgain: nothing was written, and the same may succeed at once.
	outcomeAgain outcome = iota
	// outcomeMoved: nothing was written, and this connection's server will not write: another has taken its place, or will.
	outcomeMoved
	// outcomeLater: nothing was written, and trying again at once is of no use.
	outcomeLater
	// outcomeSlow: nothing was written, and what was asked took longer than it may, and would again.
	outcomeSlow
	// outcomeTaken: nothing was written, since another transaction has just stored what can be there but once. Once more, it is seen.
	outcomeTaken
	// outcomeBad: nothing was written, and never can be: it lies in the data of a change (N3).
	outcomeBad
	// outcomeUnknown: nobody knows whether it was written.
	outcomeUnknown
)

// The SQLSTATEs of who has waited for a lock for as long as lock_timeout, or as statement_timeout, which the user's role may have.
const (
	lockNotAvailable = "55P03"
	queryCanceled    = "57014"
)

// codes are the SQLSTATEs that say more than their class does.
var codes = map[string]outcome{
	"23505":          outcomeTaken,   // unique_violation
	"42710":          outcomeTaken,   // duplicate_object: two servers made the schema's table at once, whatever IF NOT EXISTS says
	"42P07":          outcomeTaken,   // duplicate_table: the same
	"40003":          outcomeUnknown, // statement_completion_unknown
	"08007":          outcomeUnknown, // transaction_resolution_unknown
	"25006":          outcomeMoved,   // read_only_sql_transaction: a standby, after a failover
	"57P01":          outcomeMoved,   // admin_shutdown
	"57P02":          outcomeMoved,   // crash_shutdown
	"57P03":          outcomeMoved,   // cannot_connect_now: it starts up, shuts down or recovers
	"57P04":          outcomeLater,   // database_dropped
	queryCanceled:    outcomeSlow,    // a statement_timeout, or an administrator
	"57P05":          outcomeAgain,   // idle_session_timeout
	"25P03":          outcomeAgain,   // idle_in_transaction_session_timeout: this process stood still in the middle of it
	"25P04":          outcomeAgain,   // transaction_timeout
	lockNotAvailable: outcomeAgain,   // lock_timeout
	"53200":          outcomeAgain,   // out_of_memory
	"53300":          outcomeAgain,   // too_many_connections
	"53100":          outcomeLater,   // disk_full
	"53400":          outcomeLater,   // configuration_limit_exceeded
	"58P01":          outcomeLater,   // undefined_file
	"0A000":          outcomeMoved,   // feature_not_supported: a plan that a migration made stale; a new connection has none
}

// classes are the first two characters of SQLSTATEs.
var classes = map[string]outcome{
	"08": outcomeAgain, // connection exception
	"40": outcomeAgain, // transaction rollback: serialization failures, deadlocks
	"22": outcomeBad,   // data exception
	"23": outcomeBad,   // integrity constraint violation
	"54": outcomeBad,   // program limit exceeded
}

// classify tells what a failure says. committing: the COMMIT had been sent, and no answer of it came.
func classify(err error, committing bool) outcome {
	switch {
	case errors.Is(err, store.ErrBadChange):
		return outcomeBad
	case errors.Is(err, errRow), errors.Is(err, store.ErrMoved):
		return outcomeLater
	case isTooLarge(err):
		return outcomeBad
	}
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		if committing && !pgconn.SafeToRetry(err) {
			return outcomeUnknown
		}
		return outcomeAgain
	}
	class := answer.Code[:min(2, len(answer.Code))]
	found, known := codes[answer.Code]
	if !known {
		found, known = classes[class]
	}
	if !known {
		found = outcomeLater
	}
	// An error undoes the transaction. What ends the connection may come after the commit's record was written: so it does when a
	// server that waits for its standby is shut down, or when a pooler lost its server and says so in its own words.
	if committing && (answer.SeverityUnlocalized != "ERROR" || slices.Contains(doubtful, class)) {
		return outcomeUnknown
	}
	return found
}

// isTooLarge tells whether a statement had more bytes than the protocol's messages. It was not sent, nor anything after it.
func isTooLarge(err error) bool {
	var large *pgproto3.ExceededMaxBodyLenErr
	return errors.As(err, &large)
}

// doubtful are the classes that say of a COMMIT nothing but that somebody did not carry it out to its end: connection exceptions, operator
// intervention, system and internal errors.
var doubtful = []string{"", "08", "57", "58", "XX"}

// errRow: a row holds what no server has written there. People must look.
var errRow = errors.New("a row can't be read")

// wrap gives a commit's failure its place in the closed list.
func wrap(err error, o outcome, changes int) error {
	switch o {
	case outcomeBad, outcomeTaken:
		err = errors.Join(store.ErrBadChange, err)
	case outcomeUnknown:
		err = errors.Join(store.ErrUnknown, err)
	default:
	}
	return fmt.Errorf("committing %d changes: %w", changes, err)
}

// over tells whether the caller has gone.
func over(ctx context.Context) bool { return ctx.Err() != nil }
