// Package plan is what tests have apps do: a run's payload lists its steps, and each step's body says how it behaves. The apps of both
// languages carry it out alike (apps/go, apps/typescript). Tests write plans and read marks; nothing else uses this package.
package plan

import "time"

// Workflows that each app has.
const (
	Planned = "planned" // its payload is a Plan
	Heard   = "heard"   // as Planned, started by events: see Event
	Hooked  = "hooked"  // started by the webhook that bears the app's name; its body is a Plan
)

// Event is the name of the event that starts an app's workflow Heard.
func Event(app string) string { return app + ".heard" }

// Plan is what one run does.
type Plan struct {
	Steps []Step `json:"steps"`
	// Repeat adds so many steps, "step 1" and on, which do nothing but leave their mark.
	Repeat int `json:"repeat,omitempty"`
	// Gate holds the code outside steps, after the last one, until the gate is open.
	Gate string `json:"gate,omitempty"`
	// Parent is the run that a step started this one from, for the test to know.
	Parent string `json:"parent,omitempty"`
}

// Step is one step. Its body leaves a mark, takes its time, waits for its gate, fails or throws, and starts or emits, in this order.
type Step struct {
	Name    string `json:"name"`
	TakesMs int    `json:"takesMs,omitempty"`
	// Gate is the name of a file that ends the body's wait. Followed by a process's number it does so for that process, followed by
	// "attempt" and a number for that attempt.
	Gate string `json:"gate,omitempty"`
	// Throws is how many attempts throw, each asking for a quick retry.
	Throws int `json:"throws,omitempty"`
	// Child starts a run of Planned with one step, Emit emits Event with a plan of one step.
	Child bool `json:"child,omitempty"`
	Emit  bool `json:"emit,omitempty"`
	// SleepsMs makes the step a sleep, and WaitsFor one that waits for an event of that name: they have no body and leave no mark.
	SleepsMs int    `json:"sleepsMs,omitempty"`
	WaitsFor string `json:"waitsFor,omitempty"`
	// Invokes makes it a child run of Planned with these steps, for whose end it waits: it has no body either.
	Invokes []Step `json:"invokes,omitempty"`
	// Calls makes it a callback, whose address the code leaves in a mark before it waits for what is posted there.
	Calls bool `json:"calls,omitempty"`
	// Beside makes it these steps side by side, and none of its own.
	Beside []Step `json:"beside,omitempty"`
	// Fails has the body throw this text, and not be tried again.
	Fails string `json:"fails,omitempty"`
}

// Kinds of marks.
const (
	MarkBody    = "body"    // a body begins: what it does outside is done with this
	MarkAborted = "aborted" // its signal is aborted while it waits for its gate
	MarkEnded   = "ended"   // it returns
	MarkOutside = "outside" // the code outside steps waits for its gate
	MarkAddress = "address" // a callback has this URL
)

// Mark is one line of the file of marks.
type Mark struct {
	Kind    string  `json:"kind"`
	Run     string  `json:"run"`
	Step    string  `json:"step"`
	Attempt int     `json:"attempt"`
	PID     int     `json:"pid"`
	ID      string  `json:"id"`            // drawn by the body: its other marks and its result bear it too
	At      float64 `json:"at"`            // milliseconds since 1970
	Why     string  `json:"why,omitempty"` // of MarkAborted
	URL     string  `json:"url,omitempty"` // of MarkAddress
}

// Time is At.
func (m *Mark) Time() time.Time { return time.UnixMicro(int64(m.At * 1000)) }

// Result is a step's result.
type Result struct {
	ID    string `json:"id"`
	PID   int    `json:"pid"`
	Child string `json:"child,omitempty"`
	Event string `json:"event,omitempty"`
}

// Output is a run's output.
type Output struct {
	Steps int `json:"steps"`
	PID   int `json:"pid"`
}

// Variables by which a test tells an app what to be, beside the SDKs' own.
const (
	EnvAddr    = "E2E_ADDR"    // where it listens
	EnvMarks   = "E2E_MARKS"   // the file that marks are appended to
	EnvGates   = "E2E_GATES"   // the folder of gates
	EnvVersion = "E2E_VERSION" // 2 adds the step "added" before all others, 3 renames all
	EnvWithout = "E2E_WITHOUT" // a workflow that this version lacks
)

// Added is the step that version 2 adds, and Renamed what version 3 puts before names.
const (
	Added   = "added"
	Renamed = "renamed "
)
