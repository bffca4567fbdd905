package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/nelkap/nelkap/internal/store"
)

// rows are rows that changes lock before they write.
type rows struct {
	runs set[string]
	keys set[keyID]
}

// lockedBy are the rows that changes lock.
func lockedBy(changes ...store.Change) rows {
	n := &need{}
	for _, change := range changes {
		n.change(change)
	}
	return rows{n.runs, n.keys}
}

func (r rows) none() bool { return len(r.runs) == 0 && len(r.keys) == 0 }

// both are the rows that are in r and in o.
func (r rows) both(o rows) (found rows) {
	for id := range o.runs {
		if r.runs.has(id) {
			found.runs.add(id)
		}
	}
	for k := range o.keys {
		if r.keys.has(k) {
			found.keys.add(k)
		}
	}
	return found
}

// refusal says why a change that locks r can't be written while o are locked; nil: it locks none of them.
func (r rows) refusal(o rows) error {
	found := r.both(o)
	for id := range found.runs {
		return fmt.Errorf("run %s: %w", id, store.ErrRowLocked)
	}
	for k := range found.keys {
		return fmt.Errorf("the key %q: %w", k.key, store.ErrRowLocked)
	}
	return nil
}

// lockedRows are rows that somebody has locked who is no server: a person who changes one by hand, and leaves the transaction open. A batch that waits
// for such a row holds up all that it has to write, and all that comes after it, this node's heartbeats too. So once a batch has waited for
// lockTime the rows are found out that it waited for, and what needs them is refused at once until they are free.
type lockedRows struct {
	mu   sync.Mutex
	rows rows
}

// of gives those that the changes need.
func (l *lockedRows) of(changes []store.Change) rows {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rows.none() {
		return rows{}
	}
	return l.rows.both(lockedBy(changes...))
}

// learn takes over which of those that were asked for are locked.
func (l *lockedRows) learn(asked, found rows) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range asked.runs {
		delete(l.rows.runs, id)
	}
	for k := range asked.keys {
		delete(l.rows.keys, k)
	}
	for id := range found.runs {
		l.rows.runs.add(id)
	}
	for k := range found.keys {
		l.rows.keys.add(k)
	}
}

// tryFree is try for all changes but those that would wait for a row that is known to be locked: these are refused.
func (s *Store) tryFree(ctx context.Context, changes []store.Change) ([]store.Result, outcome, error) {
	held, err := s.findLocked(ctx, s.locked.of(changes))
	if err != nil {
		return nil, classify(err, false), err
	}
	results, free := make([]store.Result, len(changes)), make([]store.Change, 0, len(changes))
	places := make([]int, 0, len(changes))
	for i, change := range changes {
		if !held.none() {
			results[i].Err = lockedBy(change).refusal(held)
		}
		if results[i].Err == nil {
			free, places = append(free, change), append(places, i)
		}
	}
	if len(free) == 0 {
		return results, 0, nil
	}
	written, o, err := s.try(ctx, free)
	var answer *pgconn.PgError
	if errors.As(err, &answer) && (answer.Code == lockNotAvailable || answer.Code == queryCanceled) {
		_, failure := s.findLocked(ctx, lockedBy(free...))
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

// findLocked gives those of the rows that somebody holds a lock on now, and keeps which they are.
func (s *Store) findLocked(ctx context.Context, asked rows) (found rows, err error) {
	if asked.none() {
		return rows{}, nil
	}
	err = s.readNow(ctx, func(b *batch) {
		found = rows{} // of a try before
		// The whole table may be locked: that is not waited for.
		b.add(sqlSetLockTime, (&params{}).int(s.lockTime.Milliseconds()/50), nil)
		if len(asked.runs) > 0 {
			b.add(sqlRunsThere, texts(asked.runs).params(), func(r *scanner) error { found.runs.add(r.text()); return nil })
			b.add(sqlRunsFree, texts(asked.runs).params(), func(r *scanner) error { delete(found.runs, r.text()); return nil })
		}
		if len(asked.keys) > 0 {
			b.add(sqlKeysThere, keyRows(asked.keys).params(), func(r *scanner) error { found.keys.add(scanKeyID(r)); return nil })
			b.add(sqlKeysFree, keyRows(asked.keys).params(), func(r *scanner) error { delete(found.keys, scanKeyID(r)); return nil })
		}
	})
	if err == nil {
		s.locked.learn(asked, found)
	}
	return found, err
}

func scanKeyID(r *scanner) keyID {
	return keyID{env: r.text(), kind: store.KeyKind(r.text()), scope: r.text(), key: r.text()}
}
