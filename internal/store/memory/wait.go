package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// checkWait checks the ops of waits.
func (s *Store) checkWait(op store.Op) error {
	switch op := op.(type) {
	case store.UseEvent:
		r := s.runs[op.RunID]
		if r == nil {
			return fmt.Errorf("run %s: %w", op.RunID, store.ErrNotFound)
		}
		if r.used[op.Position] {
			return fmt.Errorf("run %s has used event %d: %w", op.RunID, op.Position, store.ErrStale)
		}
		return s.checkOwner(op.Cursor, op.Owner)
	case store.InsertCallback:
		if s.runs[op.Callback.RunID] == nil {
			return fmt.Errorf("run %s: %w", op.Callback.RunID, store.ErrNotFound)
		}
		for _, c := range s.callbacks {
			if c.TokenHash == op.Callback.TokenHash || (c.RunID == op.Callback.RunID && c.StepID == op.Callback.StepID) {
				return fmt.Errorf("callback of run %s: %w", c.RunID, store.ErrExists)
			}
		}
	case store.EndCallback:
		c := s.callbacks[op.TokenHash]
		if c == nil {
			return fmt.Errorf("callback: %w", store.ErrNotFound)
		}
		if !c.EndedAt.IsZero() || (!c.DueAt.IsZero() && !op.Now.Before(c.DueAt)) {
			return fmt.Errorf("callback of run %s is over: %w", c.RunID, store.ErrStale)
		}
	case store.ExpireCallback:
		if c := s.callbacks[op.TokenHash]; c != nil && !c.EndedAt.IsZero() {
			return fmt.Errorf("callback of run %s has a payload: %w", c.RunID, store.ErrStale)
		}
	case store.PassKey:
		if k := s.keys[id(op.Key)]; k == nil || k.Owner != op.From {
			return fmt.Errorf("key %s is not run %s's: %w", op.Key.Key, op.From, store.ErrStale)
		}
	case store.LookedBack:
		return s.checkOwner(op.Cursor, op.Owner)
	case store.Advance:
		return s.checkOwner(op.Cursor, op.Owner)
	}
	return nil
}

func (s *Store) writeWait(op store.Op) {
	switch op := op.(type) {
	case store.UseEvent:
		s.runs[op.RunID].used[op.Position] = true
	case store.InsertCallback:
		s.callbacks[op.Callback.TokenHash] = &op.Callback
	case store.EndCallback:
		c := s.callbacks[op.TokenHash]
		c.EndedAt, c.Payload = op.Now, op.Payload
	case store.ExpireCallback:
		if c := s.callbacks[op.TokenHash]; c != nil {
			c.DueAt = store.Expired
		}
	case store.PassKey:
		s.keys[id(op.Key)] = &op.Key
	case store.CloseWait:
		if r := s.runs[op.RunID]; r != nil {
			r.waits = slices.DeleteFunc(r.waits, func(w store.Wait) bool { return w.Child == op.Child })
		}
	case store.LookedBack:
		if r := s.runs[op.RunID]; r != nil {
			for i := range r.waits {
				r.waits[i].Looked = r.waits[i].Looked || r.waits[i].Order == op.Order
			}
		}
	default:
		s.writeNode(op)
	}
}

// openWait opens a wait, unless its step has an entry or an open wait.
func (s *Store) openWait(r *run, w store.OpenWait) bool {
	if r.find(w.StepID) != nil || slices.ContainsFunc(r.waits, func(other store.Wait) bool { return other.StepID == w.StepID && !other.Orphan }) {
		return false
	}
	s.opened++
	opened := store.Wait{RunID: r.ID, Env: r.Env, Wait: w.Wait, Order: s.opened, Looked: w.Event == nil}
	if w.Event != nil {
		opened.After = s.stored
		if w.Event.SinceRun {
			opened.After = r.after
		}
	}
	r.waits = append(r.waits, opened)
	if w.Start != nil {
		s.insert(*w.Start)
	}
	return true
}

// closeWait closes the wait of a step that has its entry; an invoke whose child lives becomes an orphan.
func (s *Store) closeWait(r *run, step workflow.StepID) {
	r.waits = slices.DeleteFunc(r.waits, func(w store.Wait) bool { return w.StepID == step && !w.Orphan && !s.childLives(w) })
	for i := range r.waits {
		if r.waits[i].StepID == step {
			r.waits[i].Orphan = true
		}
	}
}

// leaveWaits closes the waits of a run that goes on without them; invokes whose children live become orphans. A restart keeps what its
// workflow's cancelOn waits for.
func (s *Store) leaveWaits(r *run, restarts bool) {
	keeps := func(w store.Wait) bool { return restarts && w.Kind == workflow.KindCancel }
	r.waits = slices.DeleteFunc(r.waits, func(w store.Wait) bool { return !keeps(w) && !s.childLives(w) })
	for i := range r.waits {
		r.waits[i].Orphan = r.waits[i].Orphan || !keeps(r.waits[i])
	}
	for i := range r.attempts {
		r.attempts[i].RetryAt = time.Time{}
	}
}

// closeWaits closes the waits of an ended run, but for invokes whose children live.
func (s *Store) closeWaits(r *run) {
	r.waits = slices.DeleteFunc(r.waits, func(w store.Wait) bool { return !s.childLives(w) })
	r.used = map[int64]bool{}
}

func (s *Store) childLives(w store.Wait) bool {
	child := s.runs[w.Child]
	return child != nil && !child.Status.Final()
}

// Waits implements store.Reader.
func (s *Store) Waits(_ context.Context, q store.WaitQuery) ([]store.Wait, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waits(q), nil
}

func (s *Store) waits(q store.WaitQuery) []store.Wait {
	var out []store.Wait
	for _, r := range s.runs {
		for _, w := range r.waits {
			if w.Order > q.After && s.selects(q, r, w) {
				out = append(out, w)
			}
		}
	}
	slices.SortFunc(out, func(a, b store.Wait) int { return cmp.Compare(a.Order, b.Order) })
	if q.Limit > 0 && len(out) > q.Limit {
		out = out[:q.Limit]
	}
	return out
}

func (s *Store) selects(q store.WaitQuery, r *run, w store.Wait) bool {
	switch q.Set {
	case store.WaitsOfRun:
		return r.ID == q.RunID
	case store.WaitsUnlooked:
		return !w.Looked
	case store.WaitsForEvent:
		return w.Event != nil && w.Looked && w.After < q.Position && !r.used[q.Position] && r.Env == q.Env && slices.Contains(w.Event.Names, q.Event) &&
			(w.Event.Paths == "" || slices.Contains(q.Pairs, [2]string{w.Event.Paths, w.Event.Key}))
	case store.WaitsOfKin:
		return w.Kind == workflow.KindInvoke && (w.Orphan || r.Status.Final() || !s.childLives(w))
	case store.WaitsFulfilled:
		if w.Kind != workflow.KindCallback {
			return false
		}
		for _, c := range s.callbacks {
			if c.RunID == r.ID && c.StepID == (workflow.StepID{Name: w.Name, Number: w.Of}) && !c.EndedAt.IsZero() {
				return true
			}
		}
	}
	return false
}

// MatchPaths implements store.Reader.
func (s *Store) MatchPaths(_ context.Context, env, event string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, r := range s.runs {
		for _, w := range r.waits {
			if r.Env == env && w.Event != nil && w.Event.Paths != "" && slices.Contains(w.Event.Names, event) && !slices.Contains(out, w.Event.Paths) {
				out = append(out, w.Event.Paths)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// Callback implements store.Reader.
func (s *Store) Callback(_ context.Context, q store.CallbackQuery) (store.Callback, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.callbacks {
		if c.TokenHash == q.TokenHash || (q.TokenHash == "" && c.RunID == q.RunID && c.StepID == q.StepID) {
			return *c, nil
		}
	}
	return store.Callback{}, fmt.Errorf("callback: %w", store.ErrNotFound)
}

// Stranded implements store.Reader.
func (s *Store) Stranded(_ context.Context, limit int) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, r := range s.sorted(func(r *run) bool { return !r.Status.Final() && r.TimerAt().IsZero() && r.ReadyAt().IsZero() }, byID) {
		comes := func(w store.Wait) bool { return w.Kind != workflow.KindCancel && !w.Orphan }
		if !slices.ContainsFunc(r.waits, comes) && len(out) < limit {
			out = append(out, r.ID)
		}
	}
	return out, nil
}
