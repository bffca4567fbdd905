package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/nelkap/nelkap/internal/store"
)

// lockedRuns are runs whose rows somebody has locked who is no server: a person who changes one by hand, and leaves the transaction open. A batch
// that waits for such a row holds up all that it has to write, and all that comes after it, this node's heartbeats too. So once a batch has
// waited for lockTime the runs are found out that it waited for, and what is to be written of them is refused at once until they are free.
type lockedRuns struct {
	mu  sync.Mutex
	ids set[string]
}

// of gives those that the changes touch.
func (l *lockedRuns) of(changes []store.Change) (found set[string]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ids) == 0 {
		return nil
	}
	for id := range runsOf(changes...) {
		if l.ids.has(id) {
			found.add(id)
		}
	}
	return found
}

// learn takes over which of those that were asked for are locked.
func (l *lockedRuns) learn(asked, locked set[string]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range asked {
		delete(l.ids, id)
	}
	for id := range locked {
		l.ids.add(id)
	}
}

// runsOf are the runs whose rows the changes lock.
func runsOf(changes ...store.Change) set[string] {
	n := &need{}
	for _, change := range changes {
		n.change(change)
	}
	return n.runs
}

// tryFree is try for all changes but those that would wait for a run that is known to be locked: these are refused.
func (s *Store) tryFree(ctx context.Context, changes []store.Change) ([]store.Result, outcome, error) {
	locked, err := s.findLocked(ctx, s.locked.of(changes))
	if err != nil {
		return nil, classify(err, false), err
	}
	results, free := make([]store.Result, len(changes)), make([]store.Change, 0, len(changes))
	places := make([]int, 0, len(changes))
	for i, change := range changes {
		if results[i].Err = refusedFor(locked, change); results[i].Err == nil {
			free, places = append(free, change), append(places, i)
		}
	}
	if len(free) == 0 {
		return results, 0, nil
	}
	written, o, err := s.try(ctx, free)
	var answer *pgconn.PgError
	if errors.As(err, &answer) && answer.Code == lockNotAvailable {
		_, failure := s.findLocked(ctx, runsOf(free...))
		err = errors.Join(err, failure)
	}
	if err != nil {
		return nil, o, err
	}
	for i, place := range places {
		results[place] = written[i]
	}
	return results, o, nil
}

// refusedFor says why a change is not written; nil: none of its runs is locked.
func refusedFor(locked set[string], change store.Change) error {
	if len(locked) == 0 {
		return nil
	}
	for id := range runsOf(change) {
		if locked.has(id) {
			return fmt.Errorf("run %s: %w", id, store.ErrRunLocked)
		}
	}
	return nil
}

// findLocked gives those of the runs that somebody holds a lock on now, and keeps which they are.
func (s *Store) findLocked(ctx context.Context, ids set[string]) (locked set[string], err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	err = s.readNow(ctx, func(b *batch) {
		// The whole table may be locked: that is not waited for.
		b.add(sqlSetLockTime, (&params{}).int(s.lockTime.Milliseconds()/50), nil)
		locked = nil
		b.add(sqlRunsThere, texts(ids).params(), func(r *scanner) error { locked.add(r.text()); return nil })
		b.add(sqlRunsFree, texts(ids).params(), func(r *scanner) error { delete(locked, r.text()); return nil })
	})
	if err == nil {
		s.locked.learn(ids, locked)
	}
	return locked, err
}
