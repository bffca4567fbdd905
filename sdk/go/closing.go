package nelkap

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/nelkap/nelkap/sdk/go/internal/core"
	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/value"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// Failure is what OnFailure is given.
type Failure[In any] struct {
	Payload In
	// Err is why the run failed: a *RunError with the name, the message, the stack and the causes that were saved. errors.Is finds
	// ErrTimeout where the run timed out, and ErrStepCutOff and the like by the name.
	Err error
	// Run is the run as its call tells it: ID, Workflow, App, Payload, Error, Event, EventID, Key, ReplayOf, Attempt and CreatedAt; its
	// Status is the one that it ends with. The other fields are not set.
	Run RunRecord
	// Steps are the steps that were saved before the closing, in the history's order.
	Steps []SavedStep
}

// Cancellation is what OnCancel is given. Its fields are those of Failure.
type Cancellation[In any] struct {
	Payload In
	Run     RunRecord
	Steps   []SavedStep
}

// SavedStep is a step with its saved end.
type SavedStep struct {
	Name   string
	Number int    // which of the steps of that name, from 1
	Kind   string // run, sleep, event, invoke, callback, claim or undo
	Status Status // StatusCompleted or StatusFailed
	Output json.RawMessage
	Err    error // a *StepError; nil unless it failed
}

// OnFailure is called when a run has failed for good or timed out, after what it had to undo (step.Undo): in a call of its own, which
// is tried again as the workflow's code is. It may run steps of all kinds but Undo and Restart; their names begin with "onFailure: "
// wherever they are shown, and are counted apart from the workflow's. The run then has its end, whatever comes of this, and keeps its
// error. NewWorkflow panics where In is not the workflow's payload.
func OnFailure[In any](fn func(ctx context.Context, failure Failure[In]) error) WorkflowOption {
	return workflowOption(func(d *definition) { d.onFailure = fn })
}

// OnCancel is called when a run was cancelled, as OnFailure is when it failed. The names of its steps begin with "onCancel: ".
func OnCancel[In any](fn func(ctx context.Context, cancellation Cancellation[In]) error) WorkflowOption {
	return workflowOption(func(d *definition) { d.onCancel = fn })
}

// closed is what a handler is made of.
type closed struct {
	run   *wire.Run
	err   *wire.Error // nil for a cancelled run
	steps []SavedStep
}

func onFailure[In any](d *definition) func(context.Context, *closed) error {
	if d.onFailure == nil {
		return nil
	}
	fn, ok := d.onFailure.(func(context.Context, Failure[In]) error)
	if !ok || fn == nil {
		panic(notOf[In](d, "OnFailure", "Failure", d.onFailure))
	}
	return func(ctx context.Context, c *closed) error {
		payload, err := payloadOf[In](d, c.run)
		if err != nil {
			return err
		}
		run := c.record(StatusFailed)
		if run.Error == nil {
			run.Error = &RunError{Name: "Error", Message: "the run failed"}
		}
		return fn(ctx, Failure[In]{Payload: payload, Err: run.Error, Run: run, Steps: c.steps})
	}
}

func onCancel[In any](d *definition) func(context.Context, *closed) error {
	if d.onCancel == nil {
		return nil
	}
	fn, ok := d.onCancel.(func(context.Context, Cancellation[In]) error)
	if !ok || fn == nil {
		panic(notOf[In](d, "OnCancel", "Cancellation", d.onCancel))
	}
	return func(ctx context.Context, c *closed) error {
		payload, err := payloadOf[In](d, c.run)
		if err != nil {
			return err
		}
		return fn(ctx, Cancellation[In]{Payload: payload, Run: c.record(StatusCancelled), Steps: c.steps})
	}
}

func notOf[In any](d *definition, option, given string, got any) string {
	in := reflect.TypeFor[In]()
	return fmt.Sprintf("nelkap: workflow %q: %s needs a func(context.Context, %s[%v]) error, of the workflow's payload, and got a %T",
		d.name, option, given, in, got)
}

func payloadOf[In any](d *definition, run *wire.Run) (payload In, err error) {
	if err := value.Decode(run.Payload, &payload); err != nil {
		return payload, NonRetriable(fmt.Errorf("the payload does not fit workflow %q: %w", d.name, err))
	}
	return payload, nil
}

// record is the run as the call carries it.
func (c *closed) record(status Status) RunRecord {
	r := c.run
	record := RunRecord{
		ID: r.ID, Workflow: r.Workflow, App: r.App, Status: status, Payload: r.Payload, Error: runError(c.err), Key: r.Key,
		ReplayOf: r.ReplayOf, Attempt: r.Attempt, CreatedAt: r.CreatedAt,
	}
	if r.Event != nil {
		record.Event, record.EventID = r.Event.Event, r.Event.ID
	}
	return record
}

// close gives the playing of a run that closes its handler.
func (d *definition) close(config *play.Config, call *wire.Call) {
	handler, prefix := d.failed, core.OnFailurePrefix
	if call.Ending.Reason == wire.ReasonCancelled {
		handler, prefix = d.cancelled, core.OnCancelPrefix
	}
	if handler == nil {
		return
	}
	config.Prefix = prefix
	config.Handler = func(ctx context.Context, entries []*wire.Entry) error {
		c := &closed{run: &call.Run, err: call.Ending.Error, steps: make([]SavedStep, len(entries))}
		for i, e := range entries {
			c.steps[i] = SavedStep{Name: e.Name, Number: e.Number, Kind: e.Kind, Status: Status(e.Status), Output: e.Output}
			if e.Status == wire.OpFailed {
				c.steps[i].Err = stepError(e)
			}
		}
		return handler(ctx, c)
	}
}
