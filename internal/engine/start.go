package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// The lives of keys (K3).
const (
	eventKeyLife   = 90 * 24 * time.Hour
	requestKeyLife = 24 * time.Hour
)

// Errors of starting runs and emitting events.
var (
	// ErrUnknownWorkflow: no known app has such a workflow.
	ErrUnknownWorkflow = errors.New("unknown workflow")
	// ErrAmbiguousWorkflow: several apps have a workflow of that name; the error lists them.
	ErrAmbiguousWorkflow = errors.New("several apps have this workflow")
	// ErrAmbiguousSend: two sends of a step changed places (K1).
	ErrAmbiguousSend = errors.New("two sends of this step changed places: give each an id or a key")
	// ErrIDUsed: the id that a client drew for a run is that of another, which it did not ask for.
	ErrIDUsed = errors.New("the id is that of another run")
	// ErrRequestDiffers: the Idempotency-Key was used for another request.
	ErrRequestDiffers = errors.New("the Idempotency-Key was used for another request")
)

// RequestKey is a client's Idempotency-Key: it is stored in the transaction of its effect, with the ids that were drawn (K6).
type RequestKey struct {
	Scope string // method and path
	Key   string
	Hash  string // of the body
}

// StartRequest asks for a run.
type StartRequest struct {
	Env      string
	Workflow string
	App      string // empty: the one app that has the workflow
	Payload  jsontext.Value
	ID       string        // drawn by the client before its first try, or empty
	Key      string        // the run key, or empty
	KeyFor   time.Duration // how long the key is kept; zero is for ever
	At       time.Time     // when its first call is due; zero: at once
	Delay    time.Duration // how long after now that is, in the place of At
	Send     *wire.Send    // where a step sends it
	Request  *RequestKey
}

// Started is a run that was asked for.
type Started struct {
	Run            store.RunRecord
	Created        bool
	PayloadDiffers bool
	Replayed       bool // by Idempotency-Key
	// Gone: the run has ended and is not kept any more. Of Run nothing is known but what its key tells: what it was called, and of which
	// workflow it was.
	Gone bool
}

// StartRun starts a run, or finds the one that the key, the id or the request started before (K4, K6). It is durable on return.
func (e *Engine) StartRun(ctx context.Context, r StartRequest) (Started, error) {
	if err := e.committer.refuses(); err != nil {
		return Started{}, err
	}
	t, err := e.oneWorkflow(r.Env, r.App, r.Workflow)
	if err != nil {
		return e.startedBefore(ctx, r, err)
	}
	run := workflow.Run{ID: or(r.ID, id.New(id.Run)), Env: r.Env, App: t.app.name, Workflow: t.workflow.Name, Key: r.Key}
	for range applyTries {
		sender, err := e.sender(ctx, r.Send)
		if err != nil {
			return Started{}, err
		}
		at := r.At
		if r.Delay > 0 {
			at = e.now().Add(r.Delay + time.Millisecond - 1).Truncate(time.Millisecond) // never early
		}
		started, err := e.start(ctx, birth{run: e.newRunAt(run, t.workflow, at), payload: r.Payload, hash: hashOf(r.Payload), request: r, sender: sender, waits: cancelWaits(t.workflow)})
		if !errors.Is(err, store.ErrStale) {
			return started, err
		}
		e.mistrust(r.Send)
	}
	return Started{}, ErrBusy
}

// startedBefore answers a request whose workflow is not here, or not of one app alone, any more: with what it started when it was, or that is
// why it can't start anything.
func (e *Engine) startedBefore(ctx context.Context, r StartRequest, reason error) (Started, error) {
	if _, err := e.sender(ctx, r.Send); err != nil {
		return Started{}, err
	}
	b := birth{run: workflow.Run{ID: r.ID, Env: r.Env, App: r.App, Workflow: r.Workflow, Key: r.Key}, hash: hashOf(r.Payload), request: r}
	if asked := r.Request; asked != nil {
		key, err := e.takenKey(ctx, requestKey(r.Env, asked, "", e.now()))
		switch {
		case err != nil:
			return Started{}, err
		case key != nil && key.Hash != asked.Hash:
			return Started{}, ErrRequestDiffers
		case key != nil && strings.HasPrefix(key.Owner, answeredPrefix):
			return e.standing(ctx, b, *key)
		case key != nil:
			b.run.ID = key.Owner // as it was drawn then
		}
	}
	if b.run.ID != "" {
		s, err := e.existing(ctx, b, b.run.ID, true)
		there := &s.Run.Run
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return Started{}, err
		case there.Workflow != r.Workflow || r.App != "" && there.App != r.App || there.ReplayOf != "":
			return Started{}, ErrIDUsed
		default:
			s.Replayed = r.Request != nil
			return s, nil
		}
	}
	if r.Key == "" || r.App == "" {
		return Started{}, reason
	}
	key, err := e.takenKey(ctx, store.Key{Env: r.Env, Kind: store.KeyRun, Scope: runScope(b.run), Key: r.Key})
	if err != nil || key == nil {
		return Started{}, cmp.Or(err, reason)
	}
	return e.standing(ctx, b, *key)
}

// takenKey finds a key that somebody has; nil if it is free.
func (e *Engine) takenKey(ctx context.Context, k store.Key) (*store.Key, error) {
	list, err := e.store.Keys(ctx, store.KeyQuery{Env: k.Env, Kind: k.Kind, Scope: k.Scope, Prefix: k.Key, Key: k.Key, Now: e.now()})
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Key == k.Key {
			return &list[i], nil
		}
	}
	return nil, nil
}

// birth is a run that is about to be stored, with what was asked.
type birth struct {
	run     workflow.Run
	payload jsontext.Value
	hash    string
	request StartRequest
	sender  *workflow.Run // where a step sends it
	waits   []workflow.Wait
	replay  *store.Replay
}

// newRun gives a run what its workflow and this server set.
func (e *Engine) newRun(run workflow.Run, w wire.Workflow) workflow.Run {
	return e.newRunAt(run, w, time.Time{})
}

// newRunAt is newRun for a run that is due later.
func (e *Engine) newRunAt(run workflow.Run, w wire.Workflow, at time.Time) workflow.Run {
	return workflow.Start(run, workflow.Settings{
		Timeout: time.Duration(w.TimeoutMs) * time.Millisecond,
		Lease:   max(or(time.Duration(w.LeaseMs)*time.Millisecond, e.options.Lease), LeaseMin),
		Closers: workflow.Handlers(w.OnFailure, w.OnCancel),
		At:      at,
	}, e.now())
}

// oneWorkflow finds the workflow that a name means.
func (e *Engine) oneWorkflow(env, appName, name string) (target, error) {
	list, err := e.apps.find(env, appName, name)
	if err != nil {
		return target{}, err
	}
	switch {
	case len(list) == 0 && appName != "":
		return target{}, fmt.Errorf("the app %q has no workflow %q: %w", appName, name, ErrUnknownWorkflow)
	case len(list) == 0:
		return target{}, fmt.Errorf("no app here has a workflow %q: %w", name, ErrUnknownWorkflow)
	case len(list) > 1:
		names := ""
		for _, t := range list {
			names += fmt.Sprintf(" %q", t.app.name)
		}
		return target{}, fmt.Errorf("%w %q: name the app:%s", ErrAmbiguousWorkflow, name, names)
	}
	return list[0], nil
}

// sender checks that a step may send, and gives its run; nil outside a step (K3: a send is fenced like a save).
func (e *Engine) sender(ctx context.Context, s *wire.Send) (*workflow.Run, error) {
	if s == nil {
		return nil, nil
	}
	l, verdict, err := e.admit(ctx, s.Fence)
	switch {
	case err != nil:
		return nil, err
	case verdict == workflow.Ended:
		return nil, ErrEnded
	case verdict == workflow.Undecided:
		return nil, ErrBusy
	case verdict != workflow.Accept:
		return nil, ErrSuperseded
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	l.heard = time.Now()
	run := l.run
	return &run, nil
}

// fenced makes a change that a step sends fail with store.ErrStale once its call is not the run's any more: the run's keys are free
// when it has ended, and what came then would be sent twice (K3). Like any first message it binds the call to its playing (C4).
func fenced(change store.Change, sender *workflow.Run, s *wire.Send) store.Change {
	if sender == nil {
		return change
	}
	return append(change, store.SaveSteps{RunID: sender.ID, CallID: s.Call, Nonce: s.Nonce})
}

// sending is a step that sends, and what it sends: a run of a workflow, or an event.
type sending struct {
	sender *workflow.Run
	send   *wire.Send
	kind   string // "run" or "event"
	name   string
}

// key is the derived key of a send (K1).
func (s sending) key(hash, owner string) store.Key {
	text, _ := json.Marshal([]any{s.sender.Restart, s.send.Step.Name, s.send.Step.Number, s.kind, s.name, s.send.Place}) // it can't fail
	return store.Key{Env: s.sender.Env, Kind: store.KeySend, Scope: s.sender.ID, Key: string(text), Owner: owner, Hash: hash}
}

// hashOf is the hash of a value that does not depend on how its JSON is written (RFC 8785).
func hashOf(value jsontext.Value) string {
	canonical := jsontext.Value(append([]byte(nil), value...))
	if len(canonical) > 0 {
		// A value that has no canonical form (a number too big, a lone surrogate) is hashed as it stands.
		if err := canonical.Canonicalize(); err != nil {
			canonical = value
		}
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:16])
}

// start stores a new run under the keys that it comes with, its first call begun if there is room, and plays it.
func (e *Engine) start(ctx context.Context, b birth) (Started, error) {
	ops, err := e.keyed(ctx, b)
	if err != nil {
		return Started{}, err
	}
	begun, q := b.run, (*queue)(nil)
	if b.replay == nil || b.replay.Entries == 0 { // a first call reads no steps
		begun, q = e.tryBegin(b.run)
	}
	change := store.Change{store.InsertRun{Run: begun, Payload: b.payload, Waits: b.waits, Replay: b.replay}}
	res, err := e.committer.commit(fenced(ops(change), b.sender, b.request.Send))
	if res.Bound {
		e.mistrust(b.request.Send)
	}
	if err == nil && created(res) {
		e.launch(begun, q, &fresh{payload: b.payload})
		return Started{Run: store.RunRecord{Run: begun, Payload: b.payload}, Created: true}, nil
	}
	e.giveBack(q)
	if errors.Is(err, store.ErrExists) {
		s, err := e.existing(ctx, b, b.run.ID, true)
		if there := &s.Run.Run; err == nil && (there.App != b.run.App || there.Workflow != b.run.Workflow || there.ReplayOf != b.run.ReplayOf) {
			return Started{}, ErrIDUsed
		}
		return s, err
	}
	if err != nil {
		return Started{}, err
	}
	key := res.Keys[len(res.Keys)-1].Key
	s, err := e.standing(ctx, b, key)
	if err == nil && key.Kind == store.KeyRun && !s.Created {
		err = e.answeredBy(b.request.Request, b, s.Run.ID)
	}
	return s, err
}

// answeredPrefix is before the owner of a request's key where the request has made nothing: the run that it was answered with (K4, K6).
const answeredPrefix = "="

// answeredBy keeps with a request's key which run the request was answered with: once the time of the run's own key is over, the same request
// again would start another (K6). It fails with store.ErrStale where another try of the request came first.
func (e *Engine) answeredBy(r *RequestKey, b birth, runID string) error {
	if r == nil {
		return nil
	}
	_, err := e.committer.commit(store.Change{store.PassKey{Key: requestKey(b.run.Env, r, answeredPrefix+runID, e.now()), From: b.run.ID}})
	return err
}

// keyed wraps the write of a new run in the keys that it comes with.
func (e *Engine) keyed(ctx context.Context, b birth) (wrap func(store.Change) store.Change, err error) {
	now, r := e.now(), b.request
	var keys []store.Key // from the inside out
	switch {
	case r.Key != "":
		key := store.Key{Env: r.Env, Kind: store.KeyRun, Scope: runScope(b.run), Key: r.Key, Owner: b.run.ID, Hash: b.hash}
		if r.KeyFor > 0 {
			key.ExpiresAt = now.Add(r.KeyFor)
		}
		keys = append(keys, key)
	case b.sender != nil:
		key := sending{b.sender, r.Send, "run", runScope(b.run)}.key(b.hash, b.run.ID)
		if err := e.checkPlaces(ctx, key); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	if r.Request != nil {
		keys = append(keys, requestKey(r.Env, r.Request, b.run.ID, now))
	}
	return func(change store.Change) store.Change {
		for _, key := range keys {
			change = store.Change{store.TakeKey{Key: key, Now: now, Then: change}}
		}
		return change
	}, nil
}

// runScope is the scope of run keys: app and workflow (K3).
func runScope(run workflow.Run) string { return run.App + "\x00" + run.Workflow }

func requestKey(env string, r *RequestKey, owner string, now time.Time) store.Key {
	return store.Key{Env: env, Kind: store.KeyRequest, Scope: r.Scope, Key: r.Key, Owner: owner, Hash: r.Hash, ExpiresAt: now.Add(requestKeyLife)}
}

// created tells whether every key of a committed change was free.
func created(res store.Result) bool {
	for _, k := range res.Keys {
		if !k.Taken {
			return false
		}
	}
	return true
}

// standing answers with what a taken key stands for.
func (e *Engine) standing(ctx context.Context, b birth, key store.Key) (Started, error) {
	if key.Kind != store.KeyRequest {
		s, err := e.existing(ctx, b, key.Owner, key.Owner == b.run.ID)
		if errors.Is(err, store.ErrNotFound) {
			s, err = gone(&b, key.Owner), nil
		}
		s.PayloadDiffers = key.Hash != b.hash
		return s, err
	}
	if key.Hash != b.request.Request.Hash {
		return Started{}, ErrRequestDiffers
	}
	// The same request again: its ids were drawn then. With them it finds what it made.
	request := b.request.Request
	b.request.Request = nil
	if answered, is := strings.CutPrefix(key.Owner, answeredPrefix); is {
		s, err := e.existing(ctx, b, answered, false)
		if errors.Is(err, store.ErrNotFound) {
			s, err = gone(&b, answered), nil
		}
		s.Replayed = err == nil
		return s, err
	}
	b.run.ID, b.run.Root = key.Owner, key.Owner
	s, err := e.existing(ctx, b, b.run.ID, true)
	if errors.Is(err, store.ErrNotFound) {
		if s, err = e.start(ctx, b); err == nil && !s.Created {
			err = e.answeredBy(request, b, s.Run.ID)
		}
	}
	s.Replayed = err == nil
	return s, err
}

func (e *Engine) existing(ctx context.Context, b birth, runID string, created bool) (Started, error) {
	record, err := e.store.Record(ctx, b.run.Env, runID)
	if err != nil {
		return Started{}, err
	}
	return Started{Run: record, Created: created, PayloadDiffers: hashOf(record.Payload) != b.hash}, nil
}

// gone answers a start whose key outlives its run (K3).
func gone(b *birth, owner string) Started {
	run := workflow.Run{ID: owner, Env: b.run.Env, App: b.run.App, Workflow: b.run.Workflow, Key: b.run.Key}
	return Started{Run: store.RunRecord{Run: run}, Created: owner == b.run.ID, Gone: true}
}

// checkPlaces refuses a send whose payload was sent from another place of the step before (K1): the two may have changed places.
// A lone send that only differs is not refused: its first stands.
func (e *Engine) checkPlaces(ctx context.Context, key store.Key) error {
	// A step may have sent ten thousand times: of the other places only those are read whose payloads have differed, where this one is new.
	q := store.KeyQuery{Env: key.Env, Kind: store.KeySend, Scope: key.Scope, Prefix: withoutPlace(key.Key), Key: key.Key, Now: e.now()}
	keys, err := e.store.Keys(ctx, q)
	if err != nil {
		return err
	}
	if own := slices.IndexFunc(keys, func(k store.Key) bool { return k.Key == key.Key }); own >= 0 {
		if keys[own].Hash == key.Hash {
			return nil
		}
		q.Key = ""
		if keys, err = e.store.Keys(ctx, q); err != nil {
			return err
		}
	}
	for _, k := range keys {
		if k.Key != key.Key && k.Hash == key.Hash {
			return ErrAmbiguousSend
		}
	}
	return nil
}

// withoutPlace is what derived keys have in common that differ only in their place: all but the number at the end.
func withoutPlace(key string) string { return key[:strings.LastIndexByte(key, ',')+1] }

// tryBegin begins a new run's first call in the commit that stores it, if its app has room (one commit fewer per run).
func (e *Engine) tryBegin(run workflow.Run) (workflow.Run, *queue) {
	if run.NextAt.After(e.now()) {
		return run, nil
	}
	e.mu.Lock()
	q, ok := e.reserve(appID{run.Env, run.App})
	e.mu.Unlock()
	if !ok {
		return run, nil
	}
	d, err := workflow.Apply(run, e.newCall(&run), e.now())
	if err != nil {
		e.giveBack(q)
		return run, nil
	}
	return d.Run, q
}

// giveBack frees a slot that was reserved for nothing.
func (e *Engine) giveBack(q *queue) {
	if q == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	q.inFlight--
	q.wake()
}

// launch plays a stored run's first call, or puts the run in line.
func (e *Engine) launch(run workflow.Run, q *queue, f *fresh) {
	e.logStarted(&run)
	e.timers.notice(run.TimerAt())
	e.mu.Lock()
	defer e.mu.Unlock()
	if q == nil {
		e.enqueue(run)
		return
	}
	q.inFlight--
	l := e.track(run, store.History{})
	l.connected = true
	l.begun = time.Now().Add(-e.now().Sub(run.Call.BegunAt)) // C3 counts from the begin, which was before the commit
	if e.stopping {
		return // the call keeps its lease; it is asked for after the restart
	}
	e.spawn(func() { e.play(l, f) })
}

// Cancel asks a run to end (Z1). It is durable on return; asked again, it changes nothing. With force the run has its final status on
// return: what is in flight can save nothing more, and nothing is undone. ErrNotFound.
func (e *Engine) Cancel(ctx context.Context, env, runID string, force bool) (store.RunRecord, error) {
	if _, err := e.store.Record(ctx, env, runID); err != nil {
		return store.RunRecord{}, err
	}
	_, err := e.apply(ctx, runID, func(_ workflow.Run, h store.History) (workflow.Input, error) {
		return workflow.Cancel{Entries: h.Entries, Grace: e.options.Grace, Force: force}, nil
	})
	if err != nil {
		return store.RunRecord{}, err
	}
	return e.store.Record(ctx, env, runID)
}

func itoa(n int) string { return strconv.Itoa(n) }
