package engine

import (
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// NewEvent is an event to be stored.
type NewEvent struct {
	Name    string
	Payload jsontext.Value
	// ID is the client's: one that it drew (evt_…), or any other text, which is then unique until 90 days after it is emitted in its
	// environment and under its event's name (K3). Empty: drawn here.
	ID   string
	Send *wire.Send
	At   time.Time // when it is emitted; zero or past: at once
}

// Emitted is a stored event, and whether this emit stored it.
type Emitted struct {
	Event          store.Event
	Created        bool
	PayloadDiffers bool
}

// launched is a run that an emit starts, with the slot that its first call has, if it has one.
type launched struct {
	run     workflow.Run
	queue   *queue
	payload jsontext.Value
	event   *wire.Event
}

// Emit stores events, all or none, each with the runs that it starts, in one transaction (E1). An event that is there already is
// answered as it is and starts nothing. It is durable on return.
func (e *Engine) Emit(ctx context.Context, env string, events []NewEvent, request *RequestKey) (list []Emitted, replayed bool, err error) {
	if err := e.committer.refuses(); err != nil {
		return nil, false, err
	}
	for i := range events {
		if events[i].ID == "" {
			events[i].ID = id.New(id.Event)
		}
	}
	for range applyTries {
		list, replayed, err = e.emitOnce(ctx, env, events, request)
		switch {
		case errors.Is(err, store.ErrStale): // a sender's call: the next try says what became of it
			e.mistrust(sends(events)...)
		case errors.Is(err, errEmitAgain):
		default:
			return list, replayed, err
		}
	}
	return nil, false, ErrBusy
}

// errEmitAgain: some of the events were stored before; the next try leaves them out.
var errEmitAgain = errors.New("some events are there already")

func (e *Engine) emitOnce(ctx context.Context, env string, events []NewEvent, request *RequestKey) ([]Emitted, bool, error) {
	out := make([]Emitted, len(events))
	var change store.Change
	var runs [][]launched
	var keyed []int // the events whose change has a key, in the order of the keys
	for i, ev := range events {
		standing, ops, started, err := e.plan(ctx, env, ev)
		runs = append(runs, started)
		if err != nil {
			e.giveBackAll(runs)
			return nil, false, err
		}
		if standing != nil {
			out[i] = *standing
			continue
		}
		out[i] = Emitted{Created: true, Event: eventOf(ops)}
		if _, ok := ops[0].(store.TakeKey); ok {
			keyed = append(keyed, i)
		}
		change = append(change, ops...)
	}
	if request != nil {
		now := e.now()
		change = store.Change{store.TakeKey{Key: requestKey(env, request, idsOf(events), now), Now: now, Then: change}}
	}
	if len(change) == 0 {
		return out, false, nil
	}
	res, err := e.committer.commit(change)
	if res.Bound {
		e.mistrust(sends(events)...)
	}
	e.matching.wake() // runs may wait for these events
	if slices.ContainsFunc(events, func(ev NewEvent) bool { return !ev.At.IsZero() }) {
		e.dueHint.wake()
	}
	switch {
	case errors.Is(err, store.ErrExists):
		e.giveBackAll(runs)
		return nil, false, errEmitAgain
	case err != nil:
		e.giveBackAll(runs)
		return nil, false, err
	case request != nil && !res.Keys[0].Taken:
		e.giveBackAll(runs)
		return e.emitReplayed(ctx, env, events, request, res.Keys[0].Key)
	}
	if request != nil {
		res.Keys = res.Keys[1:]
	}
	for k, i := range keyed {
		if !res.Keys[k].Taken {
			out[i] = e.standingEvent(ctx, env, events[i], res.Keys[k].Key)
			e.giveBackAll(runs[i : i+1])
			runs[i] = nil
		}
	}
	for _, started := range runs {
		e.launchAll(started)
	}
	return out, false, nil
}

func sends(events []NewEvent) (list []*wire.Send) {
	for _, ev := range events {
		list = append(list, ev.Send)
	}
	return list
}

// mistrust has the calls of senders read from the store before anything more is decided on them: what is known of them here is old.
func (e *Engine) mistrust(senders ...*wire.Send) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range senders {
		if s != nil && e.live[s.Call] != nil {
			e.live[s.Call].outdated()
		}
	}
}

// plan makes the writes of one event, or finds the event that is there already.
func (e *Engine) plan(ctx context.Context, env string, ev NewEvent) (*Emitted, []store.Op, []launched, error) {
	hash := hashOf(ev.Payload)
	sender, err := e.sender(ctx, ev.Send)
	if err != nil {
		return nil, nil, nil, err
	}
	if stored, err := e.store.Event(ctx, env, ev.Name, ev.ID); err == nil {
		// A drawn id that is there is this very event: its first try got through (K6).
		return &Emitted{Event: stored, Created: drawn(ev.ID), PayloadDiffers: hashOf(stored.Payload) != hash}, nil, nil, nil
	} else if !errors.Is(err, store.ErrNotFound) {
		return nil, nil, nil, err
	}
	now := e.now()
	emitted := now
	var ops []store.Op
	var runs []launched
	if ev.At.After(now) {
		emitted = ev.At
		ops = []store.Op{store.PutLater{Event: store.LaterEvent{Env: env, ID: ev.ID, Name: ev.Name, Payload: ev.Payload, DueAt: ev.At}}}
	} else {
		ops, runs = e.eventOps(env, ev)
	}
	switch {
	case !drawn(ev.ID):
		key := store.Key{Env: env, Kind: store.KeyEvent, Scope: ev.Name, Key: ev.ID, Owner: ev.ID, Hash: hash, ExpiresAt: emitted.Add(eventKeyLife)}
		ops = []store.Op{store.TakeKey{Key: key, Now: now, Then: ops}}
	case sender != nil:
		key := sending{sender, ev.Send, "event", ev.Name}.key(hash, ev.ID)
		if err := e.checkPlaces(ctx, key); err != nil {
			e.giveBackAll([][]launched{runs})
			return nil, nil, nil, err
		}
		ops = []store.Op{store.TakeKey{Key: key, Now: now, Then: ops}}
	}
	return nil, fenced(ops, sender, ev.Send), runs, nil
}

// eventOps are the writes of a new event and of the runs that it starts.
func (e *Engine) eventOps(env string, ev NewEvent) ([]store.Op, []launched) {
	return e.eventOpsBut(env, ev, map[starts]bool{})
}

// starts is a workflow that something starts.
type starts struct {
	app      appID
	workflow string
}

// eventOpsBut is eventOps without the workflows that are started already. It adds those that it starts.
func (e *Engine) eventOpsBut(env string, ev NewEvent, started map[starts]bool) ([]store.Op, []launched) {
	now := e.now()
	stored := store.Event{Env: env, ID: ev.ID, Name: ev.Name, Payload: ev.Payload, CreatedAt: now}
	wired := &wire.Event{ID: ev.ID, Event: ev.Name, Payload: ev.Payload, CreatedAt: wire.At(now)}
	var runs []launched
	var ops []store.Op
	seen := candidateOf(&stored)
	for _, t := range e.apps.startedBy(env, ev.Name) {
		what := starts{t.app, t.workflow.Name}
		if started[what] || !e.passes(t, seen) {
			continue
		}
		started[what] = true
		run := workflow.Run{ID: id.New(id.Run), Env: env, App: t.app.name, Workflow: t.workflow.Name, Event: ev.Name, EventID: ev.ID}
		begun, q := e.tryBegin(e.newRun(run, t.workflow))
		runs = append(runs, launched{run: begun, queue: q, payload: ev.Payload, event: wired})
		ops = append(ops, store.InsertRun{Run: begun, Payload: ev.Payload, Waits: cancelWaits(t.workflow)})
	}
	stored.Runs = len(runs)
	return append([]store.Op{store.InsertEvent{Event: stored}}, ops...), runs
}

// passes tells whether one of a workflow's triggers takes an event. A filter's error is no match (E3).
func (e *Engine) passes(t target, ev *candidate) bool {
	for _, text := range t.filters {
		if text == "" {
			return true
		}
		ok, err := e.filters.match(text, ev)
		if err != nil {
			e.log.Info("a trigger's filter failed on an event: no match", "app", t.app.name, "workflow", t.workflow.Name, "event", ev.Name, "eventId", ev.ID, "error", err)
		}
		if ok {
			return true
		}
	}
	return false
}

func eventOf(ops []store.Op) store.Event {
	if key, ok := ops[0].(store.TakeKey); ok {
		return eventOf(key.Then)
	}
	if later, ok := ops[0].(store.PutLater); ok {
		return store.Event{Env: later.Event.Env, ID: later.Event.ID, Name: later.Event.Name, Payload: later.Event.Payload, CreatedAt: later.Event.DueAt}
	}
	return ops[0].(store.InsertEvent).Event
}

func (e *Engine) giveBackAll(runs [][]launched) {
	for _, started := range runs {
		for _, l := range started {
			e.giveBack(l.queue)
		}
	}
}

// standingEvent answers an event whose key is taken with the event that has it. Past the retention of events the key still knows that there was
// one. So it does where the event can't be read: those beside it are stored, and who was told of a failure would emit them again.
func (e *Engine) standingEvent(ctx context.Context, env string, ev NewEvent, key store.Key) Emitted {
	stored, err := e.store.Event(ctx, env, ev.Name, key.Owner)
	if err != nil {
		stored = store.Event{Env: env, ID: key.Owner, Name: ev.Name, Payload: ev.Payload}
	}
	return Emitted{Event: stored, PayloadDiffers: key.Hash != hashOf(ev.Payload)}
}

// emitReplayed answers a request that came before: with the ids that were drawn then, it finds what it made. It makes nothing: what is not
// there is not due yet, or past the retention of events, which may end before the key does.
func (e *Engine) emitReplayed(ctx context.Context, env string, events []NewEvent, request *RequestKey, key store.Key) ([]Emitted, bool, error) {
	if key.Hash != request.Hash {
		return nil, false, ErrRequestDiffers
	}
	var ids []string
	if err := json.Unmarshal([]byte(key.Owner), &ids); err != nil || len(ids) != len(events) {
		return nil, false, ErrRequestDiffers
	}
	list := make([]Emitted, len(events))
	for i, ev := range events {
		stored, err := e.store.Event(ctx, env, ev.Name, ids[i])
		switch {
		case errors.Is(err, store.ErrNotFound):
			stored = store.Event{Env: env, ID: ids[i], Name: ev.Name, Payload: ev.Payload, CreatedAt: ev.At}
		case err != nil:
			return nil, true, err
		}
		list[i] = Emitted{Event: stored, Created: drawn(ids[i]), PayloadDiffers: hashOf(stored.Payload) != hashOf(ev.Payload)}
	}
	return list, true, nil
}

func idsOf(events []NewEvent) string {
	var ids []string
	for _, ev := range events {
		ids = append(ids, ev.ID)
	}
	text, _ := json.Marshal(ids) // texts: it can't fail
	return string(text)
}

// drawn tells whether an event's id was drawn by a client of ours or here, rather than given by the user.
func drawn(text string) bool {
	return strings.HasPrefix(text, id.Event+"_") && id.Check(id.Event, text) == nil
}
