package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// How a node goes along with others on the same store. It says each second that it is there, and which calls of theirs it hears, and looks
// what they say; it follows what they do to the runs that concern it; and it takes over the calls of those that are lost.
const (
	beatPause    = 200 * time.Millisecond // between heartbeats, however much there is to say
	followEvery  = 250 * time.Millisecond // between looks at runs that a client waits for
	compareEvery = 10 * time.Second       // between looks at which calls the store says that this node holds (N4)
	followPage   = 1_000                  // runs read at once
	knownTime    = 5 * time.Second        // for the others to say that they know an app
	callsPage    = 1_000
)

// runPeers is the heartbeat. Where a node is alone there is none. It waits for no other's calls to be taken over: whoever does that for long
// would be lost itself.
func (e *Engine) runPeers() {
	var taking sync.Mutex
	for ticks := 1; e.ctx.Err() == nil; ticks++ {
		pause(e.ctx, beatPause)
		pauseOr(e.ctx.Done(), e.peerHint, beatEvery-beatPause)
		if ticks%2 == 0 { // before the heartbeat, which says what is known
			if err := e.readApps(e.ctx, e.apps.hear); err != nil {
				e.failed("reading apps", err)
			}
		}
		if err := e.beat(); err != nil {
			e.failed("writing this node's heartbeat, or reading the others'", err)
			continue
		}
		if taking.TryLock() {
			e.spawn(func() {
				defer taking.Unlock()
				if err := e.takeOver(); err != nil {
					e.failed("taking over calls of a node that is lost", err)
				}
			})
		}
	}
}

// known waits until every other node that works has said that it knows apps in these versions, so that whichever is asked next starts by
// them. One that does not say so within knownTime is not waited for: it is about to be lost, or to learn it.
func (e *Engine) known(ctx context.Context, apps []peerApp) error {
	unknown := func(a peerApp) bool { return !e.peers.know(appID{a.Env, a.Name}, a.Version) }
	for waited := time.Duration(0); slices.ContainsFunc(apps, unknown); waited += beatPause {
		if waited >= knownTime {
			e.log.Warn("an app has changed, and not every node has said yet that it knows", "apps", apps)
			return nil
		}
		pause(ctx, beatPause)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := e.lookAround(false); err != nil {
			e.failed("reading whether the others know an app", err)
		}
	}
	return nil
}

// failed logs what went wrong, unless the engine stops.
func (e *Engine) failed(what string, err error) {
	if e.ctx.Err() == nil && !errors.Is(err, ErrStopping) {
		e.log.Error(what, "error", err)
	}
}

// beat writes this node's heartbeat and reads the others'.
func (e *Engine) beat() error {
	news := e.peerNews()
	if _, err := e.committer.commit(store.Change{store.PutNode{Node: e.peers.next(news)}}); err != nil {
		return err
	}
	e.peers.told(news)
	return e.lookAround(true)
}

// lookAround reads the others' heartbeats, and takes over what they have heard. One that waits for another's look shares the next with
// whoever waits too.
func (e *Engine) lookAround(beaten bool) error {
	before, _ := e.peers.looked()
	if e.ctx.Err() != nil {
		return e.ctx.Err() // and not, at random, what the select finds first
	}
	select {
	case e.peers.looking <- struct{}{}:
		defer func() { <-e.peers.looking }()
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
	if _, learned := e.peers.looked(); learned > before && !beaten {
		return nil
	}
	look := e.peers.look()
	rows, err := e.store.Nodes(e.ctx)
	if err != nil {
		return err
	}
	counts, err := e.store.CallCounts(e.ctx, e.peers.self)
	if err != nil {
		return err
	}
	if err := e.peers.learn(look, rows, counts, beaten); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.live {
		l.elsewhere = e.peers.hears(l.callID)
	}
	return nil
}

// peerNews is what this node tells the others.
func (e *Engine) peerNews() peerNews {
	e.mu.Lock()
	defer e.mu.Unlock()
	news := peerNews{Heard: map[string]int64{}}
	for _, known := range e.apps.versions() {
		id := appID{known.Env, known.Name}
		_, usable := e.apps.capacity(id, e.options.Concurrency)
		known.Shut = e.peers.shuts(id, usable)
		news.Apps = append(news.Apps, known)
	}
	for _, l := range e.live {
		switch {
		case l.held:
		case l.polled():
			news.Heard[l.callID] = 0
		default:
			news.Heard[l.callID] = time.Since(l.heard).Milliseconds()
		}
	}
	return news
}

// heardElsewhere tells whether another node has heard of a call that this one is about to find cut; then it is asked for anew (C1).
func (e *Engine) heardElsewhere(l *live, asked int) bool {
	if e.peers.alone() {
		return false
	}
	err := e.lookAround(false)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.live[l.callID] != l || l.asked != asked || !l.held {
		return true // it was answered meanwhile, or is another node's to judge
	}
	interval := heartbeat(l.run.Lease)
	switch {
	case err != nil:
		e.askOn(l, beatEvery) // what others have heard is not known
	case e.peers.steadySince().After(l.askedAt):
		e.ask(l, 2*interval) // nor could they tell while the store was away (C2)
	case l.lastHeard().After(l.askedAt.Add(beatEvery)): // it may say so a beat too late, and must have been heard since
		e.ask(l, 2*interval)
	case !e.peers.spoken(l.askedLook):
		e.askOn(l, beatEvery/2)
	default:
		return false
	}
	return true
}

// askOn goes on asking what is asked already. Engine.mu is held.
func (e *Engine) askOn(l *live, d time.Duration) {
	since, look := l.askedAt, l.askedLook
	e.ask(l, d)
	l.askedAt, l.askedLook = since, look
}

// runFollowing keeps up with what others do to the runs of calls that this node knows, and to those that clients wait for here.
func (e *Engine) runFollowing() {
	for ticks := 0; e.ctx.Err() == nil; ticks++ {
		pause(e.ctx, followEvery)
		ids := e.followed(ticks%4 == 0)
		e.followAll(ids)
	}
}

// followAll reads runs, and brings what this node knows of them up to what the store has.
func (e *Engine) followAll(ids []string) {
	for page := range slices.Chunk(ids, followPage) {
		heads, err := e.store.Heads(e.ctx, page)
		if err != nil {
			e.failed("reading what has become of runs", err)
			return
		}
		e.mu.Lock()
		for i := range heads {
			e.followHead(&heads[i])
		}
		e.mu.Unlock()
	}
}

// followed lists the runs that clients wait for, and with calls also those of calls.
func (e *Engine) followed(calls bool) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var ids []string
	for id := range e.waiters {
		ids = append(ids, id)
	}
	if calls {
		for _, l := range e.live {
			if e.waiters[l.runID] == nil && time.Since(l.begun) > beatEvery {
				ids = append(ids, l.runID)
			}
			e.leaveGuest(l)
		}
	}
	slices.Sort(ids)
	return ids
}

// leaveGuest forgets another node's call of which nothing is heard here any more. Engine.mu is held.
func (e *Engine) leaveGuest(l *live) {
	if !l.held && !l.polled() && !l.connected && time.Since(l.heard) > lostCallAfter {
		e.untrack(l)
	}
}

// followHead brings what this node knows of a run up to what the store has. Engine.mu is held.
func (e *Engine) followHead(h *store.Head) {
	if w := e.waiters[h.ID]; w != nil && h.Status.Final() {
		w.wake()
		delete(e.waiters, h.ID)
	}
	l := e.playing[h.ID]
	if l == nil || h.Version < l.latest {
		return // it was read before what is known here
	}
	grown := h.History.Entries > l.history.Entries
	if grown {
		l.moved = time.Now()
		l.history = h.History
	}
	if h.Version == l.run.Version {
		return
	}
	if grown {
		l.news = h.History.Entries
	}
	e.follow(l, h.Run, change{decision: workflow.Decision{Run: h.Run}})
}

// takeOver looks for calls whose holders are lost. Each is adopted by the node that hears it; one that nobody hears is cut off, and its run
// picked up (C1, C2).
func (e *Engine) takeOver() error {
	for _, loss := range e.peers.lost() {
		if err := e.eachCall(loss.node, func(run workflow.Run) error { return e.inherit(run, loss) }); err != nil {
			return err
		}
	}
	for _, id := range e.peers.silent() {
		if _, err := e.committer.commit(store.Change{store.DropNode{ID: id}}); err != nil {
			return err
		}
		e.log.Info("another node is gone", "node", id)
	}
	return nil
}

// eachCall goes through the calls that a node holds, so many at once that they share commits.
func (e *Engine) eachCall(node string, do func(workflow.Run) error) error {
	after := ""
	for {
		page, err := e.store.InCall(e.ctx, node, after, callsPage)
		if err != nil {
			return err
		}
		if err := sideBySide(len(page), timerSide, func(i int) error { return do(page[i]) }); err != nil || len(page) < callsPage {
			return err
		}
		after = page[len(page)-1].ID
	}
}

// inherit takes a call of a node that is lost.
func (e *Engine) inherit(run workflow.Run, from loss) error {
	silent := time.Since(from.since)
	e.mu.Lock()
	l := e.live[run.Call.ID]
	here := l != nil && l.heard.After(from.since)
	e.mu.Unlock()
	switch {
	case here:
		return e.adoptFrom(run, from.node)
	case silent < lostCallAfter || e.peers.hears(run.Call.ID).After(from.since) && silent < lostCallAfter+lostAfter:
		return nil // whoever hears it adopts it
	case e.peers.mine(run.ID, silent-lostCallAfter-beatEvery):
		_ = e.cutCall(run, from.node, "the node that held it is lost, and no other hears it", false) // the next look tries again
	}
	return nil
}

// adoptFrom makes a call this node's own, if it is that node's still. It takes its slot first: a look may show that this node holds it before
// the commit that made it so is heard of here.
func (e *Engine) adoptFrom(run workflow.Run, node string) error {
	e.mu.Lock()
	q := e.queue(appID{run.Env, run.App})
	q.inFlight++
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		q.inFlight--
		q.wake()
	}()
	_, err := e.apply(e.ctx, run.ID, func(now workflow.Run, _ store.History) (workflow.Input, error) {
		if now.Call == nil || now.Call.ID != run.Call.ID || now.Call.Node != node || now.Status != workflow.Running {
			return nil, nil
		}
		return workflow.Adopt{CallID: run.Call.ID, Node: e.peers.self}, nil
	})
	if err == nil {
		e.log.Info("a call of a node that is lost goes on here", "run", run.ID, "call", run.Call.ID, "node", node)
	}
	return err
}

// runComparing finds the calls that the store says this node holds and that it does not know, as after a commit whose outcome nobody
// knew: they are asked for (N4).
func (e *Engine) runComparing() {
	for {
		pause(e.ctx, compareEvery)
		if e.ctx.Err() != nil {
			return
		}
		err := e.eachCall(e.peers.self, func(run workflow.Run) error {
			if e.now().Sub(run.Call.BegunAt) > decidedAfter && !e.isLive(run.Call.ID) {
				e.adopt(run)
			}
			return nil
		})
		if err != nil {
			e.failed("comparing the calls that this node holds", err)
		}
	}
}
