package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/nelkap/nelkap/internal/store"
)

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, changes []store.Change) ([]store.Result, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	var results []store.Result
	o, err := s.retry(ctx, func(ctx context.Context) (o outcome, err error) {
		results, o, err = s.tryFree(ctx, changes)
		return o, err
	})
	if err != nil {
		return nil, wrap(err, o, len(changes))
	}
	return results, nil
}

// try plays the changes in one transaction.
func (s *Store) try(ctx context.Context, changes []store.Change) ([]store.Result, outcome, error) {
	pooled, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, classify(err, false), fmt.Errorf("waiting for a connection: %w", err)
	}
	defer pooled.Release()
	t := &transaction{store: s, conn: pooled.Conn().PgConn(), changes: changes, results: make([]store.Result, len(changes))}
	err = t.play(ctx)
	if err == nil {
		err = t.commit(ctx)
	}
	if err == nil {
		return t.results, 0, nil
	}
	o := classify(err, t.committing)
	if !t.conn.IsClosed() {
		t.rollback(ctx)
	}
	return nil, o, err
}

// transaction is one try of a batch.
type transaction struct {
	store   *Store
	conn    *pgconn.PgConn
	changes []store.Change
	results []store.Result
	// out are the statements that wait for the next round trip.
	out *batch
	// committing: the COMMIT has been sent, and no answer of it came.
	committing bool
	// phase is what servers may do with the store (N5); empty: anything.
	phase store.Phase
}

func (t *transaction) learnBounds(r *scanner) error {
	r.n = len(r.values) - 1
	t.phase = store.Phase(r.text())
	return nil
}

// play does the changes, in as many parts as they have to be done in; nearly always that is one.
func (t *transaction) play(ctx context.Context) error {
	t.out = &batch{}
	t.out.add(sqlBegin, nil, nil)
	// Who waits for a node that stands still waits longer than the server does before it ends that node's transaction.
	stands := t.store.lockTime * 4 / 5
	t.out.add(sqlBounds, (&params{}).int(t.store.lockTime.Milliseconds()).int(stands.Milliseconds()), t.learnBounds)
	locks := &need{}
	for _, change := range t.changes {
		locks.change(change)
	}
	for first := 0; first < len(t.changes); {
		after := first + 1
		for after < len(t.changes) && !standsAlone(t.changes[after-1]) {
			after++
		}
		n := locks
		if first > 0 || after < len(t.changes) {
			n = &need{}
			for _, change := range t.changes[first:after] {
				n.change(change)
			}
		}
		if first == 0 && n != locks {
			n.runs, n.keys = locks.runs, locks.keys // all locks are taken at once, in their order
		}
		v := newView(t.out)
		n.gather(v)
		if err := t.send(ctx); err != nil {
			return err
		}
		if err := t.store.refusal(t.phase); err != nil {
			return err
		}
		v.out = t.out
		for i := first; i < after; i++ {
			v.change(t.changes[i], &t.results[i])
		}
		v.flush()
		if v.err != nil {
			return v.err
		}
		first = after
	}
	return nil
}

// send makes a round trip.
func (t *transaction) send(ctx context.Context) error {
	b := t.out
	t.out = &batch{}
	return b.run(ctx, t.conn)
}

// commit sends what is left with the COMMIT behind it. From here on the caller's leaving changes nothing: it would only make the outcome
// unknown.
func (t *transaction) commit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.store.transactionTime)
	defer cancel()
	var done answer
	t.out.append(take{sql: sqlCommit, done: func(a answer) { done = a }})
	err := t.out.run(ctx, t.conn)
	tag := done.String()
	switch {
	case tag == sqlCommit && done.warning == nil:
		// What fails after the commit's answer is the connection alone, and only the next user's concern.
		return nil
	case tag == sqlCommit:
		// It waits for its standby no longer, since somebody has cancelled that: what is written here may be nowhere else (N6).
		err = fmt.Errorf("the database answered COMMIT with a warning: %s", done.warning.Message)
	case err == nil:
		return fmt.Errorf("the database answered COMMIT with %s", tag)
	}
	// How many statements were answered proves nothing: a pooler whose server is lost reports that at once, and the answers that it had
	// not handed on are gone.
	t.committing = true
	return err
}

// rollback leaves the connection usable. One on which that fails is closed by the pool.
func (t *transaction) rollback(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = exec(ctx, t.conn, sqlRollback)
}
