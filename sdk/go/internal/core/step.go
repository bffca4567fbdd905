package core

import (
	"encoding/json"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// StepState is where an asked step stands.
type StepState int

// A step goes from asked to done; starting and running are passed over where it has a saved entry.
const (
	stepAsked    StepState = iota // the code waits for it
	stepStarting                  // its start record is being saved (C13)
	stepRunning                   // its body runs
	stepSaving                    // its result or failure is being saved
	stepRetrying                  // it threw and waits for its next attempt
	stepSaved                     // an entry has its end; the code has not been shown it
	stepDone                      // the code has its end
	stepDropped                   // its body was aborted and threw, or may not start any more
)

// Step is a step that the code asked for in this playing. The machine owns all fields but Shell.
type Step struct {
	Name    string
	Number  int
	Attempt int // the attempt that runs or ran last, from 1
	Retries int // tries beyond the first

	// Entry is the saved end, nil before. Output nil is undefined.
	Entry *wire.Entry

	// Shell belongs to whoever drives the machine, which never looks at it.
	Shell any

	branch   *Branch
	state    StepState
	aborted  bool
	refused  bool      // the server refused an item of it before
	recorded bool      // its start is recorded in this playing
	dueAt    time.Time // of the next attempt, while retrying
	started  time.Time
}

// Branch is one line of the code: it has at most one step open. The workflow's function is the first.
type Branch struct {
	open *Step
}

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

// item is the item that saves how the step's attempt ended.
func (s *Step) item(end Settled, now time.Time) *wire.Item {
	it := &wire.Item{
		Op: wire.OpCompleted, Kind: wire.KindRun, Name: s.Name, Number: s.Number, Attempt: s.Attempt,
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

// retryAfterMs is d for the wire; nil where no pause was asked for.
func retryAfterMs(d time.Duration) *int64 {
	if d < 0 {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

// entryOf is the entry that an item became.
func entryOf(it *wire.Item, number int64) wire.Entry {
	e := wire.Entry{Entry: number, Kind: it.Kind, Name: it.Name, Number: it.Number, Status: wire.OpCompleted, Output: it.Output}
	if it.Op == wire.OpFailed {
		e.Status, e.Error, e.Attempts = wire.OpFailed, it.Error, it.Attempt
	}
	return e
}
