package workflow

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"time"
)

// Wait is a step without a body that is open: registered, and without an entry.
type Wait struct {
	StepID
	Kind  string
	DueAt time.Time // when it is over by itself; zero: never
	Child string    // of an invoke: the run
	Of    int       // of a callback: the number of the step that made it
	Event *EventWait
}

// EventWait is what a wait for an event asks of it (E2, E3).
type EventWait struct {
	Names []string
	// Paths and Key are the index key of match: the paths that are looked at, and what they must hold. Empty: anything.
	Paths string
	Key   string
	If    string // a CEL filter, or empty
	// SinceRun looks back to the run's creation, else the wait counts from its registration.
	SinceRun bool
}

// Over is the entry of a wait whose time has come (W4): a sleep is done, an event did not come, a child took too long.
func (w Wait) Over(now time.Time) Step {
	s := Step{StepID: w.StepID, Kind: w.Kind, Status: StepCompleted, Attempts: 1, StartedAt: now, EndedAt: now}
	switch w.Kind {
	case KindEvent, KindCallback:
		s.Output = jsontext.Value("null")
	case KindInvoke:
		s.Status, s.Error = StepFailed, sentence("TimeoutError", "the child run %s did not end within the step's timeout, and is cancelled", w.Child)
	}
	return s
}

// With is the entry of a wait that something has come for.
func (w Wait) With(output jsontext.Value, now time.Time) Step {
	return Step{StepID: w.StepID, Kind: w.Kind, Status: StepCompleted, Output: output, Attempts: 1, StartedAt: now, EndedAt: now}
}

// Returned is the entry of an invoke whose child has ended.
func (w Wait) Returned(child Run, output, failure jsontext.Value, now time.Time) Step {
	s := w.With(output, now)
	if child.Status == Failed || child.Status == Skipped {
		s.Status, s.Output, s.Error = StepFailed, nil, failure
	}
	if child.Status == Cancelled {
		s.Status, s.Output, s.Error = StepFailed, nil, sentence("RunCancelledError", "the child run %s was cancelled", child.ID)
	}
	return s
}

// Refused is the entry of a wait that can't be opened.
func Refused(id StepID, kind, name, message string, now time.Time) Step {
	return Step{StepID: id, Kind: kind, Status: StepFailed, Error: sentence(name, "%s", message), Attempts: 1, StartedAt: now, EndedAt: now}
}

// Interrupted is the entry of a step that runs at most once and was cut off (S5).
func Interrupted(id StepID, now time.Time) Step {
	return Refused(id, KindRun, "StepInterruptedError", "the step was cut off while it ran, and it runs at most once: whether it took effect is not known", now)
}

// SkippedError is the error of a run that another owns.
func SkippedError(owner string) jsontext.Value {
	type fields struct {
		Owner string `json:"owner"`
	}
	type object struct {
		Name    string `json:"name"`
		Message string `json:"message"`
		Fields  fields `json:"fields"`
	}
	b, err := json.Marshal(object{"RunSkippedError", fmt.Sprintf("the run was skipped: run %s owns its key", owner), fields{owner}})
	if err != nil {
		panic("workflow: a sentence that is not text: " + err.Error())
	}
	return b
}

// Tree is what a suspended run waits for: a leaf, or a combination (H4). One of the fields is set.
type Tree struct {
	Retry *StepID
	Wait  *StepID
	All   []Tree
	Race  []Tree
	Any   []Tree
}

// Settled is how a leaf stands.
type Settled int

// How a leaf or a tree stands.
const (
	Open Settled = iota
	Done
	Threw
)

// Stands tells how a tree stands, given its leaves: as promises of JavaScript's combinators do.
func (t Tree) Stands(leaf func(StepID) Settled) Settled {
	switch {
	case t.Wait != nil:
		return leaf(*t.Wait)
	case t.All != nil:
		return combine(t.All, leaf, Threw, Done)
	case t.Any != nil:
		return combine(t.Any, leaf, Done, Threw)
	case t.Race != nil:
		for _, branch := range t.Race {
			if s := branch.Stands(leaf); s != Open {
				return s
			}
		}
	}
	return Open // a retry: it comes by its time, not by news
}

// combine is first as soon as one branch is, and last once all are.
func combine(branches []Tree, leaf func(StepID) Settled, first, last Settled) Settled {
	all := last
	for _, branch := range branches {
		stands := branch.Stands(leaf)
		if stands == first {
			return first
		}
		if stands == Open {
			all = Open
		}
	}
	return all
}
