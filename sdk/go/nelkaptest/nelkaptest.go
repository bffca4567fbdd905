// Package nelkaptest runs workflows in tests, without a server.
//
// The SDK plays the run as in production, against a server in miniature in memory: histories, calls, retries, waits, child runs,
// claims, callbacks, restarts and closings go by the protocol's rules. When nothing runs, the kit's clock leaps to what is due next, so that sleeps of days, pauses
// of retries and timeouts of waits pass at once. [Run] plays a workflow once; [CrashEverywhere] plays it again and again, cut off at
// another place each time, and proves that nothing of it happens twice.
//
// Only the kit's clock leaps: time.Now stays real, and a body takes as long as it takes. In a testing/synctest bubble time.Now
// is the bubble's, so that a body that sleeps, and the Timeout of a step, take no time either. The kit itself needs no bubble.
//
// What steps send goes to the kit by their contexts. Not played are replays, triggers (events start no runs), workflows of other apps, for
// which [FakeWorkflow] stands in, and CEL filters, for which [Filter] says what they give; nor does the kit tell two sends of a step that
// changed places. Everything here may be used by tests in parallel, also where they share one App.
package nelkaptest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/value"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// Run plays a run of wf until it has ended, and gives its output as it comes back after JSON. It blocks meanwhile.
//
// Every step runs for real unless FakeStep stands in its place; runs that the code starts or invokes are played too. A run that failed
// is a *nelkap.RunError; one that was cancelled or skipped is an error that is nelkap.ErrCancelled or nelkap.ErrSkipped. A payload that
// JSON can't hold is the error that nelkap.Run gives. Where ctx ends before the run does, its cause is the error.
//
// It fails the test at once where the run waits for something that no time brings, or where the kit can't go on: the message says what to
// give it. When it returns, nothing of the run goes on but bodies that heed no context.
func Run[In, Out any](t testing.TB, ctx context.Context, wf *nelkap.Workflow[In, Out], payload In, opts ...Option) (Out, error) {
	t.Helper()
	o := &options{}
	for _, each := range opts {
		each.runOption(o)
	}
	var out Out
	w := newWorld(o, inTime)
	defer w.stop()
	root, err := startIn(ctx, w, wf, payload)
	if err != nil {
		return out, err
	}
	err = w.play(ctx, root.hasEnded)
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.report != nil {
		*o.report = w.played(root)
	}
	if err != nil && ctx.Err() != nil {
		return out, err
	}
	if err != nil {
		t.Fatalf("nelkaptest: %v", err)
	}
	if err := root.err(); err != nil {
		return out, err
	}
	if err := value.Decode(root.output, &out); err != nil {
		return out, fmt.Errorf("nelkaptest: the output does not fit %T: %w", out, err)
	}
	return out, nil
}

// startIn starts a run of wf, as nelkap.Run does from outside.
func startIn[In, Out any](ctx context.Context, w *world, wf *nelkap.Workflow[In, Out], payload In) (*run, error) {
	handle, err := nelkap.Run(play.WithStage(ctx, newProcess(w, nil)), wf, payload, w.options.start...)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	root := w.find(handle.ID)
	if !root.played {
		w.fail(fmt.Errorf("workflow %q is a reference to one that its app does not declare: give the workflow of NewWorkflow", wf.Name()))
	}
	return root, nil
}

// err is the run's end as an error, nil where it completed.
func (r *run) err() error {
	switch r.status { //nolint:exhaustive // a run that has ended is none of the others
	case nelkap.StatusFailed:
		return runError(r.failure)
	case nelkap.StatusCancelled:
		return fmt.Errorf("%w (%s)", nelkap.ErrCancelled, r.id)
	case nelkap.StatusSkipped:
		return fmt.Errorf("%w (%s)", nelkap.ErrSkipped, r.id)
	}
	return nil
}

func runError(e *wire.Error) *nelkap.RunError {
	if e == nil {
		return nil
	}
	return &nelkap.RunError{Name: e.Name, Message: e.Message, Stack: e.Stack, Cause: runError(e.Cause), Fields: e.Fields}
}

// Played is what became of a run.
type Played struct {
	Status nelkap.Status
	// Output is what the workflow returned, as JSON; nil where it returned nothing or has not completed.
	Output json.RawMessage
	// Error is why the run failed; nil where it did not.
	Error *nelkap.RunError
	// Calls is how often the workflow's function was called.
	Calls int
	// Took is how long the run took by the kit's clock.
	Took time.Duration
	// Steps are the saved steps in the order of the history.
	Steps []PlayedStep
	// Restarts is how often it began again, by step.Restart; Steps are those since then.
	Restarts int
	// Lines are what it wrote with nelkap.Log, in the order in which the kit came to know them, each once.
	Lines []PlayedLine
	// Events are those of this test, from steps and from outside, in order.
	Events []nelkap.ReceivedEvent
}

// PlayedStep is a saved step of a run.
type PlayedStep struct {
	Name   string
	Number int // which of the steps of that name, from 1
	Kind   string
	// Output is the result as JSON, nil where there is none.
	Output json.RawMessage
	Error  *nelkap.RunError // nil unless it failed
	// Attempts is how often its body was tried; one that was cut off does not count.
	Attempts int
}

// PlayedLine is a line of the run's log.
type PlayedLine struct {
	Level   slog.Level
	Message string
	Fields  json.RawMessage // its attributes as a JSON object, groups as objects in it; nil where it has none
	Step    string          // whose body or check wrote it; empty: code outside steps
	Number  int             // of that step
	Attempt int             // of the step, or of the code outside steps
}

// played is the run as users see it. mu is held.
func (w *world) played(r *run) Played {
	p := Played{Status: r.status, Output: r.output, Error: runError(r.failure), Calls: r.calls, Took: w.now().Sub(r.createdAt), Restarts: r.restarts}
	if r.hasEnded() {
		p.Took = r.endedAt.Sub(r.createdAt)
	}
	for _, e := range r.entries {
		if e.Name != "" {
			p.Steps = append(p.Steps, PlayedStep{e.Name, e.Number, e.Kind, e.Output, runError(e.Error), e.Attempts})
		}
	}
	for i := range r.lines {
		p.Lines = append(p.Lines, r.lines[i].played())
	}
	for _, e := range w.events {
		p.Events = append(p.Events, e.received())
	}
	return p
}

// ErrNotInTest says that Emit or Post was given a context that is none of a run that this package plays.
var ErrNotInTest = errors.New("nelkaptest: not in a run of nelkaptest: give the context of a step's body or of its fake")

// Emit emits an event as from outside any run, while a run is played; ctx is that of the body, or of a fake, that calls it.
// It fails with ErrNotInTest elsewhere, for an event without a name, and where JSON can't hold the payload. The event's At is not looked at.
func Emit(ctx context.Context, e nelkap.Event) error {
	p, ok := play.StageOf(ctx).(*process)
	if !ok {
		return ErrNotInTest
	}
	made, err := eventOf(e)
	if err != nil {
		return err
	}
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.world.store(made)
	p.world.changed()
	return nil
}

// Cancel cancels the run that ctx belongs to, as from outside any run, while it is played; ctx is that of the body, or of a fake, that
// calls it. It fails with ErrNotInTest elsewhere.
func Cancel(ctx context.Context) error {
	p, ok := play.StageOf(ctx).(*process)
	if !ok || p.run == nil {
		return ErrNotInTest
	}
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.world.cancel(p.run, wire.ReasonCancelled)
	p.world.changed()
	return nil
}

// Post posts to an open callback, by the name of its step, its URL or its token, as Emit emits an event. It fails where none such is
// open: it was not made yet, was posted to before, or its time or run is over.
func Post(ctx context.Context, callback string, payload any) error {
	p, ok := play.StageOf(ctx).(*process)
	if !ok {
		return ErrNotInTest
	}
	text, err := value.EncodeAny("payload", payload)
	if err != nil {
		return fmt.Errorf("nelkaptest: the payload for callback %q can't be sent: %w", callback, err)
	}
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	for _, r := range p.world.runs {
		if p.world.post(r, callback, text) {
			p.world.changed()
			return nil
		}
	}
	return fmt.Errorf("nelkaptest: no callback %q is open: it was not made yet, was posted to before, or its time or run is over", callback)
}

func eventOf(e nelkap.Event) (*event, error) {
	if err := play.CheckName("event", e.Name); err != nil {
		return nil, err
	}
	made := &event{ID: e.ID, Event: e.Name}
	if e.Payload == nil {
		return made, nil
	}
	var err error
	if made.Payload, err = value.EncodeAny("payload", e.Payload); err != nil {
		return nil, fmt.Errorf("nelkaptest: the payload of event %q can't be sent: %w", e.Name, err)
	}
	return made, nil
}
