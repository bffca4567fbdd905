// Package step has the steps of a workflow. Each function takes the run's context first and the step's name second.
//
// A step is found again by its name and the count of that name in the run: keep names stable between deploys, give steps that do
// different things different names, and say Was where a name changed.
//
// A step returns only when its end is saved. Its error is a *nelkap.StepError when the step failed for good. When the call
// ends at the step, because it waits for something or the process stops, the function does not return at all: its
// goroutine ends there, deferred functions run, and the run goes on in another call.
//
// Steps come one after the other, or side by side in Parallel, Map and Race. A second step in flight on the same context is refused
// with an error, and so is any step in the body of another.
package step

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/value"
)

// Run runs fn as a step. Once its result is saved, it never runs again in this run.
//
// fn gets a context of its own, which outlives the request and ends when the call was superseded, the run was cancelled or
// timed out, or the attempt's Timeout has passed; context.Cause says which. A deadline, a cancellation or a value of ctx does not reach
// it: give Timeout, and hand values over in the closure. An error or a panic of fn is tried again as
// Retries says, in this process or another. The result goes through JSON, also the first time; one that JSON can't hold
// fails the step at once, after fn ran. A result of struct{} comes back as JavaScript's undefined.
func Run[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error), opts ...Option) (T, error) {
	var result T
	output, err := run(ctx, &play.Request{Name: name, Body: bodyOf(name, fn)}, opts)
	if err == nil {
		err = decode(name, output, &result)
	}
	return result, err
}

// bodyOf is fn with its result as JSON; nil where there is none.
func bodyOf[T any](name string, fn func(ctx context.Context) (T, error)) func(context.Context) (json.RawMessage, error) {
	if fn == nil {
		return nil
	}
	return func(ctx context.Context) (json.RawMessage, error) {
		v, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		return encode(name, &v)
	}
}

func encode[T any](name string, v *T) (json.RawMessage, error) {
	output, err := value.Encode("result", v)
	if err != nil {
		return nil, nelkap.NonRetriable(&ResultError{name, err})
	}
	return output, nil
}

// decode reads the saved result of the step into into.
func decode[T any](name string, output json.RawMessage, into *T) error {
	if err := value.Decode(output, into); err != nil {
		return nelkap.NonRetriable(fmt.Errorf("nelkap: the saved result of step %q does not fit %T: %w", name, *into, err))
	}
	return nil
}

// Do runs fn as a step that has no result.
func Do(ctx context.Context, name string, fn func(ctx context.Context) error, opts ...Option) error {
	_, err := run(ctx, &play.Request{Name: name, Body: bodyWithout(fn)}, opts)
	return err
}

// bodyWithout is fn, which has no result; nil where there is none.
func bodyWithout(fn func(ctx context.Context) error) func(context.Context) (json.RawMessage, error) {
	if fn == nil {
		return nil
	}
	return func(ctx context.Context) (json.RawMessage, error) { return nil, fn(ctx) }
}

// errNoFunction says that a step was given nil in a function's place.
var errNoFunction = errors.New("nelkap: the step needs a function, and was given nil")

// RunWithCheck is Run for work that leaves a mark outside the app: check looks for the mark that an attempt before may have left. It
// runs before every attempt but a step's first start: after a cut, an error, a panic or a timeout, and first of all in a replay. What it
// finds, with ok true, is saved as the step's result, and fn does not run; an error of check fails the attempt, and fn does not run
// either. Without ok fn runs.
//
// check only looks: nelkap.Run and Emit are refused in it, since what it sent could not be told from what fn has sent.
//
// After a cut it waits until the attempt that was cut off is known to have stopped, ten seconds at most. Timeout bounds check and
// fn together.
func RunWithCheck[T any](ctx context.Context, name string, check func(ctx context.Context) (found T, ok bool, err error), fn func(ctx context.Context) (T, error), opts ...Option) (T, error) {
	var result T
	if check == nil {
		fn = nil // which is refused
	}
	look := func(ctx context.Context) (json.RawMessage, bool, error) {
		found, ok, err := check(ctx)
		if err != nil || !ok {
			return nil, false, err
		}
		output, err := encode(name, &found)
		return output, true, err
	}
	output, err := run(ctx, &play.Request{Name: name, Check: look, Body: bodyOf(name, fn)}, opts)
	if err == nil {
		err = decode(name, output, &result)
	}
	return result, err
}

// ResultError says that a step's result can't be saved. The step's body ran.
type ResultError struct {
	step string
	err  error
}

func (e *ResultError) Error() string {
	return fmt.Sprintf("the result of step %q can't be saved, though its body ran: %v", e.step, e.err)
}

// run asks for a step with a body.
func run(ctx context.Context, r *play.Request, opts []Option) (json.RawMessage, error) {
	f := play.From(ctx)
	if f == nil {
		return nil, notInRun(r.Name)
	}
	o := optionsOf(r, opts)
	r.Retries = o.retries
	switch {
	case r.AtMostOnce && (o.retries > 0 || r.Check != nil):
		o.err = errors.New("nelkap: a step that runs AtMostOnce has neither Retries nor a check: leave out one or the other")
	case r.AtMostOnce:
		r.Retries = 0
	case o.retries < 0:
		r.Retries = f.Playing.Retries()
	}
	if o.err == nil && r.Body == nil {
		o.err = errNoFunction
	}
	return ask(f, r, o.err)
}

// optionsOf are the options of r. Most steps have none, and theirs stay on the stack.
func optionsOf(r *play.Request, opts []Option) options {
	if len(opts) == 0 {
		return options{request: r, retries: -1}
	}
	o := options{request: r, retries: -1}
	for _, option := range opts {
		option.stepOption(&o)
	}
	return o
}

// ask asks for the step, unless an option of it does not fit.
func ask(f *play.Frame, r *play.Request, err error) (json.RawMessage, error) {
	if err != nil {
		return nil, misused(r.Name, err)
	}
	output, err := f.Step(r)
	if play.Misuse(err) {
		return nil, misused(r.Name, err)
	}
	return output, err
}

func misused(name string, err error) error {
	return nelkap.NonRetriable(fmt.Errorf("step %q: %w", name, err))
}

func notInRun(name string) error { return fmt.Errorf("step %q: %w", name, nelkap.ErrNotInRun) }

// IdempotencyKey is the same for every attempt of the step in its run, and another in a replay. It panics outside a step: an
// empty key would switch the provider's check off.
func IdempotencyKey(ctx context.Context) string { return current(ctx).IdempotencyKey() }

// Attempt is 1 for the first attempt. It panics outside a step.
func Attempt(ctx context.Context) int { return current(ctx).Attempt }

func current(ctx context.Context) *play.Attempt {
	if f := play.From(ctx); f != nil && f.Attempt != nil {
		return f.Attempt
	}
	panic(nelkap.ErrNotInStep)
}

// Option is an option of a step with a body.
type Option interface{ stepOption(*options) }

type options struct {
	request *play.Request
	retries int // -1: not given
	err     error
}

type option func(*options)

func (o option) stepOption(to *options) { o(to) }

// Retries is how many tries beyond the first the step has; without it, as many as the workflow gives its steps.
func Retries(n int) Option {
	return option(func(o *options) {
		if n < 0 {
			o.err = fmt.Errorf("nelkap: Retries can't be %d", n)
		}
		o.retries = n
	})
}

// AtMostOnce is for work that must never happen twice: the step has no retries, and one that was cut off while its body ran does not
// run again but fails with an error that is nelkap.ErrStepInterrupted. Whether the work took effect is then not known.
func AtMostOnce() Option {
	return option(func(o *options) { o.request.AtMostOnce = true })
}

// TimeoutOption is what Timeout makes.
type TimeoutOption struct{ d time.Duration }

func (t TimeoutOption) stepOption(o *options) {
	o.request.Timeout = t.d
	if t.d <= 0 {
		o.err = t.refusal()
	}
}

func (t TimeoutOption) refusal() error { return fmt.Errorf("nelkap: Timeout can't be %v", t.d) }

// Timeout bounds an attempt of a step with a body. When it has passed, the attempt's context ends and the attempt fails, to be tried
// again. A body that does not heed its context goes on meanwhile: the next attempt may overlap it.
//
// It bounds a wait for an event or a callback, which has not come then, and a child run, which is cancelled. The time counts from when
// the server has opened the wait, made the callback, or started the child. Of no time at all, a wait for an event gives what is there.
func Timeout(d time.Duration) TimeoutOption { return TimeoutOption{d} }

// WasOption is what Was makes.
type WasOption struct{ name string }

func (w WasOption) stepOption(o *options) { o.request.Was, o.err = w.name, w.check(o.err) }

func (w WasOption) check(before error) error {
	if w.name == "" {
		return errors.New("nelkap: Was needs the name that the step had before")
	}
	return before
}

// Was is the step's name before it was renamed: runs that know the step under that name go on with what it has there. It is found by
// the old name and the count of the new one, or the next count that no step before it has; where steps of one name run side by side,
// rename all of them or none. Leave it out once no run with the old name is left.
func Was(name string) WasOption { return WasOption{name} }
