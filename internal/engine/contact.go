package engine

import (
	"cmp"
	"context"
	"encoding/json/jsontext"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
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
	l.question = time.AfterFunc(wait, func() { e.unanswered(l, asked) })
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

// Heartbeat holds a process's poll until there is news of one of its calls, or the interval is over (C7). It waits at most 5 s.
func (e *Engine) Heartbeat(ctx context.Context, hb wire.Heartbeat) (wire.HeartbeatAnswer, error) {
	came := time.Now()
	defer e.unheld(hb.Process) // also where a process that dies meanwhile breaks the poll off
	news, err := e.nameAll(ctx, hb)
	if err != nil {
		return wire.HeartbeatAnswer{}, err
	}
	e.unnamed(hb, came)
	wait := min(time.Duration(hb.WaitMs)*time.Millisecond, heartbeatMax)
	if e.Apart() {
		wait = min(wait, beatEvery) // the next poll may be another node's
	}
	if len(news) == 0 && wait > 0 {
		e.hold(ctx, hb.Process, wait)
	}
	news = append(news, e.withEntries(ctx, e.news(hb), hb)...)
	return wire.HeartbeatAnswer{Time: wire.At(e.now()), Calls: news}, nil
}

// Apart tells whether this node shares a store that it does not reach. The others may find it lost then, and only what they hear of its calls
// keeps those from being cut off (C1).
func (e *Engine) Apart() bool { return e.peers.apart() }

// naming is what becomes of a call's name in a poll.
type naming struct {
	live   *live
	status string // wire.Accepted: the process's to play on; wire.Later: the next poll tells
}

// nameAll takes the names of a poll. What has to be read is read side by side, and what has to be stored shares commits: none may wait for so
// long that it is taken for not named. It gives the news of those that are not the process's to play on. Where something can't be read, what is
// known is named all the same.
func (e *Engine) nameAll(ctx context.Context, hb wire.Heartbeat) (news []wire.News, err error) {
	named := make([]naming, len(hb.Calls))
	var unknown []int
	for i, call := range hb.Calls {
		if l, verdict, known := e.admitLive(call.Fence); known {
			named[i] = naming{l, string(verdict)}
		} else {
			named[i].status = wire.Later
			unknown = append(unknown, i)
		}
	}
	err = sideBySide(len(unknown), messageSide, func(n int) error {
		l, verdict, err := e.admitStored(ctx, hb.Calls[unknown[n]].Fence)
		if err == nil {
			named[unknown[n]] = naming{l, string(verdict)}
		}
		return err
	})
	e.bind(ctx, hb, named)
	for i, call := range hb.Calls {
		switch status := named[i].status; status {
		case wire.Accepted:
			e.name(hb.Process, call, named[i].live)
		case wire.Later:
		default:
			news = append(news, wire.News{Call: call.Call, Nonce: call.Nonce, Status: status})
		}
	}
	return news, err
}

// bind has the first word of a playing bind it, durably, and take a queued pick-up back (C4, C5).
func (e *Engine) bind(ctx context.Context, hb wire.Heartbeat, named []naming) {
	saves := wire.Saves{Process: hb.Process}
	var first []int
	e.mu.Lock()
	for i, n := range named {
		if n.status == wire.Accepted && (n.live.run.Call.Nonce == "" || n.live.stale() || n.live.run.Status != workflow.Running) {
			first = append(first, i)
			saves.Saves = append(saves.Saves, wire.Save{Fence: hb.Calls[i].Fence})
		}
	}
	e.mu.Unlock()
	if len(first) == 0 {
		return
	}
	for n, out := range e.Save(ctx, saves).Saves {
		named[first[n]].status = out.Status
	}
}

// name takes a call's name from the process that plays it.
func (e *Engine) name(processID string, named wire.Named, l *live) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.live[named.Call] == nil && l.run.Call.Node != e.peers.self {
		l = e.track(l.run, l.history) // another node's, of which this one hears
		l.written = true
		e.peerHint.wake()
	}
	if l := e.live[named.Call]; l != nil {
		e.hear(l, processID)
		e.answered(l) // its process polls: this is the poll
		l.seen = named.Seen
		e.apps.heard(appID{l.run.Env, l.run.App}, "", e.now())
	}
}

// unnamed cuts calls that the process named before and does not name now, unless their own connection is open (C7). A list may be
// older than what has been heard of a call meanwhile: it was under way while the call's first save overtook it. So the first list that
// lacks a call raises the question, which answers the poll, and only a list that came after that answer has the last word.
func (e *Engine) unnamed(hb wire.Heartbeat, came time.Time) {
	named := map[string]bool{}
	for _, f := range hb.Calls {
		named[f.Call] = true
	}
	var gone []*live
	e.mu.Lock()
	if p := e.processes[hb.Process]; p != nil {
		for id, l := range p.calls {
			switch {
			case named[id] || l.connected || !l.written:
			case !l.held:
				e.untrack(l) // it is not heard of here any more
			case l.missed.IsZero() || came.Before(l.missed):
				l.missed = time.Now()
				if l.question == nil {
					e.ask(l, 2*heartbeat(l.run.Lease))
				}
			default:
				gone = append(gone, l)
			}
		}
	}
	e.mu.Unlock()
	slices.SortFunc(gone, func(a, b *live) int { return cmp.Compare(a.callID, b.callID) })
	for _, l := range gone {
		e.cut(l, "its process no longer plays it")
	}
}

// hold keeps a poll open.
func (e *Engine) hold(ctx context.Context, processID string, wait time.Duration) {
	mine := &poll{woken: make(chan struct{}, 1)}
	e.mu.Lock()
	p := e.processes[processID]
	if p == nil || e.stopping || e.pendingNews(p) {
		e.mu.Unlock()
		return
	}
	p.wake()
	p.open = mine
	e.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-mine.woken:
	case <-timer.C:
	case <-ctx.Done():
	}
	e.release(p, mine)
}

// release ends a poll.
func (e *Engine) release(p *process, mine *poll) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.open != mine {
		return
	}
	p.open = nil
	for _, l := range p.calls {
		l.heard = time.Now()
	}
	e.forget(p)
}

// unheld asks for the calls of a process that hang on nothing once its poll is over, whether it was answered or its connection was
// lost: the next poll names them, unless the process is gone (C1).
func (e *Engine) unheld(processID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.processes[processID]
	if p == nil || p.open != nil || e.stopping {
		return
	}
	for _, l := range p.calls {
		if !l.connected && l.written && l.question == nil {
			e.ask(l, 2*heartbeat(l.run.Lease))
		}
	}
}

// pendingNews tells whether a process must hear of one of its calls. Engine.mu is held.
func (e *Engine) pendingNews(p *process) bool {
	for _, l := range p.calls {
		if l.question != nil || (l.run.Phase() == workflow.PhaseEnding && l.told != wire.Ending) || l.hasNews() {
			return true
		}
	}
	return false
}

// hasNews tells whether the history has an entry that its process must hear of. Engine.mu is held.
func (l *live) hasNews() bool { return l.seen != nil && *l.seen < l.news }

// news gathers what the process must know of its calls.
func (e *Engine) news(hb wire.Heartbeat) []wire.News {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := []wire.News{}
	for _, f := range hb.Calls {
		l := e.live[f.Call]
		switch {
		case l == nil:
		case l.run.Phase() == workflow.PhaseEnding:
			l.told = wire.Ending
			list = append(list, wire.News{Call: f.Call, Nonce: f.Nonce, Status: wire.Ending, Ending: &wire.EndingInfo{Reason: l.run.Ending.Reason}})
		case l.hasNews() && f.Seen != nil:
			list = append(list, wire.News{Call: f.Call, Nonce: f.Nonce, Status: wire.NewEntries})
		case l.question != nil:
			list = append(list, wire.News{Call: f.Call, Nonce: f.Nonce, Status: wire.NamedQ})
		}
	}
	return list
}

// Of the entries that news bring one poll's answer has so many bytes, and one page of each call that is read at once more: a process reads no
// answer of any size.
const (
	newsBytesMax = wire.CallBytesMax
	newsSide     = 8
)

// withEntries adds to the news of entries the entries: a page of each call, and of as many calls as the answer may hold. The next poll asks
// for more (H2).
func (e *Engine) withEntries(ctx context.Context, news []wire.News, hb wire.Heartbeat) []wire.News {
	named := map[string]*wire.Named{}
	for i := range hb.Calls {
		named[hb.Calls[i].Call] = &hb.Calls[i]
	}
	var bytes atomic.Int64
	_ = sideBySide(len(news), newsSide, func(i int) error { // each says itself what went wrong
		n := &news[i]
		if n.Status != wire.NewEntries || bytes.Load() >= newsBytesMax {
			return nil
		}
		call := named[n.Call]
		page, err := e.store.Entries(ctx, store.EntryQuery{
			RunID: runOf(call.Token), After: max(*call.Seen, 0), EntriesMax: wire.PageEntriesMax, BytesMax: wire.PageBytesMax,
		})
		if err != nil {
			e.log.Error("reading news", "call", n.Call, "error", err)
		}
		for _, entry := range page {
			n.Entries = append(n.Entries, entryOf(entry))
			bytes.Add(int64(len(entry.Output) + len(entry.Error)))
		}
		return nil
	})
	return slices.DeleteFunc(news, func(n wire.News) bool { return n.Status == wire.NewEntries && len(n.Entries) == 0 })
}
