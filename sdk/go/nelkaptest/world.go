package nelkaptest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/typeid"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

const (
	// callsMax is how many calls one world may take: a run that needs more goes round in circles.
	callsMax = 5_000
	// turnsMax bounds the driver's loop: a few turns for each call, and for each thing that time or someone outside brings.
	turnsMax = 100 * callsMax
	// endingTime is how long bodies may still save in a run that is ending: the server's.
	endingTime = 30 * time.Second
	// quietTime is how long nothing must change, in real time, for the code of a call that waits for another run's end to be taken as
	// waiting altogether, and quietTurns how often in a row before the test fails for it.
	quietTime  = 25 * time.Millisecond
	quietTurns = 20
	// graceTime is how long, in real time, the goroutines of an ended call are waited for before the run goes on without them.
	graceTime = 10 * time.Second
)

// world is a server in miniature, in memory. It keeps runs, events, waits and time by the protocol's rules, and has the app play one
// call at a time. Its clock is the process's, and leaps to what is due next when nothing runs.
//
// The driver (play) is the only one that begins calls and lets time pass. Requests of the app come in on goroutines of the SDK; they
// change the world under mu, and kick the driver. Nothing of the SDK is called under mu.
type world struct {
	options *options
	timing  timing
	// cutsHere says whether the call is to be cut off here; nil: never. It is called under mu.
	cutsHere func(p *process, where string) bool
	kick     chan struct{} // of one element: the world has changed

	mu       sync.Mutex // guards what follows
	skew     time.Duration
	app      http.Handler // the app that was met first
	appName  string
	declared map[string]declared // its workflows
	runs     []*run
	queue    []*run
	open     []*process // calls that are played
	events   []*event
	later    []*event // whose time has not come
	tells    []func() // what calls are to be told, by the driver
	outside  []fromOutside
	claims   map[string]*claim
	derived  map[string]any // what sends of steps came to, by their derived keys; under "key ", "id " and "event " those with keys and ids
	sent     map[string]*sentOutside
	sentKeys []string // of sent, in order
	calls    int
	bodies   int
	quiet    int   // how often in a row nothing changed for quietTime
	problem  error // nothing that follows would be right
}

// declared is what the app's manifest says of a workflow.
type declared struct {
	Name      string
	TimeoutMs int64
	CancelOn  []struct{ Event, If string }
	OnFailure bool
	OnCancel  bool
}

func newWorld(o *options, when timing) *world {
	return &world{
		options: o, timing: when, kick: make(chan struct{}, 1), outside: slices.Clone(o.outside),
		claims: map[string]*claim{}, derived: map[string]any{}, sent: map[string]*sentOutside{},
	}
}

func (w *world) now() time.Time { return time.Now().Add(w.skew) }

// changed wakes the driver.
func (w *world) changed() {
	select {
	case w.kick <- struct{}{}:
	default: // it is awake already
	}
}

// fail ends the world. mu is held.
func (w *world) fail(err error) {
	if w.problem == nil {
		w.problem = err
	}
	w.changed()
}

// met keeps the app that runs are played on: the one that the first run was started with.
func (w *world) met(app http.Handler, name string) {
	w.mu.Lock()
	known := w.app != nil
	w.mu.Unlock()
	if known {
		return
	}
	text, err := newProcess(w, nil).post(app, []byte(`{"type":"describe"}`))
	var manifest struct{ Workflows []declared }
	if err == nil {
		err = json.Unmarshal(text, &manifest)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.fail(fmt.Errorf("the app does not describe itself: %w", err))
	}
	w.app, w.appName, w.declared = app, name, map[string]declared{}
	for _, d := range manifest.Workflows {
		w.declared[d.Name] = d
	}
}

// playable is true where runs of that workflow can be played here. mu is held.
func (w *world) playable(app, workflow string) bool {
	_, known := w.declared[workflow]
	return w.options.workflows[workflow] != nil || known && (app == "" || app == w.appName)
}

// play plays until over is true, which it is asked only when no call is played. Without anything that runs it lets time pass, or brings
// what comes from outside. It fails where over can't come true any more, and with ctx's error.
func (w *world) play(ctx context.Context, over func() bool) error {
	stop := context.AfterFunc(ctx, w.changed)
	defer stop()
	for range turnsMax {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.mu.Lock()
		turn := w.turn(over)
		w.mu.Unlock()
		if turn.err != nil || turn.over {
			return turn.err
		}
		if turn.act != nil {
			turn.act()
		}
	}
	return errors.New("the run does not end: does it go round in circles?")
}

// turn is what the driver does next.
type turn struct {
	act  func() // without mu; nil: nothing, as the world has just changed
	over bool
	err  error
}

// turn decides. mu is held.
func (w *world) turn(over func() bool) turn {
	if w.problem != nil {
		return turn{err: w.problem}
	}
	for w.fire(w.now()) {
	}
	if len(w.tells) > 0 {
		tell := w.tells[0]
		w.tells = w.tells[1:]
		return turn{act: tell}
	}
	quiet := w.quiet
	w.quiet = 0
	switch {
	case slices.ContainsFunc(w.open, (*process).busy):
		return turn{act: w.rest(w.untilNext())}
	case len(w.queue) > 0:
		return w.begin()
	case over():
		return turn{over: true}
	case w.timing != late && w.give():
		return turn{}
	}
	next, any := w.next()
	if len(w.open) > 0 && quiet < quietTurns && (quiet < 1 || !any) {
		w.quiet = quiet
		return turn{act: w.settle}
	}
	if w.timing == late && (!any || next.timeout) && w.give() {
		return turn{}
	}
	if any {
		w.skew += max(0, next.at.Sub(w.now()))
		next.fire()
		return turn{}
	}
	return turn{err: w.stuck()}
}

// settle waits for a moment in which nothing changes: the code of a call that waits for another run's end may still be at work beside
// that, where nothing tells.
func (w *world) settle() {
	timer := time.NewTimer(quietTime)
	defer timer.Stop()
	select {
	case <-w.kick:
	case <-timer.C:
		w.mu.Lock()
		w.quiet++
		w.mu.Unlock()
	}
}

// untilNext is how long it is until something is due; negative where nothing is. mu is held.
func (w *world) untilNext() time.Duration {
	next, any := w.next()
	if !any {
		return -1
	}
	return max(0, next.at.Sub(w.now()))
}

// rest waits for the world to change, or for a time.
func (w *world) rest(most time.Duration) func() {
	return func() {
		if most < 0 {
			<-w.kick
			return
		}
		timer := time.NewTimer(most)
		defer timer.Stop()
		select {
		case <-w.kick:
		case <-timer.C:
		}
	}
}

// begin begins the call that is next. mu is held.
func (w *world) begin() turn {
	r := w.queue[0]
	w.queue = w.queue[1:]
	w.calls++
	r.calls++
	if w.calls > callsMax {
		return turn{err: fmt.Errorf("the run of %q took more than %d calls: does it go round in circles?", r.workflow, callsMax)}
	}
	r.status = nelkap.StatusRunning
	if fake := w.options.workflows[r.workflow]; fake != nil {
		return turn{act: func() { w.playFake(r, fake) }}
	}
	p := newProcess(w, r)
	p.number, p.base = w.calls, len(r.entries)
	r.process = p
	w.open = append(w.open, p)
	message := w.message(r, p)
	return turn{act: func() { go p.play(w.app, message) }}
}

func (w *world) playFake(r *run, fake fakeWorkflow) {
	output, failure := fake(play.WithStage(context.Background(), newProcess(w, nil)), r.payload)
	w.mu.Lock()
	defer w.mu.Unlock()
	if failure != nil {
		w.finish(r, nelkap.StatusFailed, nil, failure)
		return
	}
	w.finish(r, nelkap.StatusCompleted, output, nil)
}

// message is the call of a run. mu is held.
func (w *world) message(r *run, p *process) []byte {
	now := w.now()
	steps := map[string]any{"entries": r.wireEntries(nil, 0), "next": nil}
	retrying := []wire.Retry{}
	for _, t := range r.retries {
		retrying = append(retrying, wire.Retry{
			Name: t.Name, Number: t.Number, Attempt: t.attempt, RetryInMs: max(0, t.due.Sub(now).Milliseconds()),
		})
	}
	waiting := []wire.Open{}
	for _, t := range r.waits {
		waiting = append(waiting, wire.Open{Kind: t.item.Kind, Name: t.item.Name, Number: t.item.Number})
	}
	steps["retrying"], steps["waiting"] = retrying, waiting
	made := map[string]any{
		"id": r.id, "workflow": r.workflow, "app": r.app, "event": r.event, "key": r.key, "replayOf": "", "root": r.id,
		"restart": r.restarts, "attempt": r.attempt, "createdAt": r.createdAt.UTC(),
	}
	if r.payload != nil {
		made["payload"] = r.payload
	}
	var ending *wire.Closing
	if r.closing != nil {
		ending = &r.closing.Closing
	}
	text, err := json.Marshal(map[string]any{
		"type": "call", "run": made, "ending": ending, "steps": steps, "limits": wire.Limits{Steps: 10_000, ResultBytes: 4 << 20}, "url": "http://127.0.0.1",
		"call": wire.CallInfo{
			ID: p.id, Epoch: int64(r.calls), Token: p.token, Cuts: r.cuts, LeaseMs: 300_000, HeartbeatMs: 5_000, SentAt: time.Now().UTC(),
		},
	})
	if err != nil {
		w.fail(err)
	}
	return text
}

// answer is what of the app's answer counts.
type answer struct {
	Type         string
	Output       json.RawMessage
	Error        *wire.Error
	Retriable    bool
	Retries      int
	RetryAfterMs *int64
	Register     []item
	Waits        []wire.Wait
	Payload      json.RawMessage
	Logs         []line
}

// answered takes in how a call ended.
func (w *world) answered(p *process, text []byte, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.changed()
	w.open = slices.DeleteFunc(w.open, func(other *process) bool { return other == p })
	r := p.run
	if r.process != p {
		return // its run has ended, or its call was taken from it
	}
	r.process = nil
	var a answer
	if err == nil && !p.cut {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		w.fail(fmt.Errorf("the app did not take the call of the run of %q: %w", r.workflow, err))
		return
	}
	if !p.cut && a.Type != wire.AnswerOver {
		p.cut = w.cuts(p, endings[a.Type]+" and before its answer arrived")
	}
	if !p.cut {
		r.keep(p, a.Logs)
	}
	switch {
	case r.ending != nil && r.closing == nil:
		w.conclude(r)
	case p.cut:
		r.cuts++
		w.enqueue(r)
	default:
		w.ended(r, &a)
	}
}

var endings = map[string]string{
	wire.AnswerCompleted: "after the code had returned",
	wire.AnswerFailed:    "after the code had failed",
	wire.AnswerSuspended: "after the code had come to wait",
	wire.AnswerYielded:   "after it had yielded",
	wire.AnswerRestarted: "after the code had begun the run again",
}

// ended takes in an answer. mu is held.
func (w *world) ended(r *run, a *answer) {
	switch a.Type {
	case wire.AnswerCompleted:
		if r.closing != nil {
			w.closed(r)
			return
		}
		w.finish(r, nelkap.StatusCompleted, a.Output, nil)
	case wire.AnswerRestarted:
		w.restart(r, a.Payload)
	case wire.AnswerFailed:
		if !a.Retriable || r.attempt > a.Retries {
			w.close(r, wire.ReasonFailed, a.Error)
			return
		}
		r.due = w.now().Add(pause(r.attempt, a.RetryAfterMs))
		r.attempt++
		r.status = nelkap.StatusWaiting
	case wire.AnswerSuspended:
		for i := range a.Register {
			w.register(r, &a.Register[i])
		}
		r.trees, r.status = a.Waits, nelkap.StatusWaiting
		w.look(r)
	default: // yielded: it is called again
		w.enqueue(r)
	}
}

// pause is the server's, without its jitter.
func pause(attempt int, asked *int64) time.Duration {
	if asked != nil {
		return time.Duration(*asked) * time.Millisecond
	}
	return min(5*time.Minute, time.Second<<min(attempt-1, 20))
}

// cuts is true where the call is cut off here. What it says goes on after "cut off". mu is held.
func (w *world) cuts(p *process, where string) bool {
	if p.cut || w.cutsHere == nil || p.run == nil || p.run.hasEnded() || !w.cutsHere(p, where) {
		return false
	}
	p.cut = true
	return true
}

// start makes a run. mu is held.
func (w *world) start(made *run) *run {
	now := w.now()
	if made.id == "" {
		made.id = typeid.New("run")
	}
	made.createdAt, made.status, made.attempt = now, nelkap.StatusQueued, 1
	made.since, made.done = len(w.events), make(chan struct{})
	made.starts, made.used, made.said = map[ref]*process{}, map[int]bool{}, map[string]bool{}
	made.played = w.playable(made.app, made.workflow)
	from := now
	if made.due.After(now) {
		from = made.due
	}
	if d := w.declared[made.workflow]; made.played && d.TimeoutMs > 0 {
		made.timeoutAt = from.Add(time.Duration(d.TimeoutMs) * time.Millisecond)
	}
	w.runs = append(w.runs, made)
	if from.After(now) {
		return made
	}
	w.enqueue(made)
	return made
}

func (w *world) find(id string) *run {
	if i := slices.IndexFunc(w.runs, func(r *run) bool { return r.id == id }); i >= 0 {
		return w.runs[i]
	}
	return nil
}

func (w *world) enqueue(r *run) {
	r.due = time.Time{}
	if !r.played || r.hasEnded() || slices.Contains(w.queue, r) {
		return
	}
	r.status, r.trees = nelkap.StatusQueued, nil
	w.queue = append(w.queue, r)
}

// look calls a waiting run where what it waits for has come. mu is held.
func (w *world) look(r *run) {
	if r.status == nelkap.StatusWaiting && r.process == nil && r.awake(w.now()) {
		w.enqueue(r)
	}
}

// cancel asks for a run's end. mu is held.
func (w *world) cancel(r *run, reason string) {
	if r.hasEnded() || r.ending != nil || r.closing != nil {
		return
	}
	r.ending = &wire.Ending{Reason: reason}
	if r.process == nil {
		w.conclude(r)
		return
	}
	r.endingAt = w.now().Add(endingTime)
	w.tell(r, wire.News{Status: wire.StatusEnding, Ending: r.ending})
}

// conclude closes an ending run, whose call is over or had its time (Z1). mu is held.
func (w *world) conclude(r *run) {
	if r.ending.Reason == wire.ReasonCancelled {
		w.close(r, wire.ReasonCancelled, nil)
		return
	}
	w.close(r, wire.ReasonTimedOut, &wire.Error{Name: "TimeoutError", Message: "the run did not end within its timeout"})
}

// finish ends a run. mu is held.
func (w *world) finish(r *run, status nelkap.Status, output json.RawMessage, failure *wire.Error) {
	if r.hasEnded() {
		return
	}
	r.status, r.output, r.failure, r.endedAt, r.due, r.trees = status, output, failure, w.now(), time.Time{}, nil
	w.queue = slices.DeleteFunc(w.queue, func(other *run) bool { return other == r })
	if r.process != nil {
		w.tell(r, wire.News{Status: wire.StatusEnded})
		r.process = nil
	}
	w.closeWaits(r)
	for len(r.waiters) > 0 {
		r.letGo(r.waiters[0])
	}
	close(r.done)
	if r.parent != nil {
		w.childEnded(r)
	}
}

func (w *world) childEnded(child *run) {
	came := wire.Entry{Status: wire.OpFailed, Error: child.failure}
	switch child.status { //nolint:exhaustive // a run that has ended is none of the others; a failed one has its error
	case nelkap.StatusCompleted:
		came = wire.Entry{Status: wire.OpCompleted, Output: child.output}
	case nelkap.StatusCancelled:
		came.Error = &wire.Error{Name: "RunCancelledError", Message: "the child run " + child.id + " was cancelled"}
	case nelkap.StatusSkipped:
		came.Error = &wire.Error{Name: "RunSkippedError", Message: "the run was skipped: run " + child.owner + " owns its key"}
	}
	w.come(child.parent, child.parentWait, came)
}

// tell has the driver tell the call that is current of news, as an answer to its poll would. mu is held.
func (w *world) tell(r *run, n wire.News) {
	p := r.process
	if p == nil || p.cut {
		return
	}
	w.tells = append(w.tells, func() { p.tell(&n) })
	w.changed()
}

// stuck says what is waited for that no time brings. mu is held.
func (w *world) stuck() error {
	for _, r := range w.runs {
		if !r.played || r.hasEnded() {
			continue
		}
		var list []string
		for _, t := range r.waits {
			switch t.item.Kind {
			case wire.KindEvent:
				list = append(list, fmt.Sprintf("the event %q (step %q)", strings.Join(t.item.Events, `" or "`), t.item.Name))
			case wire.KindInvoke:
				list = append(list, fmt.Sprintf("the child run of step %q", t.item.Name))
			default:
				list = append(list, fmt.Sprintf("the %s %q", t.item.Kind, t.item.Name))
			}
		}
		if len(list) > 0 && !slices.ContainsFunc(r.waits, func(t *wait) bool { return t.child != nil && t.child.played }) {
			return fmt.Errorf("the run of %q waits for %s, which no time brings: give it with Events or Posts, or with Emit or Post from a step",
				r.workflow, strings.Join(list, " and "))
		}
	}
	return errors.New("the run waits for another that this kit does not play: give its workflow with FakeWorkflow")
}

// stop cuts off what is still played and waits for it, for graceTime at most. It may be called twice.
func (w *world) stop() {
	w.mu.Lock()
	open := w.open
	w.open = nil
	for _, p := range open {
		p.cut = true
	}
	for _, r := range w.runs {
		r.process, r.played = nil, false
	}
	w.mu.Unlock()
	timer := time.NewTimer(graceTime)
	defer timer.Stop()
	for _, p := range open {
		p.tell(&wire.News{Status: wire.StatusSuperseded})
	}
	for _, p := range open {
		select {
		case <-p.left:
		case <-timer.C:
			return
		}
	}
}
