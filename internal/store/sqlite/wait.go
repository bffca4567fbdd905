package sqlite

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"math"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// checkWait checks the ops of waits, callbacks and claims.
func (s *Store) checkWait(op store.Op) (refusal, err error) {
	switch op := op.(type) {
	case store.UseEvent:
		return s.checkUse(op)
	case store.InsertCallback:
		h, err := s.head(op.Callback.RunID)
		if err != nil || h == nil {
			return fmt.Errorf("run %s: %w", op.Callback.RunID, store.ErrNotFound), err
		}
		err = query(s.writer, sqlSelectSameCall, func(b *binder) {
			b.text(op.Callback.TokenHash)
			b.int(h.seq)
			b.text(op.Callback.Name)
			b.int(int64(op.Callback.Number))
		}, func(*scanner) error {
			refusal = fmt.Errorf("callback of run %s: %w", op.Callback.RunID, store.ErrExists)
			return nil
		})
		return refusal, err
	case store.EndCallback:
		c, err := readCallback(s.writer, store.CallbackQuery{TokenHash: op.TokenHash})
		switch {
		case err != nil:
			return nil, err
		case c == nil:
			return fmt.Errorf("callback: %w", store.ErrNotFound), nil
		case !c.EndedAt.IsZero() || (!c.DueAt.IsZero() && !op.Now.Before(c.DueAt)):
			return fmt.Errorf("callback of run %s is over: %w", c.RunID, store.ErrStale), nil
		}
	case store.ExpireCallback:
		c, err := readCallback(s.writer, store.CallbackQuery{TokenHash: op.TokenHash})
		if err == nil && c != nil && !c.EndedAt.IsZero() {
			refusal = fmt.Errorf("callback of run %s has a payload: %w", c.RunID, store.ErrStale)
		}
		return refusal, err
	case store.PassKey:
		key, err := readKey(s.writer, op.Key, time.Time{})
		if err == nil && (key == nil || key.Owner != op.From) {
			refusal = fmt.Errorf("key %s is not run %s's: %w", op.Key.Key, op.From, store.ErrStale)
		}
		return refusal, err
	case store.LookedBack:
		return s.checkOwner(op.Cursor, op.Owner)
	case store.Advance:
		return s.checkOwner(op.Cursor, op.Owner)
	}
	return nil, nil
}

func (s *Store) checkUse(op store.UseEvent) (refusal, err error) {
	h, err := s.head(op.RunID)
	if err != nil || h == nil {
		return fmt.Errorf("run %s: %w", op.RunID, store.ErrNotFound), err
	}
	err = query(s.writer, sqlSelectUse, func(b *binder) { b.int(h.seq); b.int(op.Position) }, func(*scanner) error {
		refusal = fmt.Errorf("run %s has used event %d: %w", op.RunID, op.Position, store.ErrStale)
		return nil
	})
	if refusal != nil || err != nil {
		return refusal, err
	}
	return s.checkOwner(op.Cursor, op.Owner)
}

func (s *Store) writeWait(op store.Op) error {
	switch op := op.(type) {
	case store.UseEvent:
		h, err := s.head(op.RunID)
		if err != nil {
			return err
		}
		h.waits = true
		return exec(s.writer, sqlInsertUse, func(b *binder) { b.int(h.seq); b.int(op.Position) })
	case store.InsertCallback:
		return s.insertCallback(op.Callback)
	case store.EndCallback:
		err := exec(s.writer, sqlEndCallback, func(b *binder) { b.time(op.Now); b.blob(op.Payload); b.text(op.TokenHash) })
		if err != nil {
			return err
		}
		return exec(s.writer, sqlMarkPosted, func(b *binder) { b.text(op.TokenHash) })
	case store.ExpireCallback:
		return exec(s.writer, sqlExpireCallback, func(b *binder) { b.time(store.Expired); b.text(op.TokenHash) })
	case store.PassKey:
		return s.putKey(op.Key)
	case store.CloseWait:
		return s.eachWait(sqlSelectInvoke, func(b *binder) { b.text(op.RunID); b.text(op.Child) }, s.deleteWait)
	case store.LookedBack:
		return exec(s.writer, sqlLookedBack, func(b *binder) { b.int(op.Order) })
	default:
		return s.writeNode(op)
	}
}

func (s *Store) insertCallback(c store.Callback) error {
	h, err := s.head(c.RunID)
	if err != nil {
		return err
	}
	return exec(s.writer, sqlInsertCallback, func(b *binder) {
		b.text(c.TokenHash)
		b.text(c.Env)
		b.int(h.seq)
		b.text(c.Name)
		b.int(int64(c.Number))
		b.time(c.DueAt)
		b.time(c.EndedAt)
		b.blob(c.Payload)
	})
}

// Where a wait's look back begins.
const (
	afterNothing = iota // it waits for no event
	afterRun
	afterNow
)

// openWait opens a wait, unless its step has an entry or an open wait.
func (s *Store) openWait(h *head, env string, w store.OpenWait) (bool, error) {
	standing, err := s.standing(h, workflow.Step{StepID: w.StepID})
	if err != nil || standing != nil {
		return false, err
	}
	var event []byte
	after := afterNothing
	if w.Event != nil {
		if event, err = json.Marshal(w.Event); err != nil {
			return false, fmt.Errorf("encoding a wait of run %d: %w", h.seq, err)
		}
		if after = afterNow; w.Event.SinceRun {
			after = afterRun
		}
	}
	come, err := s.come(h, &w)
	if err != nil {
		return false, err
	}
	h.waits = true
	err = exec(s.writer, sqlInsertWait, func(b *binder) {
		b.int(h.seq)
		b.text(w.Name)
		b.int(int64(w.Number))
		b.text(w.Kind)
		b.time(w.DueAt)
		b.text(w.Child)
		b.int(int64(w.Of))
		b.blob(event)
		b.bool(w.Event == nil)
		b.int(int64(after))
		b.bool(come)
		b.int(s.lastWait + 1)
	})
	if err != nil || s.writer.Changes() == 0 {
		return false, err
	}
	s.lastWait++
	if w.Start != nil {
		return true, s.insertRun(*w.Start)
	}
	if w.Event == nil {
		return true, nil
	}
	id := s.lastWait
	for _, name := range w.Event.Names {
		err := exec(s.writer, sqlInsertWaitEvent, func(b *binder) {
			b.text(env)
			b.text(name)
			b.text(w.Event.Paths)
			b.text(w.Event.Key)
			b.int(id)
		})
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// come tells whether what a new wait waits for may be there.
func (s *Store) come(h *head, w *store.OpenWait) (come bool, err error) {
	switch {
	case w.Kind == workflow.KindCallback:
		err = query(s.writer, sqlSelectPosted, func(b *binder) { b.int(h.seq); b.text(w.Name); b.int(int64(w.Of)) }, func(*scanner) error {
			come = true
			return nil
		})
	case w.Kind != workflow.KindInvoke:
	case w.Start != nil:
		come = w.Start.Run.Status.Final()
	default:
		come, err = s.childLives(w.Child)
		come = !come
	}
	return come, err
}

// closeWait closes the wait of a step that has its entry; an invoke whose child lives becomes an orphan.
func (s *Store) closeWait(h *head, step workflow.StepID) error {
	if !h.waits {
		return nil
	}
	return s.eachWait(sqlSelectWait, func(b *binder) { b.int(h.seq); b.text(step.Name); b.int(int64(step.Number)) },
		s.leaveWait)
}

// leaveWaits closes the waits of a run that goes on without them; invokes whose children live become orphans. A restart keeps what its
// workflow's cancelOn waits for.
func (s *Store) leaveWaits(h *head, restarts bool) error {
	if h.attempts {
		if err := exec(s.writer, sqlSettleAllRetries, func(b *binder) { b.int(h.seq) }); err != nil {
			return err
		}
	}
	if !h.waits {
		return nil
	}
	return s.eachWait(sqlSelectLeftWaitIDs, func(b *binder) { b.int(h.seq); b.bool(restarts) }, s.leaveWait)
}

func (s *Store) leaveWait(id int64, child string) error {
	lives, err := s.childLives(child)
	if err != nil {
		return err
	}
	if lives {
		return exec(s.writer, sqlOrphanWait, func(b *binder) { b.int(id) })
	}
	return s.deleteWait(id, child)
}

// closeWaits closes the waits of an ended run, but for invokes whose children live.
func (s *Store) closeWaits(h *head) error {
	if !h.waits {
		return nil
	}
	err := s.eachWait(sqlSelectWaitIDs, func(b *binder) { b.int(h.seq) }, func(id int64, child string) error {
		lives, err := s.childLives(child)
		if err != nil || lives {
			return err
		}
		return s.deleteWait(id, child)
	})
	if err != nil {
		return err
	}
	return exec(s.writer, sqlDeleteUses, func(b *binder) { b.int(h.seq) })
}

// eachWait reads waits, and then does with each.
func (s *Store) eachWait(statement string, bind func(*binder), do func(id int64, child string) error) error {
	type row struct {
		id    int64
		child string
	}
	var rows []row
	err := query(s.writer, statement, bind, func(r *scanner) error {
		rows = append(rows, row{r.int(), r.text()})
		return nil
	})
	for _, r := range rows {
		if err == nil {
			err = do(r.id, r.child)
		}
	}
	return err
}

func (s *Store) deleteWait(id int64, _ string) error {
	if err := exec(s.writer, sqlDeleteWaitEvents, func(b *binder) { b.int(id) }); err != nil {
		return err
	}
	return exec(s.writer, sqlDeleteWait, func(b *binder) { b.int(id) })
}

func (s *Store) childLives(child string) (bool, error) {
	if child == "" {
		return false, nil
	}
	lives := false
	err := query(s.writer, sqlSelectLives, func(b *binder) { b.text(child) }, func(*scanner) error { lives = true; return nil })
	return lives, err
}

// Waits implements store.Reader.
func (s *Store) Waits(ctx context.Context, q store.WaitQuery) ([]store.Wait, error) {
	limit := int64(q.Limit)
	if limit == 0 {
		limit = math.MaxInt64
	}
	statement, bind := "", func(b *binder) { b.int(q.After); b.int(limit) }
	switch q.Set {
	case store.WaitsOfRun:
		statement, bind = sqlWaitsOfRun, func(b *binder) { b.text(q.RunID); b.int(q.After); b.int(limit) }
	case store.WaitsUnlooked:
		statement = sqlWaitsUnlooked
	case store.WaitsOfKin:
		statement = sqlWaitsOfKin
	case store.WaitsFulfilled:
		statement = sqlWaitsFulfilled
	case store.WaitsForEvent:
		return s.waitsForEvent(ctx, q, limit)
	}
	var out []store.Wait
	err := s.read(ctx, func(conn *sqlite.Conn) (err error) {
		out, err = readWaits(conn, statement, bind)
		return err
	})
	return out, err
}

// waitsForEvent reads of each pair's waits as many as are asked for, and of all those the first that the event may end.
func (s *Store) waitsForEvent(ctx context.Context, q store.WaitQuery, limit int64) ([]store.Wait, error) {
	var out []store.Wait
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		for after := q.After; ; {
			var ids []int64
			for _, pair := range append([][2]string{{"", ""}}, q.Pairs...) {
				bind := func(b *binder) {
					b.text(q.Env)
					b.text(q.Event)
					b.text(pair[0])
					b.text(pair[1])
					b.int(after)
					b.int(limit)
				}
				if err := query(conn, sqlWaitsNaming, bind, func(r *scanner) error { ids = append(ids, r.int()); return nil }); err != nil {
					return err
				}
			}
			slices.Sort(ids)
			page := ids[:min(int64(len(ids)), limit)]
			for _, id := range page {
				waits, err := readWaits(conn, sqlWaitForEvent, func(b *binder) { b.int(id); b.int(q.Position) })
				if err != nil {
					return err
				}
				if out = append(out, waits...); int64(len(out)) == limit {
					return nil
				}
			}
			if int64(len(page)) < limit {
				return nil
			}
			after = page[len(page)-1]
		}
	})
	return out, err
}

func readWaits(conn *sqlite.Conn, statement string, bind func(*binder)) ([]store.Wait, error) {
	var out []store.Wait
	err := query(conn, statement, bind, func(r *scanner) error {
		w, err := scanWait(r)
		out = append(out, w)
		return err
	})
	return out, err
}

func scanWait(r *scanner) (store.Wait, error) {
	w := store.Wait{Order: r.int(), RunID: r.text(), Env: r.text(), Wait: workflow.Wait{
		StepID: workflow.StepID{Name: r.text(), Number: int(r.int())}, Kind: r.text(), DueAt: r.time(), Child: r.text(), Of: int(r.int()),
	}}
	if event := r.blob(); event != nil {
		w.Event = &workflow.EventWait{}
		if err := json.Unmarshal(event, w.Event); err != nil {
			return w, fmt.Errorf("reading a wait of run %s: %w", w.RunID, err)
		}
	}
	w.After, w.Looked, w.Orphan = r.int(), r.bool(), r.bool()
	return w, nil
}

// MatchPaths implements store.Reader.
func (s *Store) MatchPaths(ctx context.Context, env, event string) ([]string, error) {
	var out []string
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		return query(conn, sqlSelectMatchPaths, func(b *binder) { b.text(env); b.text(event) },
			func(r *scanner) error { out = append(out, r.text()); return nil })
	})
	return out, err
}

// Callback implements store.Reader.
func (s *Store) Callback(ctx context.Context, q store.CallbackQuery) (store.Callback, error) {
	var out store.Callback
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		c, err := readCallback(conn, q)
		if err != nil || c == nil {
			return orNotFound(err, "callback")
		}
		out = *c
		return nil
	})
	return out, err
}

func readCallback(conn *sqlite.Conn, q store.CallbackQuery) (*store.Callback, error) {
	statement, bind := sqlSelectCallback, func(b *binder) { b.text(q.TokenHash) }
	if q.TokenHash == "" {
		statement, bind = sqlSelectCallbackOfStep, func(b *binder) { b.text(q.RunID); b.text(q.Name); b.int(int64(q.Number)) }
	}
	var found *store.Callback
	err := query(conn, statement, bind, func(r *scanner) error {
		found = &store.Callback{
			TokenHash: r.text(), Env: r.text(), RunID: r.text(), StepID: workflow.StepID{Name: r.text(), Number: int(r.int())},
			DueAt: r.time(), EndedAt: r.time(), Payload: r.blob(),
		}
		return nil
	})
	return found, err
}

// Position implements store.Reader.
func (s *Store) Position(ctx context.Context, cursor string) (int64, error) {
	position := int64(0)
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		return query(conn, sqlSelectPosition, func(b *binder) { b.text(cursor) },
			func(r *scanner) error { position = r.int(); return nil })
	})
	return position, err
}

// Stranded implements store.Reader.
func (s *Store) Stranded(ctx context.Context, limit int) ([]string, error) {
	var out []string
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		return query(conn, sqlStranded, func(b *binder) { b.int(int64(limit)) }, func(r *scanner) error { out = append(out, r.text()); return nil })
	})
	return out, err
}
