// Package memory is the model of a store: maps and loops, meant to be obviously right. Tests compare the real stores with it,
// and `nelkap dev --memory` runs on it. It keeps nothing when the process ends.
//
// Every change works on a copy of what it touches only in the simplest sense: its expectations are checked in full before its
// first write, so that nothing ever has to be undone.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// Store is a store.Store in memory.
type Store struct {
	mu     sync.Mutex // guards everything below
	runs   map[string]*run
	events []store.Event     // in the order of their positions
	stored int64             // how many events were ever stored
	byName map[eventID]int64 // the positions of events
	keys   map[keyID]*store.Key
	apps   map[[2]string]store.App

	opened    int64 // how many waits were ever opened
	callbacks map[string]*store.Callback
	cursors   map[string]cursor
	nodes     map[string]store.Node
	schedules map[[2]string]store.Schedule // by environment and id
	later     map[eventID]store.LaterEvent

	deliveries []store.Delivery // in the order of their positions
	delivered  int64            // how many deliveries were ever stored
	logged     int64            // how many lines of logs were ever stored
}

type run struct {
	store.RunRecord
	entries  []store.Entry
	bytes    int64
	attempts []store.Attempt
	waits    []store.Wait
	used     map[int64]bool // events, by position
	after    int64          // the last event that was there when it was inserted
	chapters []chapter
	logs     []logLine
}

type eventID struct{ env, name, id string }

type keyID struct {
	env   string
	kind  store.KeyKind
	scope string
	key   string
}

// New makes an empty store.
func New() *Store {
	return &Store{
		runs: map[string]*run{}, byName: map[eventID]int64{}, keys: map[keyID]*store.Key{}, apps: map[[2]string]store.App{},
		callbacks: map[string]*store.Callback{}, cursors: map[string]cursor{}, nodes: map[string]store.Node{}, schedules: map[[2]string]store.Schedule{}, later: map[eventID]store.LaterEvent{},
	}
}

// Close does nothing.
func (s *Store) Close() error { return nil }

// Commit implements store.Store.
func (s *Store) Commit(_ context.Context, changes []store.Change) ([]store.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	results := make([]store.Result, len(changes))
	for i, change := range changes {
		if err := s.check(change); err != nil {
			results[i].Err = err
			continue
		}
		s.write(change, &results[i])
	}
	return results, nil
}

// check tells whether everything that change expects is so.
func (s *Store) check(change []store.Op) error {
	for _, op := range change {
		var err error
		switch op := op.(type) {
		case store.InsertRun:
			if s.runs[op.Run.ID] != nil {
				err = fmt.Errorf("run %s: %w", op.Run.ID, store.ErrExists)
			} else {
				err = s.checkReplay(op.Replay)
			}
		case store.InsertEvent:
			if s.event(op.Event.Env, op.Event.Name, op.Event.ID) != nil {
				err = fmt.Errorf("event %s: %w", op.Event.ID, store.ErrExists)
			}
		case store.UpdateRun:
			err = s.checkUpdate(op)
		case store.SaveSteps:
			err = s.checkSave(op)
		case store.TakeKey:
			if s.alive(op.Key, op.Now) == nil {
				err = s.check(op.Then)
			}
		case store.UseEvent, store.InsertCallback, store.EndCallback, store.ExpireCallback, store.PassKey, store.LookedBack, store.Advance:
			err = s.checkWait(op)
		case store.PutSchedule, store.DropLater, store.PutApp:
			err = s.checkDue(op)
		case store.InsertDelivery:
			if s.delivery(op.Delivery.ID) != nil {
				err = fmt.Errorf("delivery %s: %w", op.Delivery.ID, store.ErrExists)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) checkReplay(replay *store.Replay) error {
	switch original := s.original(replay); {
	case replay == nil:
		return nil
	case original == nil:
		return fmt.Errorf("run %s: %w", replay.RunID, store.ErrNotFound)
	case original.Restart != replay.Restart:
		return fmt.Errorf("run %s plays chapter %d: %w", original.ID, original.Restart, store.ErrStale)
	}
	for _, passed := range replay.Callbacks {
		if c := s.callbacks[passed.TokenHash]; c == nil || c.RunID != passed.Owner {
			return fmt.Errorf("a callback is not run %s's: %w", passed.Owner, store.ErrStale)
		}
	}
	return nil
}

func (s *Store) checkUpdate(op store.UpdateRun) error {
	r := s.runs[op.Run.ID]
	if r == nil {
		return fmt.Errorf("run %s: %w", op.Run.ID, store.ErrNotFound)
	}
	if r.Version != op.Run.Version-1 {
		return fmt.Errorf("run %s is at version %d, not %d: %w", r.ID, r.Version, op.Run.Version-1, store.ErrStale)
	}
	if n, begins := op.ExpectsEntries(); begins && n != int64(len(r.entries)) {
		return fmt.Errorf("run %s has %d entries, not %d: %w", r.ID, len(r.entries), n, store.ErrStale)
	}
	return nil
}

func (s *Store) checkSave(op store.SaveSteps) error {
	r := s.runs[op.RunID]
	if r == nil {
		return fmt.Errorf("run %s: %w", op.RunID, store.ErrNotFound)
	}
	if r.Call == nil || r.Call.ID != op.CallID || (r.Call.Nonce != "" && r.Call.Nonce != op.Nonce) {
		return fmt.Errorf("run %s: call %s is not current: %w", r.ID, op.CallID, store.ErrStale)
	}
	return nil
}

func (s *Store) write(change []store.Op, res *store.Result) {
	for _, op := range change {
		switch op := op.(type) {
		case store.InsertRun:
			s.insert(op)
		case store.InsertEvent:
			s.stored++
			op.Event.Position = s.stored
			s.byName[eventID{op.Event.Env, op.Event.Name, op.Event.ID}] = s.stored
			s.events = append(s.events, op.Event)
		case store.UpdateRun:
			s.update(op, res)
		case store.SaveSteps:
			s.save(op, res)
		case store.TakeKey:
			s.take(op, res)
		case store.PutApp:
			s.apps[[2]string{op.App.Env, op.App.Name}] = op.App
		case store.DropKeys:
			res.Dropped += s.dropKeys(op)
		case store.PutSchedule, store.DropSchedule, store.PutLater, store.DropLater:
			s.writeDue(op)
		case store.InsertDelivery:
			s.insertDelivery(op.Delivery)
		case store.DropDeliveries:
			res.Dropped += s.dropDeliveries(op)
		case store.AddLogs:
			s.addLogs(op)
		case store.DropEvents:
			res.Dropped += s.dropEvents(op)
		case store.DropRuns:
			res.Dropped += s.dropRuns(op)
		default:
			s.writeWait(op)
		}
	}
}

func (s *Store) insert(op store.InsertRun) {
	s.runs[op.Run.ID] = &run{RunRecord: store.RunRecord{Run: op.Run, Payload: op.Payload}, after: s.stored, used: map[int64]bool{}}
	r := s.runs[op.Run.ID]
	if original := s.original(op.Replay); original != nil {
		for _, e := range original.entries[:min(int(op.Replay.Entries), len(original.entries))] {
			r.append(e.Step, 0, 0)
		}
		for _, position := range op.Replay.Used {
			r.used[position] = true
		}
		for _, passed := range op.Replay.Callbacks {
			if owner := s.runs[passed.Owner]; owner != nil && owner.Status.Final() {
				s.callbacks[passed.TokenHash].RunID = r.ID
			}
		}
		if op.Replay.Events {
			r.after = original.after
		}
	}
	for _, w := range op.Waits {
		s.openWait(r, store.OpenWait{Wait: w})
	}
}

// original is the run that another replays; nil where it replays none.
func (s *Store) original(replay *store.Replay) *run {
	if replay == nil {
		return nil
	}
	return s.runs[replay.RunID]
}

func (s *Store) update(op store.UpdateRun, res *store.Result) {
	r := s.runs[op.Run.ID]
	if op.Chapter != nil {
		s.closeChapter(r, *op.Chapter, op.Run.Restart, op.Run.NextAt)
	}
	r.Run = op.Run
	if op.Output != nil {
		r.Output = op.Output
	}
	if op.Error != nil {
		r.Error = op.Error
	}
	if op.Run.Status.Final() {
		s.freeSends(r.ID)
	}
	if op.CloseWaits {
		s.leaveWaits(r, op.Chapter != nil)
	}
	for i := range r.attempts {
		if a := &r.attempts[i]; op.CutCall != "" && a.CallID == op.CutCall && a.EndedAt.IsZero() {
			a.EndedAt, a.Error = op.Run.NextAt, store.CutOff
			if op.Run.Status.Final() {
				a.EndedAt = op.Run.EndedAt
			}
		}
	}
	for _, step := range op.Append {
		res.Steps = append(res.Steps, r.append(step, 0, 0))
		s.closeWait(r, step.StepID)
	}
	for _, w := range op.Open {
		res.Opened = append(res.Opened, s.openWait(r, w))
	}
	if op.Trees != nil {
		r.Trees = op.Trees
	}
	if op.Run.Status.Final() {
		s.closeWaits(r)
	}
	res.Version, res.History = r.Version, r.history()
}

func (s *Store) save(op store.SaveSteps, res *store.Result) {
	r := s.runs[op.RunID]
	if r.Call.Nonce == "" && op.Nonce != "" {
		call := *r.Call
		call.Nonce = op.Nonce
		r.Call = &call
		r.Version++
		res.Bound = true
	}
	for _, start := range op.Starts {
		res.Starts = append(res.Starts, r.start(start, op.CallID))
	}
	for _, retry := range op.Retries {
		a := store.Attempt{StepID: retry.StepID, Attempt: retry.Attempt, Error: retry.Error, StartedAt: retry.StartedAt, EndedAt: retry.EndedAt, RetryAt: retry.RetryAt}
		res.Retries = append(res.Retries, r.putRetry(a))
	}
	for _, step := range op.Steps {
		res.Steps = append(res.Steps, r.append(step, op.StepsMax, op.BytesMax))
	}
	res.Version, res.History = r.Version, r.history()
}

// start records that a body is about to run, unless its step has an entry or gets one.
func (r *run) start(s store.Start, callID string) store.StartResult {
	if e := r.find(s.StepID); e != nil {
		return store.StartResult{Entry: e.Entry}
	}
	var res store.StartResult
	late := false
	for _, a := range r.attempts {
		if a.StepID != s.StepID {
			continue
		}
		late = late || (a.CallID == "" && a.Attempt >= s.Attempt)
		if a.CallID == callID && a.Attempt == s.Attempt {
			res.Again = res.Again || a.Again // the same start once more
			continue
		}
		res.Again = true
		if a.CallID != "" && a.EndedAt.After(res.CutAt) {
			res.CutAt = a.EndedAt
		}
	}
	if s.Interrupted != nil && res.Again {
		return store.StartResult{Entry: r.append(*s.Interrupted, 0, 0).Entry}
	}
	if late {
		return res
	}
	r.putAttempt(store.Attempt{StepID: s.StepID, Attempt: s.Attempt, CallID: callID, StartedAt: s.StartedAt, Again: res.Again})
	return res
}

// append adds an entry, unless the step has one already or a limit (0: none) refuses it.
func (r *run) append(step workflow.Step, stepsMax, bytesMax int) store.StepResult {
	if e := r.find(step.StepID); e != nil {
		same := e.Status == step.Status && bytes.Equal(e.Output, step.Output) && (e.Output == nil) == (step.Output == nil) && bytes.Equal(e.Error, step.Error)
		return store.StepResult{Entry: e.Entry, Stands: !same}
	}
	size := int64(len(step.Output) + len(step.Error))
	if stepsMax > 0 && len(r.entries) >= stepsMax {
		return store.StepResult{Refused: store.LimitSteps}
	}
	if bytesMax > 0 && r.bytes+size > int64(bytesMax) && step.Status == workflow.StepCompleted {
		return store.StepResult{Refused: store.LimitBytes}
	}
	e := store.Entry{Entry: int64(len(r.entries) + 1), Step: step}
	r.entries = append(r.entries, e)
	r.bytes += size
	r.attempts = slices.DeleteFunc(r.attempts, func(a store.Attempt) bool {
		return a.StepID == step.StepID && a.EndedAt.IsZero()
	})
	for i := range r.attempts {
		if r.attempts[i].StepID == step.StepID {
			r.attempts[i].RetryAt = time.Time{}
		}
	}
	return store.StepResult{Entry: e.Entry}
}

// putRetry records a throw, unless the step is saved or this very throw recorded, and says when the step is due again because of it.
// Of a step only its last throw is due.
func (r *run) putRetry(a store.Attempt) time.Time {
	if r.find(a.StepID) != nil {
		return time.Time{}
	}
	for i := range r.attempts {
		old := &r.attempts[i]
		if old.StepID != a.StepID {
			continue
		}
		if old.Attempt == a.Attempt && old.CallID == "" && !a.EndedAt.IsZero() && old.StartedAt.Equal(a.StartedAt) && old.EndedAt.Equal(a.EndedAt) {
			return old.RetryAt
		}
	}
	for i := range r.attempts {
		if r.attempts[i].StepID == a.StepID {
			r.attempts[i].RetryAt = time.Time{}
		}
	}
	r.putAttempt(a)
	return a.RetryAt
}

// putAttempt replaces what is recorded of that attempt.
func (r *run) putAttempt(a store.Attempt) {
	for i := range r.attempts {
		if old := &r.attempts[i]; old.StepID == a.StepID && old.Attempt == a.Attempt {
			*old = a
			return
		}
	}
	r.attempts = append(r.attempts, a)
}

func (r *run) find(id workflow.StepID) *store.Entry {
	for i := range r.entries {
		if r.entries[i].StepID == id {
			return &r.entries[i]
		}
	}
	return nil
}

func (r *run) history() store.History {
	return store.History{Entries: int64(len(r.entries)), Bytes: r.bytes}
}

func (s *Store) take(op store.TakeKey, res *store.Result) {
	if key := s.alive(op.Key, op.Now); key != nil {
		key.Differs = key.Differs || key.Hash != op.Key.Hash
		res.Keys = append(res.Keys, store.KeyResult{Key: *key})
		return
	}
	key := op.Key
	s.keys[id(key)] = &key
	res.Keys = append(res.Keys, store.KeyResult{Taken: true, Key: key})
	s.write(op.Then, res)
}

func (s *Store) alive(k store.Key, now time.Time) *store.Key {
	key := s.keys[id(k)]
	if key == nil || expired(key, now) {
		return nil
	}
	return key
}

func expired(k *store.Key, now time.Time) bool {
	return !k.ExpiresAt.IsZero() && !k.ExpiresAt.After(now)
}

func id(k store.Key) keyID { return keyID{k.Env, k.Kind, k.Scope, k.Key} }

func (s *Store) dropKeys(op store.DropKeys) (dropped int) {
	for id, key := range s.keys {
		if dropped < op.Limit && expired(key, op.Now) {
			delete(s.keys, id)
			dropped++
		}
	}
	return dropped
}

// sorted gives the runs that keep accepts, in the order that compare says.
func (s *Store) sorted(keep func(*run) bool, compare func(a, b *run) int) []*run {
	var list []*run
	for _, r := range s.runs {
		if keep(r) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, compare)
	return list
}

func byID(a, b *run) int { return cmp.Compare(a.ID, b.ID) }
