package postgres

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/nelkap/nelkap/internal/store"
)

var names = map[outcome]string{
	outcomeAgain: "again", outcomeMoved: "moved", outcomeLater: "later", outcomeSlow: "slow", outcomeTaken: "taken", outcomeBad: "bad", outcomeUnknown: "unknown",
}

// TestEachFailureHasItsOutcome: what the server says, before and in the COMMIT, and what follows.
func TestEachFailureHasItsOutcome(t *testing.T) {
	for _, c := range []struct {
		code, severity, what string
		before, committing   outcome
	}{
		{"40001", "ERROR", "a serialization failure", outcomeAgain, outcomeAgain},
		{"40P01", "ERROR", "a deadlock", outcomeAgain, outcomeAgain},
		{"40003", "ERROR", "a statement whose completion the server does not know", outcomeUnknown, outcomeUnknown},
		{"55P03", "ERROR", "a lock that another node holds too long", outcomeAgain, outcomeAgain},
		{"53300", "FATAL", "too many connections", outcomeAgain, outcomeUnknown},
		{"53200", "ERROR", "out of memory", outcomeAgain, outcomeAgain},
		{"53100", "ERROR", "the disk is full", outcomeLater, outcomeLater},
		{"57P01", "FATAL", "the server is shut down, or the connection ended by an administrator", outcomeMoved, outcomeUnknown},
		{"57P02", "FATAL", "another connection's crash", outcomeMoved, outcomeUnknown},
		{"57P03", "FATAL", "the server starts up", outcomeMoved, outcomeUnknown},
		{"57014", "ERROR", "a statement that was cancelled", outcomeSlow, outcomeUnknown},
		{"25006", "ERROR", "a standby", outcomeMoved, outcomeMoved},
		{"25P03", "FATAL", "this process stood still inside its transaction", outcomeAgain, outcomeUnknown},
		{"0A000", "ERROR", "a plan that a migration made stale", outcomeMoved, outcomeMoved},
		{"08006", "FATAL", "a connection failure that the pooler tells of", outcomeAgain, outcomeUnknown},
		{"08P01", "FATAL", "the pooler lost its server", outcomeAgain, outcomeUnknown},
		{"08P01", "ERROR", "the same, in the words of another pooler", outcomeAgain, outcomeUnknown},
		{"08007", "FATAL", "a transaction whose resolution is unknown", outcomeUnknown, outcomeUnknown},
		{"23505", "ERROR", "a row that another node has just stored", outcomeTaken, outcomeTaken},
		{"42710", "ERROR", "the schema's table, which another server has just made", outcomeTaken, outcomeTaken},
		{"42P07", "ERROR", "the same, seen a moment later", outcomeTaken, outcomeTaken},
		{"23514", "ERROR", "a row that the schema refuses", outcomeBad, outcomeBad},
		{"22021", "ERROR", "a text that is not UTF-8", outcomeBad, outcomeBad},
		{"22003", "ERROR", "a number out of range", outcomeBad, outcomeBad},
		{"54000", "ERROR", "a value that is too large", outcomeBad, outcomeBad},
		{"42P01", "ERROR", "a table that is not there", outcomeLater, outcomeLater},
		{"28P01", "FATAL", "a wrong password", outcomeLater, outcomeUnknown},
		{"XX000", "PANIC", "a fault of the server's", outcomeLater, outcomeUnknown},
		{"", "ERROR", "no code at all", outcomeLater, outcomeUnknown},
	} {
		err := error(&pgconn.PgError{Code: c.code, Severity: c.severity, SeverityUnlocalized: c.severity})
		if got := classify(errors.Join(errors.New("around it"), err), false); got != c.before {
			t.Errorf("%s, %s: %s, want %s", c.code, c.what, names[got], names[c.before])
		}
		if got := classify(err, true); got != c.committing {
			t.Errorf("%s in COMMIT, %s: %s, want %s", c.code, c.what, names[got], names[c.committing])
		}
	}
	if got := classify(io.ErrUnexpectedEOF, false); got != outcomeAgain {
		t.Errorf("a connection that broke before the COMMIT: %s", names[got])
	}
	if got := classify(io.ErrUnexpectedEOF, true); got != outcomeUnknown {
		t.Errorf("a connection that broke in the COMMIT: %s", names[got])
	}
}

// TestOutcomesAreWrappedInTheClosedList of a store's errors.
func TestOutcomesAreWrappedInTheClosedList(t *testing.T) {
	for o, name := range names {
		err := wrap(io.EOF, o, 3)
		isBad, isUnknown := errors.Is(err, store.ErrBadChange), errors.Is(err, store.ErrUnknown)
		if isBad != (o == outcomeBad || o == outcomeTaken) || isUnknown != (o == outcomeUnknown) || !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A statement that is larger than the protocol's messages was not sent: the batch is cut, and not asked after.
func TestABatchThatIsTooLargeIsBad(t *testing.T) {
	for _, committing := range []bool{false, true} {
		if got := classify(fmt.Errorf("sending: %w", &pgproto3.ExceededMaxBodyLenErr{}), committing); got != outcomeBad {
			t.Errorf("committing %v: %s", committing, names[got])
		}
	}
}
