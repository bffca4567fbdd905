package workflow

import (
	"encoding/json/jsontext"
	"time"
)

// Input is one thing that happened to a run.
type Input interface{ name() string }

// Begin: the dispatcher is about to call the app. The ids are fresh.
type Begin struct {
	CallID string
	Token  string
	Node   string // that holds it
	// Handlers are those that the workflow has now.
	Handlers Closers
}

// Void: the begun call was provably never sent (C3), or reached no app of ours (C14).
type Void struct {
	CallID  string
	Entries int64 // the length of the history
	// RetryAt is when the run may be called again; Reason, where it is not empty, makes the run wait until then and says why.
	RetryAt time.Time
	Reason  string
}

// Contact: the lease's time came, and the call was heard of until it ends at LeaseEndsAt (C5, C7).
type Contact struct {
	CallID      string
	LeaseEndsAt time.Time
}

// Revive: a call that was taken for cut was heard of before a newer one began (C5).
type Revive struct{ CallID, Node string }

// Adopt: the node that held the call is lost, or has given it up, and Node holds it from here on (C1).
type Adopt struct{ CallID, Node string }

// Cut: the call is over without an end: its process is gone, or its lease ended.
type Cut struct {
	CallID string
	// Entries is the length of the history; Open are the starts recorded by this call whose bodies have not ended (C13).
	Entries int64
	Open    []StepID
	// Stalled: the call was alive and made no progress (C12). It can't come back, or its next word would bring it.
	Stalled bool
}

// End: the app ended the call.
type End struct {
	CallID  string
	Kind    EndKind
	Output  jsontext.Value
	Payload jsontext.Value // restarted: what the run begins again with
	Error   *Failure
	Warning string    // completed and suspended: what people should know of the run; empty: nothing
	Entries int64     // the length of the history, unsaved results included
	RetryAt time.Time // suspended: the earliest retry among the steps that it waits for; zero if there is none
	Waits   bool      // suspended: it waits for something that is open, or that this very end opens
	Opened  []Wait    // suspended: the waits that this end opens
	Failed  []Step    // suspended: waits that can't be opened, as the entries that say so
	Why     string    // suspended: what it waits for, as a sentence for people
	Seen    int64     // suspended and yielded: the last entry that the code has seen (H2)
	// Excused: it yielded because its process stops, or can't reach the API; that says nothing about the run's progress.
	Excused bool
	Jitter  float64
}

// EndKind is how a call ended.
type EndKind string

// The kinds of ends.
const (
	EndCompleted EndKind = "completed"
	EndFailed    EndKind = "failed"
	EndSuspended EndKind = "suspended"
	EndYielded   EndKind = "yielded"
	EndRestarted EndKind = "restarted"
)

// Failure is what code threw, and whether it may be tried again.
type Failure struct {
	Error      jsontext.Value // a wire error
	Retriable  bool
	Retries    int // tries after the first that are allowed
	RetryAfter time.Duration
}

// Opened: a save registers waits while their call goes on (H3), or has the run's first step.undo (Z1).
type Opened struct {
	CallID string
	Waits  []Wait
	Failed []Step // waits that can't be opened, as the entries that say so
	Undoes bool
}

// News: waits of the run are over. Steps are their entries; WaitsAt is when the first of those that stay open is due.
type News struct {
	Steps   []Step
	WaitsAt time.Time
	Wakes   bool // what the run waits for is there (H4)
	Paced   bool // it waits for several things, each of which wakes it: not more often than each second (H4)
}

// Skip: another run owns the key that the run's workflow runs once for (K4).
type Skip struct {
	CallID string
	Owner  string
}

// Cancel: somebody asked for cancellation.
type Cancel struct {
	Entries int64         // the length of the history
	Grace   time.Duration // in which bodies in flight may still save
	// Force gives the run its final status at once: what is in flight can save nothing more, and nothing is undone.
	Force bool
}

// Timer: the time that TimerAt named has come. For a current call whose lease is over the engine sends Contact or Cut instead.
type Timer struct {
	Entries int64
	Grace   time.Duration // as Cancel's
}

func (Begin) name() string   { return "begin" }
func (Void) name() string    { return "void" }
func (Contact) name() string { return "contact" }
func (Revive) name() string  { return "revive" }
func (Adopt) name() string   { return "adopt" }
func (Cut) name() string     { return "cut" }
func (End) name() string     { return "end" }
func (Opened) name() string  { return "opened" }
func (News) name() string    { return "news" }
func (Skip) name() string    { return "skip" }
func (Cancel) name() string  { return "cancel" }
func (Timer) name() string   { return "timer" }

// StepID names a step of a run: its name and the count of that name (S1).
type StepID struct {
	Name   string
	Number int
}

// Decision is what Apply decided: the run afterwards, and what else must be written with it, in one transaction.
type Decision struct {
	Run Run
	// Append are entries that are not of a save: steps that were cut off too often, waits that are over.
	Append []Step
	// Open are waits that are registered with it.
	Open []Wait
	// Output and Error are the result: with the final status, but for the error that a closing begins with.
	Output jsontext.Value
	Error  jsontext.Value
	// CloseWaits: what is open is not waited for any more; children that live are to be cancelled.
	CloseWaits bool
	// Chapter is set where the history becomes a closed chapter, and the run begins again (Z2).
	Chapter *Chapter
	// Unfinished is why a closing ended before its time: a handler that threw for good, or calls that got nowhere.
	Unfinished jsontext.Value
}

// Chapter is what a run begins again with.
type Chapter struct{ Payload jsontext.Value }

// Step is a step's saved result: an entry of the history. The store draws the entry's number.
type Step struct {
	StepID
	Kind      string
	Status    string // "completed" or "failed"
	Output    jsontext.Value
	Error     jsontext.Value
	Attempts  int
	StartedAt time.Time
	EndedAt   time.Time
}

// Kinds and statuses of steps.
const (
	KindRun       = "run"      // has a body in the app
	KindSleep     = "sleep"    // is over at its time
	KindEvent     = "event"    // ends with an event
	KindInvoke    = "invoke"   // ends with a child run
	KindCallback  = "callback" // made at once; its wait ends with what somebody posts
	KindUndo      = "undo"     // noted at once; its body has the number after its own, and runs when the run ends otherwise than well
	KindClaim     = "claim"    // answered at once
	KindCancel    = "cancel"   // no step: an event of the workflow's cancelOn
	StepCompleted = "completed"
	StepFailed    = "failed"
)
