package workflow

import (
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
	"cut":     {PhaseRunning: cut, PhaseEnding: finishEnding},
	"opened":  {PhaseRunning: opened},
	"news":    {PhaseQueued: news, PhaseRunning: news, PhaseWaiting: news, PhaseEnding: stay, PhaseEnded: stay},
	"skip":    {PhaseRunning: skip},
	"end":     {PhaseQueued: end, PhaseRunning: end, PhaseWaiting: end, PhaseEnding: finishEnding},
	"cancel":  {PhaseQueued: cancelNow, PhaseRunning: cancelRunning, PhaseWaiting: cancelNow, PhaseEnding: stay, PhaseEnded: stay},
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
	if d.Run != run || len(d.Append) > 0 || len(d.Open) > 0 {
		d.Run.Version++
	}
	return d, nil
}

// Settings are what a new run takes from its workflow and its server.
type Settings struct {
	Timeout time.Duration // zero: none
	Lease   time.Duration
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
	r.Call = &Call{ID: b.CallID, Token: b.Token, BegunAt: now}
	r.Status, r.Reason = Running, ""
	r.NextAt = now.Add(r.Lease)
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
	if !isCurrent(&d.Run, in.(Void).CallID) {
		return ErrNotCurrent
	}
	conclude(d, now)
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
	r := &d.Run
	if !isCurrent(r, in.(Revive).CallID) {
		return ErrNotCurrent
	}
	r.Status, r.Reason = Running, ""
	r.NextAt = now.Add(r.Lease)
	if r.Cuts > 0 {
		r.Cuts--
	}
	return nil
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
		fail(d, sentence("RunCutOffError", "the run's code outside steps was cut off %d times in a row: see what ends the app's process or its requests (memory, a time limit)", r.Cuts), now)
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
		finish(d, Completed, now)
		d.Output = e.Output
	case EndFailed:
		failCode(d, e, now)
	case EndSuspended:
		return suspend(d, e, now)
	case EndYielded:
		yield(d, progress || e.Excused, now)
	default:
		return fmt.Errorf("%q is no end of a call: %w", e.Kind, ErrForbidden)
	}
	return nil
}

// failCode counts a throw of the code outside steps that is tried again, and ends the run when it was the last (S2).
func failCode(d *Decision, e End, now time.Time) {
	r := &d.Run
	if !e.Error.Retriable || r.Attempts >= e.Error.Retries {
		fail(d, e.Error.Error, now)
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

// opened registers waits beside a body that runs (H3).
func opened(d *Decision, in Input, _ time.Time) error {
	o := in.(Opened)
	if !isCurrent(&d.Run, o.CallID) {
		return ErrNotCurrent
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
	if next := r.WokenAt.Add(wakePause); n.Paced && next.After(now) {
		r.NextAt = next
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
	finish(d, Skipped, now)
	d.Error = SkippedError(s.Owner)
	return nil
}

// yield calls the run again, unless it never gets anywhere (C12).
func yield(d *Decision, excused bool, now time.Time) {
	r := &d.Run
	if !excused {
		r.Yields++
	}
	if r.Yields >= YieldsMax {
		fail(d, sentence("NoProgressError", "the run yielded %d times in a row without saving a step: its steps need more time than the host or maxDuration gives one request", r.Yields), now)
		return
	}
	r.Status, r.NextAt = Queued, now
}

// cancelNow ends a run that has no call in flight.
func cancelNow(d *Decision, _ Input, now time.Time) error {
	d.Run.Ending = &Ending{Reason: EndCancelled, At: now}
	conclude(d, now)
	return nil
}

// cancelRunning opens the ending phase: bodies in flight may still save for a while (Z1).
func cancelRunning(d *Decision, _ Input, now time.Time) error {
	startEnding(&d.Run, EndCancelled, now)
	return nil
}

// stay changes nothing: asked twice, answered the same.
func stay(*Decision, Input, time.Time) error { return nil }

// timer wakes a waiting run, or ends one whose timeout has come. Fired too early or twice it changes nothing (W4).
func timer(d *Decision, _ Input, now time.Time) error {
	r := &d.Run
	if !r.TimeoutAt.IsZero() && !now.Before(r.TimeoutAt) {
		if r.Status == Running {
			startEnding(r, EndTimedOut, now)
			return nil
		}
		r.Ending = &Ending{Reason: EndTimedOut, At: now}
		conclude(d, now)
		return nil
	}
	if r.Status == Waiting && !r.NextAt.IsZero() && !now.Before(r.NextAt) {
		r.Status, r.Reason = Queued, ""
	}
	return nil
}

// timerEnding sets the final status once the grace is over: what is still in flight counts as abandoned (Z1).
func timerEnding(d *Decision, _ Input, now time.Time) error {
	if now.Before(d.Run.NextAt) {
		return nil
	}
	conclude(d, now)
	return nil
}

// finishEnding sets the final status as soon as the last call is over.
func finishEnding(d *Decision, in Input, now time.Time) error {
	var callID string
	switch in := in.(type) {
	case End:
		callID = in.CallID
	case Cut:
		callID = in.CallID
	}
	if !isCurrent(&d.Run, callID) {
		return ErrNotCurrent
	}
	conclude(d, now)
	return nil
}

func startEnding(r *Run, reason string, now time.Time) {
	r.Ending = &Ending{Reason: reason, At: now}
	r.NextAt = now.Add(EndingGrace)
}

// conclude gives an ending run its final status.
func conclude(d *Decision, now time.Time) {
	if d.Run.Ending.Reason == EndTimedOut {
		fail(d, sentence("TimeoutError", "the run did not end within its timeout"), now)
		return
	}
	finish(d, Cancelled, now)
}

func fail(d *Decision, err []byte, now time.Time) {
	finish(d, Failed, now)
	d.Error = err
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
	r.Progress, r.Attempts, r.Cuts, r.Yields = entries, 0, 0, 0
	return true
}

func isCurrent(r *Run, callID string) bool { return r.Call != nil && r.Call.ID == callID }
