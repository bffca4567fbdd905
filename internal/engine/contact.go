package engine

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// live is a call that is current as far as this node knows. Engine.mu guards its fields but the first three, which never change.
type live struct {
	callID   string
	runID    string
	workflow string

	// run and history are as they were last known. latest is the newest version that the store is known to have: commits are
	// heard of in any order, so that it may be ahead of run, which then must be loaded before anything is decided on it.
	run     workflow.Run
	history store.History
	latest  int64

	// payload is the run's, once payloadKnown says so.
	payload      jsontext.Value
	payloadKnown bool

	// held: this node judges whether it is still played. Another node's call is known here while its process talks to this node.
	held    bool
	queue   *queue // of its app; where it is held, it takes one of its slots
	process *process
	begun   time.Time // with its monotonic reading; when its begin was decided
	heard   time.Time // the last contact here
	// elsewhere is the last contact at another node, as far as that has told.
	elsewhere time.Time
	moved     time.Time // the last progress: an item of a save, or the begin
	stalled   bool      // it has made none for too long (C12)

	// connected is true while the call's own HTTP request is open, and cancel ends that request.
	connected bool
	cancel    context.CancelFunc
	// written is true once the begin is decided: the request is known to be on its way (C3).
	written bool
	// question is set while the server asks whether the call is still played, wait is how long it asks, and asked counts the
	// questions (C1).
	question *time.Timer
	wait     time.Duration
	asked    int
	askedAt  time.Time
	// askedLook is how many looks at the others this node had begun when it asked.
	askedLook int64
	// missed is when a poll of its process was answered that did not name it; zero once it is heard of again.
	missed time.Time
	// told is the news that its process has been given of it.
	told string
	// news is the last entry that came from elsewhere than its own saves, and seen what its process has seen, where it takes such news (H2).
	news int64
	seen *int64
}

// process is one process of an app, known by the random id that it drew (C7).
type process struct {
	id    string
	calls map[string]*live
	// open is the poll that is held now; nil if there is none. Waking it answers it.
	open *poll
}

// poll is one held heartbeat.
type poll struct{ woken chan struct{} }

// wake answers the poll that is open, if any. Engine.mu is held.
func (p *process) wake() {
	if p.open != nil {
		p.open.wake()
	}
}

func (p *poll) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// heartbeat is how long a poll is held, and the unit of C1's waits.
func heartbeat(lease time.Duration) time.Duration { return min(heartbeatMax, lease/3) }

// track makes the run's call live, with a slot of its app. What was tracked of the run before gives way: a call that this one has superseded,
// or this one, where a timer has found it in the store before who began it heard that it is stored. A newer one does not. Engine.mu is held.
func (e *Engine) track(run workflow.Run, history store.History) *live {
	if old := e.playing[run.ID]; old != nil && old.run.Epoch <= run.Epoch {
		e.untrack(old)
	}
	l := newLive(run, history)
	l.queue = e.queue(appID{run.Env, run.App})
	e.own(l)
	e.live[l.callID] = l
	if e.playing[l.runID] == nil {
		e.playing[l.runID] = l
	}
	return l
}

// own brings whether a call is held, and its slot, up to what its run says. Engine.mu is held.
func (e *Engine) own(l *live) {
	held := l.run.Call.Node == e.peers.self
	switch {
	case held && !l.held:
		l.queue.inFlight++
	case !held && l.held:
		e.answered(l)
		l.queue.inFlight--
		l.queue.wake()
	}
	l.held = held
}

// stale tells whether run must be loaded. Engine.mu is held.
func (l *live) stale() bool { return l.run.Version < l.latest }

// outdated says that the store is ahead of run. Engine.mu is held.
func (l *live) outdated() { l.latest = max(l.latest, l.run.Version+1) }

func newLive(run workflow.Run, history store.History) *live {
	return &live{callID: run.Call.ID, runID: run.ID, workflow: run.Workflow, run: run, history: history, latest: run.Version, begun: time.Now(), heard: time.Now(), moved: time.Now()}
}

// untrack forgets a call that is over here: its slot is free and its request ends. Engine.mu is held; it may be called twice.
func (e *Engine) untrack(l *live) {
	if e.live[l.callID] != l {
		return
	}
	delete(e.live, l.callID)
	if e.playing[l.runID] == l {
		delete(e.playing, l.runID)
	}
	e.answered(l)
	if l.process != nil {
		delete(l.process.calls, l.callID)
		e.forget(l.process)
	}
	if l.cancel != nil {
		l.cancel()
	}
	if l.held {
		l.queue.inFlight--
		l.queue.wake()
	}
}

// follow brings a live call up to what a committed change made of its run. Engine.mu is held.
func (e *Engine) follow(l *live, run workflow.Run, c change) {
	if run.Call == nil || run.Call.ID != l.callID || run.Status == workflow.Queued || run.Status == workflow.Waiting {
		if _, byApp := c.input.(workflow.End); !byApp && l.process != nil {
			l.process.wake() // the call is over, and its process does not know
		}
		e.untrack(l)
		return
	}
	if run.Version > l.run.Version {
		e.renew(l, run)
	}
	l.latest = max(l.latest, run.Version)
	if c.result.History.Entries > l.history.Entries {
		l.history = c.result.History
	}
	if in, ok := c.input.(workflow.News); ok && len(in.Steps) > 0 {
		l.news = max(l.news, c.result.History.Entries)
	}
	if (run.Phase() == workflow.PhaseEnding || l.hasNews()) && l.process != nil {
		l.process.wake()
	}
}

// renew takes over what has become of a call's run, and with that who holds the call: whoever holds it without knowing, or knows no more that
// another does, leaves it to nobody to judge, or tells nobody that it is heard. Engine.mu is held.
func (e *Engine) renew(l *live, run workflow.Run) {
	l.run = run
	was := l.held
	if e.own(l); l.held && !was {
		e.ask(l, 2*heartbeat(run.Lease)) // adopted: as one that came back
	}
}

// hear notes a contact of a call by a process, and lets an open question rest while the process polls. Without a poll the message
// may be the last that a dying process sent, read after its connections had closed: then the question is asked anew, or nothing
// would notice the death before the lease ends. Engine.mu is held.
func (e *Engine) hear(l *live, processID string) {
	l.heard, l.missed = time.Now(), time.Time{}
	p := e.processes[processID]
	if p == nil {
		p = &process{id: processID, calls: map[string]*live{}}
		e.processes[processID] = p
	}
	if l.process != nil && l.process != p {
		delete(l.process.calls, l.callID)
		e.forget(l.process)
	}
	l.process = p
	p.calls[l.callID] = l
	if l.question != nil && p.open == nil {
		e.ask(l, l.wait)
	} else {
		e.answered(l)
	}
}

// forget drops a process that plays nothing and polls nothing. Engine.mu is held.
func (e *Engine) forget(p *process) {
	if len(p.calls) == 0 && p.open == nil {
		delete(e.processes, p.id)
	}
}

// polled tells whether its process has a poll open here. Engine.mu is held.
func (l *live) polled() bool { return l.process != nil && l.process.open != nil }

// contactUntil is when the last contact's lease ends; an open poll is contact until now (C7). Engine.mu is held.
func (e *Engine) contactUntil(l *live) time.Time {
	if l.polled() {
		return time.Now().Add(l.run.Lease)
	}
	return l.lastHeard().Add(l.run.Lease)
}

// lastHeard is the last contact, wherever it was. Engine.mu is held.
func (l *live) lastHeard() time.Time {
	if l.elsewhere.After(l.heard) {
		return l.elsewhere
	}
	return l.heard
}

// ask raises the question whether a call is still played: named within wait it stays current, else it is cut (C1). An open
// poll of its process is answered at once with the question. Only who holds a call asks. Engine.mu is held.
func (e *Engine) ask(l *live, wait time.Duration) {
	if e.raise(l, wait); l.question != nil && l.process != nil {
		l.process.wake()
	}
}

// raise is ask for a question that answers no poll yet. Engine.mu is held.
func (e *Engine) raise(l *live, wait time.Duration) {
	e.answered(l)
	if !l.held {
		return
	}
	l.wait, l.askedAt = wait, time.Now()
	l.askedLook, _ = e.peers.looked()
	l.asked++
	asked := l.asked
	// Questions that are raised at one instant end in their order, less than a microsecond apart: at one instant it would be nobody's.
	e.questions++
	l.question = time.AfterFunc(wait+time.Duration(e.questions%1000), func() { e.unanswered(l, asked) })
}

// answered lets a question rest. Engine.mu is held.
func (e *Engine) answered(l *live) {
	if l.question != nil {
		l.question.Stop()
		l.question = nil
	}
}

// unanswered cuts a call that was not named in time. That its process had a poll open until now answers nothing: the poll of a
// dead process ends too.
func (e *Engine) unanswered(l *live, asked int) {
	e.mu.Lock()
	e.awake()
	over := e.live[l.callID] != l || l.question == nil || l.asked != asked || e.stopping
	if !over {
		e.work.Add(1)
	}
	e.mu.Unlock()
	if over {
		return
	}
	defer e.work.Done()
	if !e.heardElsewhere(l, asked) {
		e.cut(l, "its process is gone")
	}
}

// lost is called when a call's connection is gone: the question is short where the closing says that the process may be dead
// and nothing of it polls (C1).
func (e *Engine) lost(l *live, short bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l.connected = false
	if e.live[l.callID] != l {
		return
	}
	wait := 2 * heartbeat(l.run.Lease)
	shorter := min(wait, shortQuestion)
	if !e.peers.alone() {
		shorter += 2 * beatEvery // until every other node has said what it hears
	}
	switch {
	case !short || shorter >= wait:
		e.ask(l, wait)
	case !l.polled():
		e.ask(l, shorter)
	default:
		e.raise(l, wait)
		asked := l.asked
		time.AfterFunc(partingMax, func() { e.parted(l, asked, shorter-partingMax) })
	}
}

// parted looks a moment after a call's connection was lost whether the poll of its process went with it: those of one that died end one by one.
func (e *Engine) parted(l *live, asked int, wait time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.live[l.callID] != l || l.question == nil || l.asked != asked || e.stopping:
	case l.polled():
		l.process.wake()
	default:
		e.ask(l, wait)
	}
}

// cut ends a call without an end, and has its run picked up.
func (e *Engine) cut(l *live, why string) {
	e.mu.Lock()
	stalled, run := l.stalled, l.run
	e.mu.Unlock()
	err := e.cutCall(run, e.peers.self, why, stalled)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && !errors.Is(err, store.ErrNotFound) && e.live[l.callID] == l {
		e.ask(l, beatEvery) // it has its slot for as long as the store may have it
		return
	}
	e.untrack(l)
}

// cutCall cuts a run's call, if it is the one that was given and that node holds it: a call that another has adopted is not ours to judge.
func (e *Engine) cutCall(given workflow.Run, node, why string, stalled bool) error {
	callID := given.Call.ID
	c, err := e.apply(e.ctx, given.ID, func(run workflow.Run, history store.History) (workflow.Input, error) {
		if run.Call == nil || run.Call.ID != callID || run.Call.Node != node || run.Status != workflow.Running {
			return nil, nil
		}
		in := workflow.Cut{CallID: callID, Entries: history.Entries, Stalled: stalled}
		attempts, err := e.store.Attempts(e.ctx, run.ID)
		for _, a := range attempts {
			if a.CallID == callID && a.EndedAt.IsZero() {
				in.Open = append(in.Open, a.StepID)
			}
		}
		return in, err
	})
	if err != nil {
		e.log.Error("cutting a call", "run", given.ID, "call", callID, "error", err)
	} else if c.result.Version != 0 {
		e.log.Warn("call cut off", "run", given.ID, "workflow", given.Workflow, "call", callID, "why", why)
	}
	return err
}
