package core

import (
	"encoding/json"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// StepState is where an asked step stands.
type StepState int

// A step goes from asked to done. Where it has a saved entry it goes there at once; a wait goes by registering and waiting, a step
// with a body by the others.
const (
	stepAsked       StepState = iota // the code waits for it, and nothing was done for it yet
	stepStarting                     // its start record is being saved (C13, S4, S5)
	stepChecking                     // its check runs (S4)
	stepRunning                      // its body runs
	stepSaving                       // its result or failure is being saved, or its claim, callback or undo
	stepRetrying                     // it threw and waits for its next attempt
	stepRegistering                  // a save registers the wait
	stepWaiting                      // the wait is open
	stepSaved                        // an entry has its end; the code has not been shown it
	stepDone                         // the code has its end
	stepDropped                      // nobody waits for it any more, or it may not start
)

// Step is a step that the code asked for in this playing. The machine owns all fields but Shell.
type Step struct {
	Name    string // its identity's: the old one where the code renamed a step that is known under it (S7)
	Number  int
	Attempt int // the attempt that runs or ran last, from 1
	Retries int // tries beyond the first

	// Entry is the saved end, nil before. Output nil is undefined.
	Entry *wire.Entry

	// Shell belongs to whoever drives the machine, which never looks at it.
	Shell any

	branch   *Branch
	terms    *wire.Terms // nil: it has a body
	state    StepState
	check    bool // it has a check (S4)
	once     bool // it runs at most once (S5)
	aborted  bool
	refused  bool // the server refused an item of it before
	recorded bool // the start of the attempt that comes or runs is recorded in this playing
	again    bool // its check runs before the body
	checked  bool // the check of the attempt that comes has found nothing
	orphan   bool // its branch is closed: it only settles
	holds    bool // the code goes on only when this orphan has settled
	dueAt    time.Time
	started  time.Time
	linesOf  int // the attempt that lines counts the log's lines of
	lines    int
}

// kind is the step's kind, as the history has it.
func (s *Step) kind() string {
	if s.terms == nil {
		return wire.KindRun
	}
	return s.terms.Kind
}

// waits is true for a step that is open at the server until something has come.
func (s *Step) waits() bool { return s.terms != nil && s.terms.Op == wire.OpWait }

// runs is true while a check or a body of s is under way.
func (s *Step) runs() bool { return s.state == stepRunning || s.state == stepChecking }

// Settled is how a body ended.
type Settled struct {
	Output     json.RawMessage // nil: undefined
	Err        *wire.Error     // nil: it returned
	Retriable  bool
	RetryAfter time.Duration // negative: none was asked for
}

// stepKey is a step's identity within its run (S1).
type stepKey struct {
	name   string
	number int
}

func (s *Step) key() stepKey { return stepKey{s.Name, s.Number} }

// body is the identity of the step that the undo of that key, or s, runs as.
func (k stepKey) body() stepKey { return stepKey{k.name, k.number + 1} }
func (s *Step) body() stepKey   { return s.key().body() }

// item is the item that saves how the step's attempt ended.
func (s *Step) item(end Settled, now time.Time) *wire.Item {
	it := &wire.Item{
		Op: wire.OpCompleted, Kind: s.kind(), Name: s.Name, Number: s.Number, Attempt: s.Attempt,
		Output: end.Output, StartedAt: s.started, EndedAt: now,
	}
	if end.Err != nil {
		it.Op, it.Output, it.Error = wire.OpFailed, nil, end.Err
		it.Retriable, it.Retries = end.Retriable, s.Retries
		if end.Retriable {
			it.RetryAfterMs = retryAfterMs(end.RetryAfter)
		}
	}
	return it
}

// request is the item that asks the server for what a step without a body wants.
func (s *Step) request() *wire.Item {
	return &wire.Item{Op: s.terms.Op, Kind: s.terms.Kind, Name: s.Name, Number: s.Number, Terms: s.terms}
}

func (s *Step) ref() *wire.StepRef { return &wire.StepRef{Name: s.Name, Number: s.Number} }

// retryAfterMs is d for the wire; nil where no pause was asked for.
func retryAfterMs(d time.Duration) *int64 {
	if d < 0 {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

// entryOf is the entry that an item became. Output is the item's own, or what the server made.
func entryOf(it *wire.Item, o *wire.ItemOutcome) wire.Entry {
	e := wire.Entry{Entry: o.Entry, Kind: it.Kind, Name: it.Name, Number: it.Number, Status: wire.OpCompleted, Output: it.Output}
	if it.Terms != nil {
		e.Output = o.Output
	}
	if it.Op == wire.OpFailed {
		e.Status, e.Error, e.Attempts = wire.OpFailed, it.Error, it.Attempt
	}
	return e
}
