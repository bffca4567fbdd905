// Package history records what clients asked of a server and what they heard, each with its times, and tells whether a server that does
// one thing after the other could have answered so. Four things are asked of every history, each of them by itself:
//
//   - a run key, a run's id and an event's id are claimed once: every claim is answered with the first one's, created by that one alone (K4, K6, W8);
//   - what was acknowledged is there, and a final status never changes; cancelled stays cancelled (W3, Z1);
//   - a step's saved result never changes (W1), and its body never begins once somebody has seen it saved;
//   - a body begins only when the step before it is saved (H1).
//
// A request without an answer may have had its effect, then or at any time later, or none. The package judges what it is told and
// asks nobody; the kill tests tell it.
package history

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Never is when an answer came that did not.
const Never = math.MaxInt64

const (
	// partLimit bounds the search in one part of a history. A part has some dozens of operations and takes a millisecond.
	partLimit = 20 * time.Second
	// shownMax bounds how many operations a violation shows.
	shownMax = 60
)

// Span is when something was asked and answered, in nanoseconds since the history began.
type Span struct{ Asked, Heard int64 }

// part is what is checked by itself: one register, run or step.
type part struct{ kind, name string }

// History is what happened. It may be used by many goroutines.
type History struct {
	begun time.Time

	mu    sync.Mutex
	parts map[part][]porcupine.Operation // guarded by mu
	lost  map[part]map[any]bool          // what was asked in vain already, by its input; guarded by mu
}

// New begins a history.
func New() *History {
	return &History{begun: time.Now(), parts: map[part][]porcupine.Operation{}, lost: map[part]map[any]bool{}}
}

// At is when something happened that bears the time of a wall clock.
func (h *History) At(t time.Time) int64 { return int64(t.Sub(h.begun)) }

// Now is the time.
func (h *History) Now() int64 { return int64(time.Since(h.begun)) }

// Claim is what a register is asked for: to be owned by an id, with a value. A Drawn id was drawn for this request alone: whoever
// asks with it again asks for the same, and is answered as the first time (K6).
type Claim struct {
	ID, Value string
	Drawn     bool
}

// Claimed is what a register answers.
type Claimed struct {
	ID      string // the owner's
	Created bool
	Differs bool // it was claimed with another value
}

// Claim records that a register, such as a run key, was claimed; got is nil without an answer.
func (h *History) Claim(s Span, register string, want Claim, got *Claimed) {
	h.add(part{claims, register}, s, want, got == nil, got)
}

// Start records that a run was started; known tells that it was acknowledged.
func (h *History) Start(s Span, run string, known bool) {
	h.add(part{runs, run}, s, startRun, !known, nil)
}

// Cancel records that a run's end was asked for.
func (h *History) Cancel(s Span, run string, known bool) {
	h.add(part{runs, run}, s, cancelRun, !known, nil)
}

// Seen is what a read shows of a run.
type Seen struct {
	Found       bool
	CancelAsked bool
	Status      string
	Final       string // all that may not change any more; empty while the run goes on
}

// Read records what a read showed of a run.
func (h *History) Read(s Span, run string, seen Seen) {
	h.add(part{runs, run}, s, readRun, false, seen)
}

// Step names a step of a run.
type Step struct{ Run, Name string }

func (s Step) part() part { return part{steps, s.Run + " " + s.Name} }

// Saved records that a read showed a step with its result; without one it showed none.
func (h *History) Saved(s Span, step Step, result string) {
	h.add(step.part(), s, readStep, false, result)
}

// Begins records that a step's body begins.
func (h *History) Begins(s Span, step Step) { h.add(step.part(), s, beginBody, false, nil) }

// Passed records that code goes on after a step.
func (h *History) Passed(s Span, step Step) { h.add(step.part(), s, passStep, false, nil) }

// add records an operation. Of several equal ones without an answer the first stands for all: each of them may happen at any time
// after it, and once it has, the others change nothing.
func (h *History) add(p part, s Span, input any, isLost bool, output any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if isLost {
		if h.lost[p][input] {
			return
		}
		if h.lost[p] == nil {
			h.lost[p] = map[any]bool{}
		}
		h.lost[p][input] = true
		s.Heard, output = Never, noAnswer{}
	}
	h.parts[p] = append(h.parts[p], porcupine.Operation{Input: input, Call: s.Asked, Output: output, Return: s.Heard})
}

// Verdict is what a check says.
type Verdict struct {
	Parts      int            // how many registers, runs and steps were checked
	Operations map[string]int // by kind of part
	Lost       int            // operations without an answer
	Violations []string       // empty: there is nothing to object to
}

// Check checks the whole history. What can't be decided in time counts as a violation: it was not shown to hold.
func (h *History) Check() Verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := Verdict{Parts: len(h.parts), Operations: map[string]int{}}
	for p, operations := range h.parts {
		v.Operations[p.kind] += len(operations)
		for _, o := range operations {
			if o.Return == Never {
				v.Lost++
			}
		}
		switch porcupine.CheckOperationsTimeout(models[p.kind], operations, partLimit) {
		case porcupine.Ok:
		case porcupine.Illegal:
			v.Violations = append(v.Violations, fmt.Sprintf("no order of these explains what was answered about the %s %s:\n%s", p.kind, p.name, listed(operations)))
		default:
			v.Violations = append(v.Violations, fmt.Sprintf("the history of the %s %s could not be decided within %v:\n%s", p.kind, p.name, partLimit, listed(operations)))
		}
	}
	slices.Sort(v.Violations)
	return v
}

// listed writes operations down in the order in which they were asked.
func listed(operations []porcupine.Operation) string {
	sorted := slices.SortedFunc(slices.Values(operations), func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var text strings.Builder
	for _, o := range sorted[:min(len(sorted), shownMax)] {
		until := "never"
		if o.Return != Never {
			until = fmt.Sprintf("%.3f s", time.Duration(o.Return).Seconds())
		}
		fmt.Fprintf(&text, "  %.3f s to %s: %v", time.Duration(o.Call).Seconds(), until, o.Input)
		if claimed, ok := o.Output.(*Claimed); ok {
			fmt.Fprintf(&text, " answered %+v\n", *claimed)
		} else {
			fmt.Fprintf(&text, " answered %+v\n", o.Output)
		}
	}
	if more := len(sorted) - shownMax; more > 0 {
		fmt.Fprintf(&text, "  and %d more\n", more)
	}
	return text.String()
}
