// Package workflow is the core: it decides what happens to a run, and does nothing else.
//
// Values in, values out: Apply takes a run, one input and the time, and gives the run as it is afterwards with what must be
// written and done. There is no I/O here, no clock, no goroutine and no randomness; ids, tokens and jitter come in as inputs.
// The engine gathers the inputs, commits what Apply decided, and acts only then (W6).
//
// Invariants kept here: W1 (with the store's unique key), W2, W3, W4, W5. The rules are in docs/internals/rules.md.
package workflow

import "time"

//go:generate go run ../../scripts/states

// Status is a run's status as everybody sees it.
type Status string

// The statuses of a run. The last four are final (W3).
const (
	Queued    Status = "queued"  // a call is due
	Running   Status = "running" // a call is current
	Waiting   Status = "waiting" // for a time
	Completed Status = "completed"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
	Skipped   Status = "skipped"
)

// Final tells whether a run of this status never changes again (W3).
func (s Status) Final() bool {
	return s == Completed || s == Failed || s == Cancelled || s == Skipped
}

// Limits that the rules name. Those that users may configure come in with Settings.
const (
	CutsMax    = 10               // in a row; then the step, or the run, fails (C13)
	YieldsMax  = 3                // in a row without progress; then the run fails (C12)
	GraceStd   = 30 * time.Second // in which bodies in flight may still save (Z1)
	wakePause  = time.Second      // between calls of a run that several things wake, each by itself (H4)
	RetriesStd = 4                // tries after the first, where nobody said otherwise (promise 13)
)

// Run is a run's own record: small, so that changing it costs the same however long its history is. Payload, output and
// history are kept beside it.
type Run struct {
	ID       string
	Env      string
	App      string
	Workflow string
	Key      string // the run key, or empty
	ReplayOf string // the run that this one replays, or empty
	Parent   string // the run whose step.invoke started it, or empty
	Root     string // the run that idempotency keys are made from (S8)
	// RootRestart is added to Restart where keys are made: a replay that keeps its original's keys goes on from the chapter that it keeps.
	RootRestart int
	Event       string // the name of the event that started it, or empty
	EventID     string

	Version int64 // raised by every change of this record (N1)
	Status  Status
	Restart int
	Epoch   int64 // grows when a call begins (W2)

	// Call is the newest call that has begun and has not ended. With status Queued it was cut: until a newer one begins, its
	// saves are still accepted (C5).
	Call *Call
	// Prior is the call before Call, kept until Call is known to have been sent: a void begin makes it current again (C3).
	Prior *Call

	// NextAt is when the next thing happens by itself: Queued, Waiting: the next call is due, zero where only news can bring it; Running:
	// the lease ends, unless there was contact; ending: the grace is over.
	NextAt    time.Time
	WaitsAt   time.Time // when the first of its open waits is due by itself, or earlier; zero: none is
	WokenAt   time.Time // when news last woke it, or will; zero: never
	TimeoutAt time.Time // zero: no timeout
	Reason    string    // why a Waiting run waits, as a sentence for people
	Invokes   bool      // it has started children
	Ending    *Ending   // set once the run is ending (Z1)
	Closers   Closers   // what has to be done when it ends
	Warning   string    // what people should know of it, as a sentence: its code has changed under it

	// The three counters count in a row since the history last grew; Progress is its length then.
	Attempts int // throws of the code outside steps that were tried again (S2)
	Cuts     int
	Yields   int
	Progress int64

	CreatedAt time.Time
	StartedAt time.Time // zero until the first call
	EndedAt   time.Time // zero until the final status
	Lease     time.Duration
}

// Call is a call's right to save: fences compare id and token (C6), and the nonce of the one playing that holds it (C4).
type Call struct {
	ID      string
	Token   string
	Nonce   string // empty until a playing's first message
	Node    string // the server that judges whether it is still played (C1); empty where there is but one
	BegunAt time.Time
}

// Ending is the phase between the wish to end a run, or its failure, and its final status (Z1).
type Ending struct {
	Reason string // EndingCancelled, EndingTimedOut or EndingFailed
	At     time.Time
	// Closing: no body of the ended code is in flight any more, and the run is called to undo and to tell. Until then its current call
	// may still save.
	Closing bool
	// Entries is how long the history was when the closing began.
	Entries int64
}

// Why a run is ending.
const (
	EndingCancelled = "cancelled"
	EndingTimedOut  = "timedOut"
	EndingFailed    = "failed"
)

// Closers are what has to be done between a run's end and its final status (Z1), each a bit.
type Closers int

// The closers.
const (
	CloserUndo      Closers = 1 << iota // the history has a step.undo
	CloserOnFailure                     // the workflow has an onFailure
	CloserOnCancel                      // the workflow has an onCancel
)

// Handlers are the closers of a workflow that has such handlers.
func Handlers(onFailure, onCancel bool) Closers {
	var c Closers
	if onFailure {
		c |= CloserOnFailure
	}
	if onCancel {
		c |= CloserOnCancel
	}
	return c
}

// Phase is the state that the transition table is written in: a status, with ending told apart from running.
type Phase string

// The phases.
const (
	PhaseQueued  Phase = "queued"
	PhaseRunning Phase = "running"
	PhaseWaiting Phase = "waiting"
	PhaseEnding  Phase = "ending" // its last call may still save; a closing is queued, running or waiting again
	PhaseEnded   Phase = "ended"
)

// Phase is the phase that r is in.
func (r *Run) Phase() Phase {
	switch {
	case r.Status.Final():
		return PhaseEnded
	case r.Ending != nil && !r.Ending.Closing:
		return PhaseEnding
	case r.Status == Running:
		return PhaseRunning
	case r.Status == Waiting:
		return PhaseWaiting
	default:
		return PhaseQueued
	}
}

// Closing tells whether r is called to undo and to tell, before its final status.
func (r *Run) Closing() bool { return r.Ending != nil && r.Ending.Closing }

// TimerAt is when the timer must look at r: zero means never. A queued run is looked at by the dispatcher, and by the
// timer only for its timeout and its waits.
func (r *Run) TimerAt() time.Time {
	if r.Status.Final() {
		return time.Time{}
	}
	if r.Phase() == PhaseEnding {
		return r.NextAt
	}
	at := earlier(r.TimeoutAt, r.WaitsAt)
	if r.Status == Queued {
		return at
	}
	return earlier(at, r.NextAt)
}

// DueAt is when something happens to a waiting run by itself, but for its timeout; zero: only news can bring it.
func (r *Run) DueAt() time.Time { return earlier(r.NextAt, r.WaitsAt) }

// ReadyAt is when the dispatcher may call r: zero where r is not queued.
func (r *Run) ReadyAt() time.Time {
	if r.Phase() == PhaseQueued {
		return r.NextAt
	}
	return time.Time{}
}

// earlier is the earlier of two instants, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
