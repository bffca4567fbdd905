package sqlite

import (
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// start records that a body is about to run, unless its step has an entry or gets one.
func (s *Store) start(h *head, start store.Start, callID string) (store.StartResult, error) {
	standing, err := s.standing(h, workflow.Step{StepID: start.StepID})
	if err != nil {
		return store.StartResult{}, err
	}
	if standing != nil {
		return store.StartResult{Entry: standing.Entry}, nil
	}
	res, late := store.StartResult{}, false
	err = query(s.writer, sqlSelectStarts, func(b *binder) { b.int(h.seq); b.text(start.Name); b.int(int64(start.Number)) }, func(r *scanner) error {
		attempt, call, endedAt, again := int(r.int()), r.text(), r.time(), r.bool()
		late = late || (call == "" && attempt >= start.Attempt)
		if call == callID && attempt == start.Attempt {
			res.Again = res.Again || again // the same start once more
			return nil
		}
		res.Again = true
		if call != "" && endedAt.After(res.CutAt) {
			res.CutAt = endedAt
		}
		return nil
	})
	if err != nil {
		return res, err
	}
	if start.Interrupted != nil && res.Again {
		appended, err := s.append(h, *start.Interrupted, 0, 0)
		return store.StartResult{Entry: appended.Entry}, err
	}
	if late {
		return res, nil
	}
	return res, s.putAttempt(h, store.Attempt{StepID: start.StepID, Attempt: start.Attempt, CallID: callID, StartedAt: start.StartedAt, Again: res.Again})
}

// settleAttempts ends what is recorded of a step's attempts when the step is saved.
func (s *Store) settleAttempts(h *head, id workflow.StepID) error {
	if !h.attempts {
		return nil
	}
	bind := func(b *binder) { b.int(h.seq); b.text(id.Name); b.int(int64(id.Number)) }
	if err := exec(s.writer, sqlDeleteStarts, bind); err != nil {
		return err
	}
	return exec(s.writer, sqlSettleRetries, bind)
}

// putRetry records a throw, unless the step is saved or this very throw recorded, and says when the step is due again because of it.
// Of a step only its last throw is due.
func (s *Store) putRetry(h *head, a store.Attempt) (due time.Time, err error) {
	standing, err := s.standing(h, workflow.Step{StepID: a.StepID})
	if err != nil || standing != nil {
		return time.Time{}, err
	}
	known := false
	err = query(s.writer, sqlSelectThrow, func(b *binder) {
		b.int(h.seq)
		b.text(a.Name)
		b.int(int64(a.Number))
		b.int(int64(a.Attempt))
		b.time(a.StartedAt)
		b.time(a.EndedAt)
	}, func(r *scanner) error { due, known = r.time(), true; return nil })
	if err != nil || known {
		return due, err
	}
	err = exec(s.writer, sqlSettleRetries, func(b *binder) { b.int(h.seq); b.text(a.Name); b.int(int64(a.Number)) })
	if err != nil {
		return time.Time{}, err
	}
	return a.RetryAt, s.putAttempt(h, a)
}

// putAttempt replaces what is recorded of that attempt.
func (s *Store) putAttempt(h *head, a store.Attempt) error {
	h.attempts = true
	return exec(s.writer, sqlPutAttempt,
		func(b *binder) {
			b.int(h.seq)
			b.text(a.Name)
			b.int(int64(a.Number))
			b.int(int64(a.Attempt))
			b.text(a.CallID)
			b.blob(a.Error)
			b.time(a.StartedAt)
			b.time(a.EndedAt)
			b.time(a.RetryAt)
			b.bool(a.Again)
		})
}

func (s *Store) cutAttempts(h *head, op store.UpdateRun) error {
	at := op.Run.NextAt
	if op.Run.Status.Final() {
		at = op.Run.EndedAt
	}
	return exec(s.writer, sqlCutAttempts,
		func(b *binder) { b.time(at); b.blob(store.CutOff); b.int(h.seq); b.text(op.CutCall) })
}
