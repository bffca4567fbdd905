package workflow

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"time"

	"github.com/nelkap/nelkap/internal/backoff"
)

// Fence is the right to speak for a call, as a playing shows it.
type Fence struct {
	CallID string
	Token  string
	Nonce  string
}

// Verdict is what a playing may do.
type Verdict string

// The verdicts. Their words are the protocol's.
const (
	Accept     Verdict = "accepted"
	Superseded Verdict = "superseded" // a newer call has begun, or another playing holds this one (W2, C4)
	Ended      Verdict = "ended"      // the call, or the run, is over
	Undecided  Verdict = "later"      // a newer begin may still prove void (C3)
)

// Admit judges a fence by the run's record. decided says that the current call is known to have been sent; until then the call
// before it is told to try again. On Accept the store must still check that the call is the run's when it writes (N1).
func Admit(run *Run, f Fence, decided bool) Verdict {
	if run.Status.Final() {
		return Ended
	}
	if run.Call != nil && run.Call.ID == f.CallID {
		if run.Call.Token != f.Token || (run.Call.Nonce != "" && run.Call.Nonce != f.Nonce) {
			return Superseded
		}
		return Accept
	}
	if run.Prior != nil && run.Prior.ID == f.CallID && run.Prior.Token == f.Token && !decided {
		return Undecided
	}
	if run.Call == nil {
		return Ended
	}
	return Superseded
}

// Outcome is an attempt of a step as its app tells it.
type Outcome struct {
	StepID
	Kind      string
	Attempt   int
	Output    jsontext.Value // of a completed one
	Failure   *Failure       // of a failed one
	StartedAt time.Time
	EndedAt   time.Time
	Jitter    float64
}

// Retry records a throw that is not the last: the step is due again at RetryAt.
type Retry struct {
	StepID
	Attempt   int // tries made so far
	Error     jsontext.Value
	StartedAt time.Time
	EndedAt   time.Time
	RetryAt   time.Time
}

// Settle decides what an attempt's outcome is to its step: an entry of the history, or a retry; one of the two is nil (S2).
func Settle(o Outcome, now time.Time) (*Step, *Retry) {
	if f := o.Failure; f != nil && f.Retriable && o.Attempt <= f.Retries {
		pause := f.RetryAfter
		if pause <= 0 {
			pause = backoff.Pause(o.Attempt, o.Jitter)
		}
		return nil, &Retry{StepID: o.StepID, Attempt: o.Attempt, Error: f.Error, StartedAt: o.StartedAt, EndedAt: o.EndedAt, RetryAt: now.Add(pause)}
	}
	s := &Step{StepID: o.StepID, Kind: o.Kind, Status: StepCompleted, Output: o.Output, Attempts: o.Attempt, StartedAt: o.StartedAt, EndedAt: o.EndedAt}
	if o.Failure != nil {
		s.Status, s.Output, s.Error = StepFailed, nil, o.Failure.Error
	}
	return s, nil
}

// sentence makes an error that Nelkap itself throws.
func sentence(name, format string, args ...any) jsontext.Value {
	type object struct {
		Name    string `json:"name"`
		Message string `json:"message"`
	}
	b, err := json.Marshal(object{name, fmt.Sprintf(format, args...)})
	if err != nil {
		panic("workflow: a sentence that is not text: " + err.Error())
	}
	return b
}
