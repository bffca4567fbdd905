package workflow

import (
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"time"

	"github.com/nelkap/nelkap/internal/backoff"
)

// ErrForbidden is wrapped by the error of an input that a run's phase does not allow.
var ErrForbidden = errors.New("not allowed in this phase")

// ErrNotCurrent is wrapped by the error of an input for a call that is not the run's (W2).
var ErrNotCurrent = errors.New("the call is not current")

// transition changes the decision's run, and adds what must be written with it.
type transition func(d *Decision, in Input, now time.Time) error

// table says what each input does in each phase; what is not in it is forbidden. The state diagram in
// docs/internals/states.md is generated from it.
var table = map[string]map[Phase]transition{
	"begin":   {PhaseQueued: begin},
	"void":    {PhaseRunning: void, PhaseEnding: voidEnding},
	"contact": {PhaseRunning: contact},
	"revive":  {PhaseQueued: revive, PhaseWaiting: revive},
	"adopt":   {PhaseRunning: adopt, PhaseEnding: adopt},
	"cut":     {PhaseRunning: cut, PhaseEnding: finishEnding},
	"opened":  {PhaseRunning: opened},
	"news":    {PhaseQueued: news, PhaseRunning: news, PhaseWaiting: news, PhaseEnding: stay, PhaseEnded: stay},
	"skip":    {PhaseRunning: skip},
	"end":     {PhaseQueued: end, PhaseRunning: end, PhaseWaiting: end, PhaseEnding: finishEnding},
	"cancel":  {PhaseQueued: cancelNow, PhaseRunning: cancelRunning, PhaseWaiting: cancelNow, PhaseEnding: cancelEnding, PhaseEnded: stay},
	"timer":   {PhaseQueued: timer, PhaseRunning: timer, PhaseWaiting: timer, PhaseEnding: timerEnding, PhaseEnded: stay},
}

// Apply decides what in does to run at the instant now. The given run is not changed. The decision's run has a version of one
// more, unless nothing changed. The error names phase and input, and wraps ErrForbidden or ErrNotCurrent: the run stays as it was.
func Apply(run Run, in Input, now time.Time) (Decision, error) {
	act, ok := table[in.name()][run.Phase()]
	if !ok {
		return Decision{Run: run}, fmt.Errorf("run %s is %s, and %q is %w", run.ID, run.Phase(), in.name(), ErrForbidden)
	}
	d := Decision{Run: run}
	if err := act(&d, in, now); err != nil {
		return Decision{Run: run}, fmt.Errorf("run %s is %s: %s: %w", run.ID, run.Phase(), in.name(), err)
	}
	if d.Run != run || d.Chapter != nil || len(d.Append) > 0 || len(d.Open) > 0 {
		d.Run.Version++
	}
	return d, nil
}

// Settings are what a new run takes from its workflow and its server.
type Settings struct {
	Timeout time.Duration // zero: none
	Lease   time.Duration
	Closers Closers   // the workflow's handlers, and CloserUndo where it takes over entries that are to be undone
	At      time.Time // when its first call is due, and its timeout begins; zero or past: at once
}

// Start makes a new run. The identity fields of run are the caller's; the rest is set here.
func Start(run Run, s Settings, now time.Time) Run {
	run.Version = 1
	run.Status = Queued
	run.NextAt = now
	if s.At.After(now) {
		run.NextAt = s.At
	}
	run.CreatedAt = now
	run.Lease = s.Lease
	run.Closers = s.Closers
	if run.Root == "" {
		run.Root = run.ID
	}
	if s.Timeout > 0 {
		run.TimeoutAt = run.NextAt.Add(s.Timeout)
	}
	return run
}

// begin makes the new call current (W2, C3).
func begin(d *Decision, in Input, now time.Time) error {
	b := in.(Begin)
	r := &d.Run
	r.Epoch++
	r.Prior = r.Call
	r.Call = &Call{ID: b.CallID, Token: b.Token, Node: b.Node, BegunAt: now}
	r.Status, r.Reason = Running, ""
	r.NextAt = now.Add(r.Lease)
	if r.Ending == nil {
		r.Closers = r.Closers&CloserUndo | b.Handlers
	}
	if r.StartedAt.IsZero() {
		r.StartedAt = now
	}
	return nil
}

// void takes a begin back: the older call's saves count again, and the run is called again at RetryAt.
func void(d *Decision, in Input, _ time.Time) error {
	v := in.(Void)
	r := &d.Run
	if !isCurrent(r, v.CallID) {
		return ErrNotCurrent
	}
	r.Call, r.Prior = r.Prior, nil
	r.Status, r.NextAt = Queued, v.RetryAt
	if v.Reason != "" {
		r.Status, r.Reason = Waiting, v.Reason
	}
	return nil
}

// voidEnding ends an ending run whose last call never reached the app: no body is in flight.
func voidEnding(d *Decision, in Input, now time.Time) error {
	v := in.(Void)
	if !isCurrent(&d.Run, v.CallID) {
		return ErrNotCurrent
	}
	conclude(d, v.Entries, nil, now)
	return nil
}

// contact moves the end of the lease to where the last contact puts it.
func contact(d *Decision, in Input, _ time.Time) error {
	c := in.(Contact)
	if !isCurrent(&d.Run, c.CallID) {
		return ErrNotCurrent
	}
	d.Run.NextAt = c.LeaseEndsAt
	return nil
}

// revive takes a queued pick-up back (C5).
func revive(d *Decision, in Input, now time.Time) error {
	r, v := &d.Run, in.(Revive)
	if !isCurrent(r, v.CallID) {
		return ErrNotCurrent
	}
	hold(r, v.Node)
	r.Status, r.Reason = Running, ""
	r.NextAt = now.Add(r.Lease)
	if r.Cuts > 0 {
		r.Cuts--
	}
	return nil
}

// adopt gives the call to another node. That its lease is not renewed is no harm: whoever holds it knows when it was heard of last.
func adopt(d *Decision, in Input, _ time.Time) error {
	a := in.(Adopt)
	if !isCurrent(&d.Run, a.CallID) {
		return ErrNotCurrent
	}
	hold(&d.Run, a.Node)
	return nil
}

// hold gives the current call to a node.
func hold(r *Run, node string) {
	if r.Call.Node != node {
		call := *r.Call
		call.Node = node
		r.Call = &call
	}
}

// cut queues the run for a pick-up, or fails the step or the run that was cut off too often (C13).
func cut(d *Decision, in Input, now time.Time) error {
	c := in.(Cut)
	r := &d.Run
	if !isCurrent(r, c.CallID) {
		return ErrNotCurrent
	}
	countFrom(r, c.Entries)
	r.Cuts++
	r.Status, r.NextAt = Queued, now
	if c.Stalled {
		r.Call, r.Prior = nil, nil
	}
	if r.Cuts < CutsMax {
		return nil
	}
	if len(c.Open) == 0 {
		fail(d, c.Entries, sentence("RunCutOffError", "the run's code outside steps was cut off %d times in a row: see what ends the app's process or its requests (memory, a time limit)", r.Cuts), now)
		return nil
	}
	for _, id := range c.Open {
		d.Append = append(d.Append, Step{
			StepID: id, Kind: KindRun, Status: StepFailed, Attempts: r.Cuts, StartedAt: now, EndedAt: now,
			Error: sentence("StepCutOffError", "the step was cut off %d times in a row while it ran: see what ends the app's process or its requests (memory, a time limit)", r.Cuts),
		})
	}
	// The cut call must not save the step that has just failed: it is over for good.
	r.Call, r.Prior = nil, nil
	return nil
}

// end takes the app's word of how the call ended.
func end(d *Decision, in Input, now time.Time) error {
	e := in.(End)
	r := &d.Run
	if !isCurrent(r, e.CallID) {
		return ErrNotCurrent
	}
	progress := countFrom(r, e.Entries)
	r.Call, r.Prior = nil, nil
	switch e.Kind {
	case EndCompleted:
		complete(d, e, now)
	case EndRestarted:
		return restart(d, e, now)
	case EndFailed:
		failCode(d, e, now)
	case EndSuspended:
		if !r.Closing() {
			r.Warning = e.Warning
		}
		return suspend(d, e, now)
	case EndYielded:
		yield(d, e.Entries, progress || e.Excused, now)
	default:
		return fmt.Errorf("%q is no end of a call: %w", e.Kind, ErrForbidden)
	}
	return nil
}

// complete ends a run whose code returned, or the closing of one that ended otherwise.
func complete(d *Decision, e End, now time.Time) {
	if d.Run.Closing() {
		finish(d, d.Run.Ending.status(), now)
		return
	}
	d.Run.Warning = e.Warning
	finish(d, Completed, now)
	d.Output = e.Output
}

// restart begins the run again in its place (Z2): what the chapter has to undo is as good as done.
func restart(d *Decision, e End, now time.Time) error {
	r := &d.Run
	if r.Closing() {
		return fmt.Errorf("a closing does not begin again: %w", ErrForbidden)
	}
	r.Restart++
	r.Status, r.Reason, r.NextAt, r.WaitsAt, r.WokenAt = Queued, "", now, time.Time{}, time.Time{}
	r.Closers &^= CloserUndo
	r.Warning = ""
	resetCounters(r, 0)
	d.CloseWaits, d.Chapter = true, &Chapter{Payload: e.Payload}
	return nil
}

// failCode counts a throw of the code outside steps that is tried again, and ends the run when it was the last (S2).
func failCode(d *Decision, e End, now time.Time) {
	r := &d.Run
	if !e.Error.Retriable || r.Attempts >= e.Error.Retries {
		fail(d, e.Entries, e.Error.Error, now)
		return
	}
	r.Attempts++
	pause := e.Error.RetryAfter
	if pause <= 0 {
		pause = backoff.Pause(r.Attempts, e.Jitter)
	}
	r.Status, r.NextAt = Waiting, now.Add(pause)
	r.Reason = "the workflow's code threw and is tried again"
}

// suspend lets the run wait for its earliest retry and for its waits; if the code has not seen all there is, it is called at once (H2).
func suspend(d *Decision, e End, now time.Time) error {
	r := &d.Run
	open(d, e.Opened, e.Failed)
	if e.Seen < e.Entries || len(e.Failed) > 0 {
		r.Status, r.NextAt = Queued, now
		return nil
	}
	if e.RetryAt.IsZero() && !e.Waits {
		return fmt.Errorf("the run waits for nothing that can come (W5): %w", ErrForbidden)
	}
	r.Status, r.NextAt, r.Reason = Waiting, e.RetryAt, e.Why
	if r.Reason == "" {
		r.Reason = "a step threw and is tried again"
	}
	return nil
}

// opened registers waits beside a body that runs (H3), and notes that there is something to undo, so that no ending has to look for it.
func opened(d *Decision, in Input, _ time.Time) error {
	o := in.(Opened)
	if !isCurrent(&d.Run, o.CallID) {
		return ErrNotCurrent
	}
	if o.Undoes && d.Run.Closing() {
		return fmt.Errorf("a closing has nothing more to undo: %w", ErrForbidden)
	}
	if o.Undoes {
		d.Run.Closers |= CloserUndo
	}
	open(d, o.Waits, o.Failed)
	return nil
}

func open(d *Decision, waits []Wait, failed []Step) {
	for _, w := range waits {
		d.Run.WaitsAt = earlier(d.Run.WaitsAt, w.DueAt)
		d.Run.Invokes = d.Run.Invokes || w.Kind == KindInvoke
	}
	d.Open, d.Append = append(d.Open, waits...), append(d.Append, failed...)
}

// news appends the entries of waits that are over. A current call hears of them (H2); a run that waits for them is called.
func news(d *Decision, in Input, now time.Time) error {
	n := in.(News)
	r := &d.Run
	r.WaitsAt = n.WaitsAt
	d.Append = append(d.Append, n.Steps...)
	if r.Status != Waiting || !n.Wakes {
		return nil
	}
	r.Status, r.Reason, r.NextAt = Queued, "", now
	// Never for longer than a pause, also where the clock was set back since.
	if left := min(r.WokenAt.Add(wakePause).Sub(now), wakePause); n.Paced && left > 0 {
		r.NextAt = now.Add(left)
	}
	r.WokenAt = r.NextAt
	return nil
}

// skip ends a run that another has already done (K4).
func skip(d *Decision, in Input, now time.Time) error {
	s := in.(Skip)
	if !isCurrent(&d.Run, s.CallID) {
		return ErrNotCurrent
	}
	if d.Run.Closing() {
		return fmt.Errorf("a closing is not skipped: %w", ErrForbidden)
	}
	finish(d, Skipped, now)
	d.Error = SkippedError(s.Owner)
	return nil
}

// yield calls the run again, unless it never gets anywhere (C12).
func yield(d *Decision, entries int64, excused bool, now time.Time) {
	r := &d.Run
	if !excused {
		r.Yields++
	}
	if r.Yields >= YieldsMax {
		fail(d, entries, sentence("NoProgressError", "the run yielded %d times in a row without saving a step: its steps need more time than the host or maxDuration gives one request", r.Yields), now)
		return
	}
	r.Status, r.NextAt = Queued, now
}

// cancelNow ends a run that has no call in flight. A closing goes on: it undoes what is to be undone.
func cancelNow(d *Decision, in Input, now time.Time) error {
	c := in.(Cancel)
	if d.Run.Ending == nil {
		d.Run.Ending = &Ending{Reason: EndingCancelled, At: now}
		if !c.Force {
			conclude(d, c.Entries, nil, now)
			return nil
		}
	}
	if c.Force {
		give(d, now)
	}
	return nil
}

// cancelRunning opens the ending phase: bodies in flight may still save for a while (Z1).
func cancelRunning(d *Decision, in Input, now time.Time) error {
	if d.Run.Ending == nil {
		startEnding(&d.Run, EndingCancelled, in.(Cancel).Grace, now)
	}
	return cancelEnding(d, in, now)
}

// cancelEnding changes nothing, unless the final status is wanted at once.
func cancelEnding(d *Decision, in Input, now time.Time) error {
	if in.(Cancel).Force {
		give(d, now)
	}
	return nil
}

// stay changes nothing: asked twice, answered the same.
func stay(*Decision, Input, time.Time) error { return nil }

// timer wakes a waiting run, or ends one whose timeout has come. Fired too early or twice it changes nothing (W4).
func timer(d *Decision, in Input, now time.Time) error {
	r := &d.Run
	if !r.TimeoutAt.IsZero() && !now.Before(r.TimeoutAt) {
		if r.Status == Running {
			startEnding(r, EndingTimedOut, in.(Timer).Grace, now)
			return nil
		}
		r.Ending = &Ending{Reason: EndingTimedOut, At: now}
		conclude(d, in.(Timer).Entries, nil, now)
		return nil
	}
	if r.Status == Waiting && !r.NextAt.IsZero() && !now.Before(r.NextAt) {
		r.Status, r.Reason = Queued, ""
	}
	return nil
}

// timerEnding goes on once the grace is over: what is still in flight counts as abandoned (Z1).
func timerEnding(d *Decision, in Input, now time.Time) error {
	if now.Before(d.Run.NextAt) {
		return nil
	}
	conclude(d, in.(Timer).Entries, nil, now)
	return nil
}

// finishEnding goes on as soon as the last call is over.
func finishEnding(d *Decision, in Input, now time.Time) error {
	var callID string
	var entries int64
	switch in := in.(type) {
	case End:
		callID, entries = in.CallID, in.Entries
	case Cut:
		callID, entries = in.CallID, in.Entries
	}
	if !isCurrent(&d.Run, callID) {
		return ErrNotCurrent
	}
	conclude(d, entries, nil, now)
	return nil
}

func startEnding(r *Run, reason string, grace time.Duration, now time.Time) {
	r.Ending = &Ending{Reason: reason, At: now}
	r.NextAt = now.Add(grace)
}

// fail ends a run with an error, or a closing that can't go on: what it was to undo stays as it is then.
func fail(d *Decision, entries int64, err jsontext.Value, now time.Time) {
	if d.Run.Closing() {
		d.Unfinished = err
		give(d, now)
		return
	}
	d.Run.Ending = &Ending{Reason: EndingFailed, At: now}
	conclude(d, entries, err, now)
}

// conclude gives an ending run its final status, or has it called to undo and to tell before (Z1).
func conclude(d *Decision, entries int64, err jsontext.Value, now time.Time) {
	r := &d.Run
	if r.Ending.Reason == EndingTimedOut {
		err = sentence("TimeoutError", "the run did not end within its timeout")
	}
	d.Error = err
	if r.Closers&r.Ending.closers() == 0 {
		finish(d, r.Ending.status(), now)
		return
	}
	r.Ending = &Ending{Reason: r.Ending.Reason, At: r.Ending.At, Closing: true, Entries: entries}
	r.Status, r.Reason, r.NextAt, r.WaitsAt, r.TimeoutAt = Queued, "", now, time.Time{}, time.Time{}
	r.Call, r.Prior = nil, nil
	resetCounters(r, entries)
	d.CloseWaits = true
}

// give gives an ending run its final status, whatever there was to do before it.
func give(d *Decision, now time.Time) {
	if d.Run.Ending.Reason == EndingTimedOut && !d.Run.Closing() {
		d.Error = sentence("TimeoutError", "the run did not end within its timeout")
	}
	finish(d, d.Run.Ending.status(), now)
}

// closers are those that such an ending calls for.
func (e *Ending) closers() Closers {
	if e.Reason == EndingCancelled {
		return CloserUndo | CloserOnCancel
	}
	return CloserUndo | CloserOnFailure
}

func (e *Ending) status() Status {
	if e.Reason == EndingCancelled {
		return Cancelled
	}
	return Failed
}

// finish sets a final status: from here on nothing changes (W3) and nothing is due.
func finish(d *Decision, status Status, now time.Time) {
	r := &d.Run
	r.Status, r.EndedAt, r.NextAt, r.WaitsAt, r.Reason = status, now, time.Time{}, time.Time{}, ""
	r.Call, r.Prior = nil, nil
}

// countFrom starts the counters anew when the history has grown since they last counted, and tells whether it has.
func countFrom(r *Run, entries int64) (progress bool) {
	if entries <= r.Progress {
		return false
	}
	resetCounters(r, entries)
	return true
}

func resetCounters(r *Run, entries int64) {
	r.Progress, r.Attempts, r.Cuts, r.Yields = entries, 0, 0, 0
}

func isCurrent(r *Run, callID string) bool { return r.Call != nil && r.Call.ID == callID }
