package nelkaptest

import (
	"context"
	"encoding/json"
	"fmt"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/value"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// Option is an option of Run, and of CrashEverywhere too.
type Option interface {
	CrashOption
	runOption(o *options)
}

type option func(*options)

func (o option) runOption(to *options)        { o(to) }
func (o option) crashOption(to *crashOptions) { o(&to.options) }

type options struct {
	steps     map[string]fakeStep
	workflows map[string]fakeWorkflow
	filters   map[string]func(nelkap.ReceivedEvent) bool
	outside   []fromOutside
	claimed   []string
	startedBy string
	start     []nelkap.RunOption
	report    *Played
	bodiesMax int // 0: none
}

// fakeStep stands in for the functions of a step; nil does not.
type fakeStep struct {
	run   func(ctx context.Context) (json.RawMessage, error)
	check func(ctx context.Context) (json.RawMessage, bool, error)
}

type fakeWorkflow func(ctx context.Context, payload json.RawMessage) (json.RawMessage, *wire.Error)

// FakeStep has fn run in place of the bodies of all steps of that name: that of an undo is its body's too, and the steps of handlers have
// names that begin with "onFailure: " or "onCancel: ". It gets the step's context, as the body does, and its errors
// are tried again as the body's are. T must be what the step gives, as JSON has it. A step's check stays its own.
func FakeStep[T any](name string, fn func(ctx context.Context) (T, error)) Option {
	return option(func(o *options) {
		fake := o.steps[name]
		fake.run = func(ctx context.Context) (json.RawMessage, error) {
			v, err := fn(ctx)
			if err != nil {
				return nil, err
			}
			output, err := value.Encode("result", &v)
			return output, nelkap.NonRetriable(err)
		}
		o.fakeStep(name, fake)
	})
}

// FakeCheck has fn run in place of the checks of all steps of that name, as FakeStep does for bodies.
func FakeCheck[T any](name string, fn func(ctx context.Context) (found T, ok bool, err error)) Option {
	return option(func(o *options) {
		fake := o.steps[name]
		fake.check = func(ctx context.Context) (json.RawMessage, bool, error) {
			v, ok, err := fn(ctx)
			if err != nil || !ok {
				return nil, false, err
			}
			output, err := value.Encode("result", &v)
			return output, true, nelkap.NonRetriable(err)
		}
		o.fakeStep(name, fake)
	})
}

func (o *options) fakeStep(name string, fake fakeStep) {
	if o.steps == nil {
		o.steps = map[string]fakeStep{}
	}
	o.steps[name] = fake
}

// FakeWorkflow has fn play the runs of wf, which may be a Ref: those that the code starts, and those that it invokes. It is called once
// for each run, and nothing else is played meanwhile; an error of fn fails that run. What it sends by its context is sent as from outside
// any run.
func FakeWorkflow[In, Out any](wf *nelkap.Workflow[In, Out], fn func(ctx context.Context, payload In) (Out, error)) Option {
	return option(func(o *options) {
		if o.workflows == nil {
			o.workflows = map[string]fakeWorkflow{}
		}
		o.workflows[wf.Name()] = func(ctx context.Context, raw json.RawMessage) (json.RawMessage, *wire.Error) {
			var payload In
			if err := value.Decode(raw, &payload); err != nil {
				return nil, &wire.Error{Name: "Error", Message: fmt.Sprintf("the payload does not fit workflow %q: %v", wf.Name(), err)}
			}
			out, err := fn(ctx, payload)
			var output json.RawMessage
			if err == nil {
				output, err = value.Encode("output", &out)
			}
			if err != nil {
				return nil, &wire.Error{Name: "Error", Message: err.Error()}
			}
			return output, nil
		}
	})
}

// Events are emitted from outside while the run goes on, each once, as soon as the run waits for it. One that it never waits for is not
// emitted. It panics for one without a name, and where JSON can't hold a payload.
func Events(events ...nelkap.Event) Option {
	var made []fromOutside
	for _, e := range events {
		each, err := eventOf(e)
		if err != nil {
			panic(err.Error())
		}
		made = append(made, fromOutside{event: each})
	}
	return option(func(o *options) { o.outside = append(o.outside, made...) })
}

// Posts posts to the callback of the step of that name, as soon as the run waits for it. It panics where JSON can't hold the payload.
func Posts(callback string, payload any) Option {
	text, err := value.EncodeAny("payload", payload)
	if err != nil {
		panic(fmt.Sprintf("nelkaptest: the payload for callback %q can't be sent: %v", callback, err))
	}
	return option(func(o *options) { o.outside = append(o.outside, fromOutside{callback: callback, payload: text}) })
}

// CancelledAt cancels the run from outside as soon as it waits for a step of that name: a sleep, an event, a child run, a callback, or the
// next attempt of a step that threw. Cancel does it from a body.
func CancelledAt(step string) Option {
	return option(func(o *options) { o.outside = append(o.outside, fromOutside{cancelAt: step}) })
}

// Filter says what the filter of a wait or of CancelOn gives, by its text: the kit evaluates no CEL.
func Filter(text string, passes func(event nelkap.ReceivedEvent) bool) Option {
	return option(func(o *options) {
		if o.filters == nil {
			o.filters = map[string]func(nelkap.ReceivedEvent) bool{}
		}
		o.filters[text] = passes
	})
}

// Claimed are keys of step.Claim and nelkap.Once that another run owns.
func Claimed(keys ...string) Option {
	return option(func(o *options) { o.claimed = append(o.claimed, keys...) })
}

// StartedBy is the name of the event that starts the run: nelkap.CurrentRun shows it, with the run's payload as its own.
func StartedBy(event string) Option {
	return option(func(o *options) { o.startedBy = event })
}

// StartedWith are options that the run is started with.
func StartedWith(opts ...nelkap.RunOption) Option {
	return option(func(o *options) { o.start = append(o.start, opts...) })
}

// Report writes what became of the run to into, once the run has ended or can't go on. CrashEverywhere writes nothing: see Check.
func Report(into *Played) Option {
	return option(func(o *options) { o.report = into })
}
