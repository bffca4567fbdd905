package sqlite

import (
	"bytes"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// head is what the writer knows of a run without reading.
type head struct {
	seq      int64
	version  int64
	callID   string
	nonce    string
	restart  int
	history  store.History
	lines    int64 // of the chapter's log; negative: not counted yet
	attempts bool  // there may be rows in attempts
	waits    bool  // there may be rows in waits or in event_uses
}

// Commit implements store.Store: one transaction, one sync.
func (s *Store) Commit(_ context.Context, changes []store.Change) ([]store.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writer == nil {
		return nil, errors.New("sqlite: the store is closed")
	}
	if err := s.inPlace(); err != nil {
		return nil, err
	}
	results, err := s.commit(changes)
	if err != nil {
		s.heads = map[string]*head{}
		// SQLite has rolled back by itself after some errors; then this one says so, and nothing is lost.
		_ = exec(s.writer, "ROLLBACK", nil)
		return nil, fmt.Errorf("committing %d changes: %w", len(changes), classify(err))
	}
	s.cutWAL()
	return results, nil
}

func (s *Store) commit(changes []store.Change) ([]store.Result, error) {
	if err := exec(s.writer, "BEGIN IMMEDIATE", nil); err != nil {
		return nil, err
	}
	if len(s.heads) > headsMax {
		s.heads = map[string]*head{}
	}
	results := make([]store.Result, len(changes))
	for i, change := range changes {
		refusal, err := s.check(change)
		if err != nil {
			return nil, err
		}
		if refusal != nil {
			results[i].Err = refusal
			continue
		}
		for _, op := range change {
			if err := s.write(op, &results[i]); err != nil {
				return nil, err
			}
		}
	}
	return results, exec(s.writer, "COMMIT", nil)
}

// check tells whether everything that the change expects is so, before its first write: nothing has to be undone.
func (s *Store) check(change []store.Op) (refusal, err error) {
	for _, op := range change {
		switch op := op.(type) {
		case store.InsertRun:
			if refusal, err = s.checkAbsent(op.Run.ID); refusal == nil && err == nil {
				refusal, err = s.checkReplay(op.Replay)
			}
		case store.UpdateRun:
			refusal, err = s.checkUpdate(op)
		case store.SaveSteps:
			refusal, err = s.checkSave(op)
		case store.InsertEvent:
			refusal, err = s.checkEvent(op.Event)
		case store.TakeKey:
			var key *store.Key
			if key, err = readKey(s.writer, op.Key, op.Now); err == nil && key == nil {
				refusal, err = s.check(op.Then)
			}
		case store.UseEvent, store.InsertCallback, store.EndCallback, store.ExpireCallback, store.PassKey, store.LookedBack, store.Advance:
			refusal, err = s.checkWait(op)
		case store.PutSchedule, store.DropLater, store.PutApp:
			refusal, err = s.checkDue(op)
		case store.InsertDelivery:
			refusal, err = s.checkDelivery(op.Delivery.ID)
		}
		if refusal != nil || err != nil {
			return refusal, err
		}
	}
	return nil, nil
}

func (s *Store) checkAbsent(runID string) (refusal, err error) {
	if s.heads[runID] != nil {
		return fmt.Errorf("run %s: %w", runID, store.ErrExists), nil
	}
	err = query(s.writer, sqlSelectRunExists, func(b *binder) { b.text(runID) }, func(*scanner) error {
		refusal = fmt.Errorf("run %s: %w", runID, store.ErrExists)
		return nil
	})
	return refusal, err
}

func (s *Store) checkReplay(replay *store.Replay) (refusal, err error) {
	if replay == nil {
		return nil, nil
	}
	original, err := s.head(replay.RunID)
	switch {
	case err != nil:
		return nil, err
	case original == nil:
		return fmt.Errorf("run %s: %w", replay.RunID, store.ErrNotFound), nil
	case original.restart != replay.Restart:
		return fmt.Errorf("run %s plays chapter %d: %w", replay.RunID, original.restart, store.ErrStale), nil
	}
	for _, passed := range replay.Callbacks {
		c, err := readCallback(s.writer, store.CallbackQuery{TokenHash: passed.TokenHash})
		if err != nil {
			return nil, err
		}
		if c == nil || c.RunID != passed.Owner {
			return fmt.Errorf("a callback is not run %s's: %w", passed.Owner, store.ErrStale), nil
		}
	}
	return nil, nil
}

func (s *Store) checkUpdate(op store.UpdateRun) (refusal, err error) {
	h, err := s.head(op.Run.ID)
	if err != nil {
		return nil, err
	}
	if h == nil {
		return fmt.Errorf("run %s: %w", op.Run.ID, store.ErrNotFound), nil
	}
	if h.version != op.Run.Version-1 {
		return fmt.Errorf("run %s is at version %d, not %d: %w", op.Run.ID, h.version, op.Run.Version-1, store.ErrStale), nil
	}
	if n, begins := op.ExpectsEntries(); begins && n != h.history.Entries {
		return fmt.Errorf("run %s has %d entries, not %d: %w", op.Run.ID, h.history.Entries, n, store.ErrStale), nil
	}
	return nil, nil
}

func (s *Store) checkSave(op store.SaveSteps) (refusal, err error) {
	h, err := s.head(op.RunID)
	if err != nil {
		return nil, err
	}
	if h == nil {
		return fmt.Errorf("run %s: %w", op.RunID, store.ErrNotFound), nil
	}
	if h.callID == "" || h.callID != op.CallID || (h.nonce != "" && h.nonce != op.Nonce) {
		return fmt.Errorf("run %s: call %s is not current: %w", op.RunID, op.CallID, store.ErrStale), nil
	}
	return nil, nil
}

func (s *Store) checkEvent(e store.Event) (refusal, err error) {
	err = query(s.writer, sqlSelectEventExists,
		func(b *binder) { b.text(e.Env); b.text(e.Name); b.text(e.ID) },
		func(*scanner) error {
			refusal = fmt.Errorf("event %s: %w", e.ID, store.ErrExists)
			return nil
		})
	return refusal, err
}

// head gives the writer's memory of a run, read once; nil if there is no such run.
func (s *Store) head(runID string) (*head, error) {
	if h := s.heads[runID]; h != nil {
		return h, nil
	}
	var h *head
	err := query(s.writer, sqlSelectHead,
		func(b *binder) { b.text(runID) },
		func(r *scanner) error {
			h = &head{seq: r.int(), version: r.int(), callID: r.text(), nonce: r.text(), restart: int(r.int()), lines: -1, attempts: r.bool(), waits: r.bool()}
			return nil
		})
	if err != nil || h == nil {
		return nil, err
	}
	if h.history, err = readHistory(s.writer, h.seq, h.restart); err != nil {
		return nil, err
	}
	s.heads[runID] = h
	return h, nil
}

func (s *Store) write(op store.Op, res *store.Result) error {
	switch op := op.(type) {
	case store.InsertRun:
		return s.insertRun(op)
	case store.UpdateRun:
		return s.update(op, res)
	case store.SaveSteps:
		return s.save(op, res)
	case store.InsertEvent:
		return s.insertEvent(op.Event)
	case store.TakeKey:
		return s.take(op, res)
	case store.PutApp:
		return s.putApp(op.App)
	case store.DropKeys:
		err := exec(s.writer, sqlDeleteExpiredKeys, func(b *binder) { b.time(op.Now); b.int(int64(op.Limit)) })
		res.Dropped += s.writer.Changes()
		return err
	case store.PutSchedule, store.DropSchedule, store.PutLater, store.DropLater:
		return s.writeDue(op)
	case store.InsertDelivery:
		return s.insertDelivery(op.Delivery)
	case store.DropDeliveries:
		return s.dropDeliveries(op, res)
	case store.AddLogs:
		return s.addLogs(op)
	case store.DropEvents:
		err := exec(s.writer, sqlDropEvents, func(b *binder) { b.time(op.Before); b.int(int64(op.Limit)); b.int(int64(op.BytesMax)) })
		res.Dropped += s.writer.Changes()
		return err
	case store.DropRuns:
		return s.dropRuns(op, res)
	default:
		return s.writeWait(op)
	}
}

func (s *Store) insertRun(op store.InsertRun) error {
	if err := exec(s.writer, sqlInsertRun, func(b *binder) { bindIdentity(b, &op.Run); bindState(b, &op.Run) }); err != nil {
		return err
	}
	h := &head{seq: s.writer.LastInsertRowID(), version: op.Run.Version}
	h.follow(&op.Run)
	s.heads[op.Run.ID] = h
	if op.Replay != nil {
		if err := s.replay(h, op.Replay); err != nil {
			return err
		}
	}
	for _, w := range op.Waits {
		if _, err := s.openWait(h, op.Run.Env, store.OpenWait{Wait: w}); err != nil {
			return err
		}
	}
	return exec(s.writer, sqlInsertValues, func(b *binder) { b.int(h.seq); b.blob(op.Payload) })
}

// replay takes over the beginning of another run's history.
func (s *Store) replay(h *head, replay *store.Replay) error {
	original, err := s.head(replay.RunID)
	if err != nil || original == nil {
		return err
	}
	if replay.Events {
		if err := exec(s.writer, sqlCopyEventsAfter, func(b *binder) { b.int(original.seq); b.int(h.seq) }); err != nil {
			return err
		}
	}
	for _, position := range replay.Used {
		h.waits = true
		if err := exec(s.writer, sqlInsertUse, func(b *binder) { b.int(h.seq); b.int(position) }); err != nil {
			return err
		}
	}
	for _, passed := range replay.Callbacks {
		if err := exec(s.writer, sqlPassCallback, func(b *binder) { b.int(h.seq); b.text(passed.TokenHash) }); err != nil {
			return err
		}
	}
	if replay.Entries == 0 {
		return nil
	}
	err = exec(s.writer, sqlCopySteps, func(b *binder) {
		b.int(h.seq)
		b.int(int64(h.restart))
		b.int(original.seq)
		b.int(replay.Entries)
		b.int(int64(original.restart))
	})
	if err == nil {
		h.history, err = readHistory(s.writer, h.seq, h.restart)
	}
	return err
}

// follow takes over what a changed record says.
func (h *head) follow(r *workflow.Run) {
	h.version, h.restart, h.callID, h.nonce = r.Version, r.Restart, "", ""
	if r.Call != nil {
		h.callID, h.nonce = r.Call.ID, r.Call.Nonce
	}
}

func (s *Store) update(op store.UpdateRun, res *store.Result) error {
	h := s.heads[op.Run.ID]
	if err := exec(s.writer, sqlUpdateRun, func(b *binder) { bindState(b, &op.Run); b.int(h.seq) }); err != nil {
		return err
	}
	h.follow(&op.Run)
	if op.Chapter != nil {
		if err := s.closeChapter(h, op, op.Run.NextAt); err != nil {
			return err
		}
	}
	if op.CloseWaits {
		if err := s.leaveWaits(h, op.Chapter != nil); err != nil {
			return err
		}
	}
	if op.CutCall != "" && h.attempts {
		if err := s.cutAttempts(h, op); err != nil {
			return err
		}
	}
	for _, step := range op.Append {
		r, err := s.append(h, step, 0, 0)
		if err != nil {
			return err
		}
		res.Steps = append(res.Steps, r)
		if err := s.closeWait(h, step.StepID); err != nil {
			return err
		}
	}
	for _, w := range op.Open {
		opened, err := s.openWait(h, op.Run.Env, w)
		if err != nil {
			return err
		}
		res.Opened = append(res.Opened, opened)
	}
	if op.Trees != nil {
		if err := exec(s.writer, sqlUpdateTrees, func(b *binder) { b.blob(op.Trees); b.int(h.seq) }); err != nil {
			return err
		}
	}
	if op.Output != nil || op.Error != nil {
		err := exec(s.writer, sqlUpdateValues,
			func(b *binder) { b.blob(op.Output); b.blob(op.Error); b.int(h.seq) })
		if err != nil {
			return err
		}
	}
	res.Version, res.History = h.version, h.history
	if !op.Run.Status.Final() {
		return nil
	}
	if err := s.closeWaits(h); err != nil {
		return err
	}
	delete(s.heads, op.Run.ID)
	return s.finish(h, op)
}

// finish has those hear of a run's end who have to, and frees the keys that lived as long as it (K3).
func (s *Store) finish(h *head, op store.UpdateRun) error {
	if op.Run.Parent != "" {
		if err := exec(s.writer, sqlMarkParents, func(b *binder) { b.text(op.Run.ID) }); err != nil {
			return err
		}
	}
	if op.Run.Invokes {
		if err := exec(s.writer, sqlMarkInvokes, func(b *binder) { b.int(h.seq) }); err != nil {
			return err
		}
	}
	return exec(s.writer, sqlDeleteKeysOfScope,
		func(b *binder) { b.text(op.Run.Env); b.text(string(store.KeySend)); b.text(op.Run.ID) })
}

func (s *Store) save(op store.SaveSteps, res *store.Result) error {
	h := s.heads[op.RunID]
	if h.nonce == "" && op.Nonce != "" {
		h.nonce, res.Bound = op.Nonce, true
		h.version++
		err := exec(s.writer, sqlBindNonce,
			func(b *binder) { b.text(op.Nonce); b.int(h.version); b.int(h.seq) })
		if err != nil {
			return err
		}
	}
	for _, start := range op.Starts {
		r, err := s.start(h, start, op.CallID)
		if err != nil {
			return err
		}
		res.Starts = append(res.Starts, r)
	}
	for _, retry := range op.Retries {
		a := store.Attempt{StepID: retry.StepID, Attempt: retry.Attempt, Error: retry.Error, StartedAt: retry.StartedAt, EndedAt: retry.EndedAt, RetryAt: retry.RetryAt}
		due, err := s.putRetry(h, a)
		if err != nil {
			return err
		}
		res.Retries = append(res.Retries, due)
	}
	for _, step := range op.Steps {
		r, err := s.append(h, step, op.StepsMax, op.BytesMax)
		if err != nil {
			return err
		}
		res.Steps = append(res.Steps, r)
	}
	res.Version, res.History = h.version, h.history
	return nil
}

// append adds an entry, unless the step has one already or a limit (0: none) refuses it.
func (s *Store) append(h *head, step workflow.Step, stepsMax, bytesMax int) (store.StepResult, error) {
	size := int64(len(step.Output) + len(step.Error))
	full := stepsMax > 0 && h.history.Entries >= int64(stepsMax)
	heavy := bytesMax > 0 && h.history.Bytes+size > int64(bytesMax) && step.Status == workflow.StepCompleted
	if full || heavy {
		return s.refuse(h, step, full)
	}
	err := exec(s.writer, sqlInsertStep, func(b *binder) {
		b.int(h.seq)
		b.int(h.history.Entries + 1)
		b.int(int64(h.restart))
		b.text(step.Name)
		b.int(int64(step.Number))
		b.text(step.Kind)
		b.text(step.Status)
		b.blob(step.Output)
		b.blob(step.Error)
		b.int(int64(step.Attempts))
		b.time(step.StartedAt)
		b.time(step.EndedAt)
	})
	if err != nil {
		return store.StepResult{}, err
	}
	if s.writer.Changes() == 0 {
		standing, err := s.standing(h, step)
		if err == nil && standing == nil {
			err = fmt.Errorf("W1: the row that keeps step %q of run %d out is gone", step.Name, h.seq)
		}
		if err != nil {
			return store.StepResult{}, err
		}
		return *standing, nil
	}
	h.history.Entries++
	h.history.Bytes += size
	return store.StepResult{Entry: h.history.Entries}, s.settleAttempts(h, step.StepID)
}

// refuse answers a step that a limit keeps out; a step that is saved already stands all the same.
func (s *Store) refuse(h *head, step workflow.Step, full bool) (store.StepResult, error) {
	standing, err := s.standing(h, step)
	if err != nil {
		return store.StepResult{}, err
	}
	if standing != nil {
		return *standing, nil
	}
	if full {
		return store.StepResult{Refused: store.LimitSteps}, nil
	}
	return store.StepResult{Refused: store.LimitBytes}, nil
}

// standing finds the entry that a step has, and whether it differs from step; nil if it has none.
func (s *Store) standing(h *head, step workflow.Step) (*store.StepResult, error) {
	var found *store.StepResult
	err := query(s.writer, sqlSelectStanding,
		func(b *binder) { b.int(h.seq); b.int(int64(h.restart)); b.text(step.Name); b.int(int64(step.Number)) },
		func(r *scanner) error {
			entry, status, output, failure := r.int(), r.text(), r.blob(), r.blob()
			same := status == step.Status && bytes.Equal(output, step.Output) && (output == nil) == (step.Output == nil) && bytes.Equal(failure, step.Error)
			found = &store.StepResult{Entry: entry, Stands: !same}
			return nil
		})
	return found, err
}

func (s *Store) insertEvent(e store.Event) error {
	return exec(s.writer, sqlInsertEvent, func(b *binder) {
		b.text(e.Env)
		b.text(e.Name)
		b.text(e.ID)
		b.blob(e.Payload)
		b.time(e.CreatedAt)
		b.int(int64(e.Runs))
	})
}

func (s *Store) take(op store.TakeKey, res *store.Result) error {
	key, err := readKey(s.writer, op.Key, op.Now)
	if err != nil {
		return err
	}
	if key != nil {
		return s.keep(key, op.Key.Hash, res)
	}
	k := op.Key
	if err := s.putKey(k); err != nil {
		return err
	}
	res.Keys = append(res.Keys, store.KeyResult{Taken: true, Key: k})
	for _, then := range op.Then {
		if err := s.write(then, res); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) putKey(k store.Key) error {
	return exec(s.writer, sqlPutKey,
		func(b *binder) {
			b.text(k.Env)
			b.text(string(k.Kind))
			b.text(k.Scope)
			b.text(k.Key)
			b.text(k.Owner)
			b.text(k.Hash)
			b.bool(k.Differs)
			b.blob(k.Answer)
			b.time(k.ExpiresAt)
			b.text(string(k.OwnerStatus))
			b.time(k.OwnerEndedAt)
			b.int(k.LastsFor.Milliseconds())
			b.bool(k.UntilFailed)
		})
}

// keep leaves a taken key to its owner, and notes when it was asked for with another payload.
func (s *Store) keep(key *store.Key, hash string, res *store.Result) error {
	if key.Hash != hash && !key.Differs {
		key.Differs = true
		err := exec(s.writer, sqlMarkKeyDiffers,
			func(b *binder) { b.text(key.Env); b.text(string(key.Kind)); b.text(key.Scope); b.text(key.Key) })
		if err != nil {
			return err
		}
	}
	res.Keys = append(res.Keys, store.KeyResult{Key: *key})
	return nil
}

func (s *Store) putApp(a store.App) error {
	gone, err := json.Marshal(a.Gone)
	if err != nil {
		return fmt.Errorf("encoding what app %s lacks: %w", a.Name, err)
	}
	return exec(s.writer, sqlPutApp,
		func(b *binder) {
			b.text(a.Env)
			b.text(a.Name)
			b.text(a.URL)
			b.bool(a.Private)
			b.int(int64(a.Concurrency))
			b.blob(a.Manifest)
			b.text(a.Hash)
			b.time(a.SeenAt)
			b.text(string(gone))
			b.int(a.Version)
		})
}

func readKey(conn *sqlite.Conn, k store.Key, now time.Time) (*store.Key, error) {
	var found *store.Key
	err := query(conn, sqlSelectKey,
		func(b *binder) { b.text(k.Env); b.text(string(k.Kind)); b.text(k.Scope); b.text(k.Key); b.time(now) },
		func(r *scanner) error { found = new(scanKey(r)); return nil })
	return found, err
}
