// Package engine is the shell around the core: it gathers what happened, lets workflow.Apply decide, commits the decision with
// everything else that waits (one transaction, one sync), and only then acts: answers, calls, news, timers (W6).
//
// It decides nothing about runs that the core could decide. What it keeps in memory (live calls, contacts, queues, timers) is
// a faster copy of what the store holds, or contact, which no row records (C7): after a restart it is found out anew. Every
// loop works, slower, without the notifications that it gets.
//
// The parts, a file each: commit (group commit), start and emit (runs, events, replays), dispatch (which run is called next), play
// (one call), contact (who is alive), still (when this process stood still), save, item, register, claim and end (what apps say), made
// (steps that the server makes), news, match, offer and kin (what waits come to), timer, due (schedules and events for later), sweep,
// registry, apps, manifest, renamed and removed (what apps are, and whether they can be used), wait (who waits for a run), log (the lines that
// follow a run), peers and others (nodes that share the store), sidebyside (many at once, so that they share commits).
package engine

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// DefaultEnv is the environment of a server that has no other.
const DefaultEnv = "default"

// Caller makes requests to apps. It never sends a request twice (C3).
type Caller interface {
	Do(ctx context.Context, request call.Request) call.Outcome
	Describe(ctx context.Context, target call.Target) (*wire.Manifest, call.Outcome)
	Verify(ctx context.Context, target call.Target, message wire.Verify) (*wire.Verified, call.Outcome)
}

// Options configure an Engine. Zero values take the defaults that the fields name.
type Options struct {
	// Node is the id of this node among those that share its store; empty: no other does.
	Node string
	// URL is the address that apps reach this server at; it travels in every call (C9).
	URL string
	// Lease is how long a call without contact stays current; 5 min. A workflow may set its own.
	Lease time.Duration
	// Stall is how long a call may make no progress, however alive it is, before it is cut off; 24 h (C12).
	Stall time.Duration
	// Grace is how long bodies in flight may still save once their run is ending; 30 s (Z1).
	Grace time.Duration
	// Concurrency is how many calls an app gets at once, unless its record says otherwise; 100.
	Concurrency int
	// DescribeEvery is the pause between looks at an app that answers; 10 s, in dev 1 s (D1).
	DescribeEvery time.Duration
	// AppPauseMax is the longest pause between looks at an app that can't be used; 1 min (C14), in dev shorter.
	AppPauseMax time.Duration
	// ForgetAfter is how long a workflow that its app no longer has still starts (D1); zero is not at all.
	ForgetAfter time.Duration
	// EventsFor is how long events are kept, and so how far a wait looks back at most; 30 days (E2).
	EventsFor time.Duration
	// RunsFor is how long runs are kept once they have ended, at least RunsForMin; zero: for ever.
	RunsFor time.Duration
	// SweepEvery is the pause between looks for what is kept no longer; ten minutes.
	SweepEvery time.Duration
	// DeliveriesFor is how long deliveries to configured hooks are kept; 30 days. DeliveriesMax is how many of them, at most; 10,000.
	DeliveriesFor time.Duration
	DeliveriesMax int
	// Held: the store was restored, and nothing goes on by itself (N5).
	Held   bool
	Logger *slog.Logger
	// Clock is the clock on the wall, for what is stored and compared with what is stored; time.Now. Simulations let it step.
	Clock func() time.Time
	// Jitter draws from [0, 1). Tests switch it off.
	Jitter func() float64
}

// The bounds of the engine, each with the place that its number comes from.
const (
	LeaseMin       = 5 * time.Second // C7
	leaseStd       = 5 * time.Minute // promise 3
	stallStd       = 24 * time.Hour  // C12
	concurrencyStd = 100
	heartbeatMax   = 5 * time.Second       // C7
	shortQuestion  = 2 * time.Second       // C1
	partingMax     = 50 * time.Millisecond // what a question may wait for: still at once, by C1
	appPauseMax    = time.Minute           // C14
	hintsMax       = 1024
	eventsForStd   = 30 * 24 * time.Hour // promise 12
	applyTries     = 20                  // of an input whose run changes meanwhile; each try means that somebody else got on
)

// Errors of the engine's methods, besides those of the store. They are for whoever asked.
var (
	// ErrBusy: the server is saturated. Nothing was done; try again after a second.
	ErrBusy = errors.New("the server is busy")
	// ErrStopping: the server is shutting down.
	ErrStopping = errors.New("the server is stopping")
	// ErrUnstored: the store could not write for half a minute. Nothing was done; the server's log says why.
	ErrUnstored = errors.New("the store can't be written now")
	// ErrSuperseded: a newer call has begun, or another playing holds this one.
	ErrSuperseded = errors.New("the call was superseded")
	// ErrEnded: the call, or its run, is over.
	ErrEnded = errors.New("the call has ended")
)

// Engine runs one node. Make it with New, start it with Run. Its methods may be used by many goroutines once Run runs.
type Engine struct {
	store        store.Store
	caller       Caller
	options      Options
	log          *slog.Logger
	committer    *committer
	timers       *timers
	apps         *registry
	filters      *filters
	peers        *peers
	peerHint     hint             // the others have something to hear
	matching     hint             // there may be waits to look at
	passRequests chan passRequest // asks for a pass of the matcher that begins after the asking
	dueHint      hint             // there may be something due earlier than was known

	rejections atomic.Int64 // deliveries that were rejected

	mu        sync.Mutex       // guards what follows
	live      map[string]*live // by call
	playing   map[string]*live // the same, by run
	processes map[string]*process
	queues    map[appID]*queue
	waiters   map[string]*waiter // of runs that somebody waits for
	questions int                // so many were raised
	stopping  bool
	pulse     time.Time // when this process was last known not to stand still

	hints chan *queue // a slot or a run is there; a hint that does not fit is found by the net

	work    sync.WaitGroup // every goroutine that is not Run itself
	ctx     context.Context
	started time.Time
}

// New makes an engine on a store that it does not close.
func New(s store.Store, caller Caller, options Options) *Engine {
	options.Lease = or(options.Lease, leaseStd)
	options.Concurrency = or(options.Concurrency, concurrencyStd)
	options.Stall = or(options.Stall, stallStd)
	options.Grace = or(options.Grace, workflow.GraceStd)
	options.AppPauseMax = or(options.AppPauseMax, appPauseMax)
	options.DescribeEvery = or(options.DescribeEvery, 10*time.Second)
	options.EventsFor = or(options.EventsFor, eventsForStd)
	options.SweepEvery = or(options.SweepEvery, sweepEvery)
	options.DeliveriesFor = or(options.DeliveriesFor, deliveriesForStd)
	options.DeliveriesMax = or(options.DeliveriesMax, deliveriesMaxStd)
	if options.Jitter == nil {
		options.Jitter = rand.Float64
	}
	if options.Clock == nil {
		options.Clock = time.Now
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		store: s, caller: caller, options: options, log: options.Logger,
		live: map[string]*live{}, playing: map[string]*live{}, processes: map[string]*process{}, queues: map[appID]*queue{}, waiters: map[string]*waiter{},
		hints: make(chan *queue, hintsMax),
	}
	e.peers = newPeers(options.Node)
	e.committer = newCommitter(s, e.log, e.peers.company)
	e.timers = newTimers(e.net(timerNet))
	e.matching, e.dueHint, e.peerHint = newHint(), newHint(), newHint()
	e.passRequests = make(chan passRequest)
	e.filters = newFilters()
	e.apps = newRegistry(options.AppPauseMax, e.filters)
	return e
}

// Run works until ctx ends, then stops: it makes no new call, answers all polls, and leaves calls in flight their lease. It
// returns when nothing of it is left. ready is called once it takes requests.
func (e *Engine) Run(ctx context.Context, ready func()) error {
	// What is in flight when ctx ends may still commit: the committer is closed last.
	defer e.committer.close()
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	e.ctx, e.started = inner, e.now()
	e.pulse = time.Now()
	if e.options.Held {
		return e.runHeld(ctx, ready)
	}
	if err := e.recover(inner); err != nil {
		return err
	}
	e.spawn(e.runTimers)
	e.spawn(e.runQueues)
	e.spawn(e.runApps)
	e.spawn(e.runSweep)
	e.spawn(e.runMatching)
	e.spawn(e.runDue)
	e.spawn(e.runPulse)
	e.spawn(e.runComparing)
	if !e.peers.alone() {
		e.spawn(e.runPeers)
		e.spawn(e.runFollowing)
	}
	ready()
	<-ctx.Done()
	e.stop()
	cancel()
	e.work.Wait()
	e.depart()
	return nil
}

// depart tells the others that this node is gone: its calls are theirs to hear.
func (e *Engine) depart() {
	if e.peers.alone() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), departTime)
	defer cancel()
	if _, err := e.store.Commit(ctx, []store.Change{{store.DropNode{ID: e.peers.self}}}); err != nil {
		e.log.Warn("the other nodes could not be told that this one stops; they miss its heartbeats", "error", err)
	}
}

// stop lets nothing new begin and answers all polls (architecture: on a graceful stop the server answers all polls first).
func (e *Engine) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopping = true
	e.committer.hurry()
	for _, p := range inOrder(e.processes) {
		p.wake()
	}
	for _, w := range inOrder(e.waiters) {
		w.wake()
	}
}

// inOrder is what a map holds, by its keys: what is done to several at one instant is done to them in the same order each time.
func inOrder[T any](of map[string]T) []T {
	list := make([]T, 0, len(of))
	for _, key := range slices.Sorted(maps.Keys(of)) {
		list = append(list, of[key])
	}
	return list
}

// spawn runs work beside; Run waits for it.
func (e *Engine) spawn(work func()) { e.work.Go(work) }

// now is the time, to the millisecond that stores keep.
func (e *Engine) now() time.Time { return e.options.Clock().UTC().Truncate(time.Millisecond) }

// recover takes over what an earlier process left: apps, and calls that may still be played (C1, C2).
func (e *Engine) recover(ctx context.Context) error {
	if err := e.readApps(ctx, e.apps.load); err != nil {
		return err
	}
	if !e.peers.alone() {
		return e.beat() // before anything else: the others must know
	}
	return e.eachCall("", func(run workflow.Run) error { e.adopt(run); return nil })
}

// adopt makes a call live that this process did not send, and asks whether it is still played.
func (e *Engine) adopt(run workflow.Run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.playing[run.ID]; l != nil && l.run.Epoch >= run.Epoch {
		return // it was begun here, and is known by now
	}
	l := e.track(run, store.History{})
	l.written = true
	l.outdated() // its history was not read
	e.ask(l, 2*heartbeat(run.Lease))
}

// input is what apply gathers for a run: an input, or nil for nothing to do.
type input func(run workflow.Run, history store.History) (workflow.Input, error)

// change is what apply decided and committed.
type change struct {
	before   workflow.Run
	input    workflow.Input
	decision workflow.Decision
	result   store.Result
}

// apply loads a run, lets the core decide on what gather makes of it, commits, and acts. When the run has changed meanwhile it
// starts anew (N1).
func (e *Engine) apply(ctx context.Context, runID string, gather input) (change, error) {
	return e.applyRead(func() (workflow.Run, store.History, error) { return e.store.Load(ctx, runID) }, gather)
}

// applyRead is apply for a run that read gives, and gives anew when it has changed meanwhile.
func (e *Engine) applyRead(read func() (workflow.Run, store.History, error), gather input) (change, error) {
	for range applyTries {
		run, history, err := read()
		if err != nil {
			return change{}, err
		}
		c, err := e.applyTo(run, history, gather)
		if errors.Is(err, store.ErrStale) {
			continue
		}
		return c, err
	}
	return change{}, ErrBusy
}

// applyTo is apply for a run that is known; ErrStale if it has changed.
func (e *Engine) applyTo(run workflow.Run, history store.History, gather input) (change, error) {
	return e.applyWith(run, history, gather, nil)
}

// with adds to the write of a decision what the core does not know of, and what is written beside it.
type with func(update *store.UpdateRun) []store.Op

// applyWith is applyTo with more to write; add may be nil.
func (e *Engine) applyWith(run workflow.Run, history store.History, gather input, add with) (change, error) {
	c := change{before: run, decision: workflow.Decision{Run: run}}
	in, err := gather(run, history)
	if err != nil || in == nil {
		return c, err
	}
	c.input = in
	if c.decision, err = workflow.Apply(run, in, e.now()); err != nil {
		return c, err
	}
	if c.decision.Run.Version == run.Version {
		return c, nil
	}
	update := updateOf(c.decision, in)
	var beside []store.Op
	if add != nil {
		beside = add(&update)
	}
	if c.decision.Unfinished != nil {
		beside = append(beside, unfinished(&c.decision))
	}
	if c.result, err = e.committer.commit(append(store.Change{update}, beside...)); err != nil {
		return c, err
	}
	e.after(c)
	return c, nil
}

func updateOf(d workflow.Decision, in workflow.Input) store.UpdateRun {
	u := store.UpdateRun{Run: d.Run, Append: d.Append, Output: d.Output, Error: d.Error, CloseWaits: d.CloseWaits, Chapter: d.Chapter}
	for _, w := range d.Open {
		u.Open = append(u.Open, store.OpenWait{Wait: w})
	}
	if cut, ok := in.(workflow.Cut); ok {
		u.CutCall = cut.CallID
	}
	return u
}

// after acts on a committed change: whoever waits for the run hears of it.
func (e *Engine) after(c change) {
	run := c.decision.Run
	e.timers.notice(run.TimerAt())
	e.logChange(&c)
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.current(c.before)
	if l != nil {
		e.follow(l, run, c)
	}
	if run.Status == workflow.Queued && (c.before.Status != workflow.Queued || !run.ReadyAt().Equal(c.before.ReadyAt())) {
		e.enqueue(run)
	}
	if c.decision.CloseWaits && run.Invokes {
		e.matching.wake() // its children are to be cancelled
	}
	if run.Status.Final() {
		e.ended(c.decision, l)
		if run.Parent != "" || run.Invokes {
			e.matching.wake() // its parent or its children have to hear of it
		}
	}
}

// current finds the live call of a run; nil if this node has none.
func (e *Engine) current(run workflow.Run) *live {
	if run.Call == nil {
		return nil
	}
	return e.live[run.Call.ID]
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// newCall draws a call's id and its token, and looks up what handlers the run's workflow has now.
func (e *Engine) newCall(run *workflow.Run) workflow.Begin {
	b := workflow.Begin{CallID: id.New(id.Call), Token: tokenOf(run.ID, id.Secret()), Node: e.peers.self, Handlers: run.Closers &^ workflow.CloserUndo}
	if t, err := e.oneWorkflow(run.Env, run.App, run.Workflow); err == nil {
		b.Handlers = workflow.Handlers(t.workflow.OnFailure, t.workflow.OnCancel)
	}
	return b
}
