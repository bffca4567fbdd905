// Package step has the steps of a workflow. Each function takes the run's context first and the step's name second.
//
// A step is found again by its name and the count of that name in the run: keep names stable between deploys, and give
// steps that do different things different names. Steps of one workflow run one after the other; a second step in flight on
// the same context is refused with an error.
//
// A step returns only when its end is saved. Its error is a *nelkap.StepError when the step failed for good. When the call
// ends at the step, because it waits for its next attempt or the process stops, the function does not return at all: its
// goroutine ends there, deferred functions run, and the run goes on in another call.
package step

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/value"
)

// Run runs fn as a step. Once its result is saved, it never runs again in this run.
//
// fn gets a context of its own, which outlives the request and ends when the call was superseded, the run was cancelled or
// timed out, or the attempt's Timeout has passed; context.Cause says which. An error or a panic of fn is tried again as
// Retries says, in this process or another. The result goes through JSON, also the first time; one that JSON can't hold
// fails the step at once, after fn ran. A result of struct{} comes back as JavaScript's undefined.
func Run[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error), opts ...Option) (T, error) {
	var result T
	output, err := run(ctx, name, opts, func(ctx context.Context) (json.RawMessage, error) {
		v, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		output, err := value.Encode("result", &v)
		if err != nil {
			return nil, nelkap.NonRetriable(&ResultError{name, err})
		}
		return output, nil
	})
	if err != nil {
		return result, err
	}
	if err := value.Decode(output, &result); err != nil {
		return result, nelkap.NonRetriable(fmt.Errorf("nelkap: the saved result of step %q does not fit %T: %w", name, result, err))
	}
	return result, nil
}

// Do runs fn as a step that has no result.
func Do(ctx context.Context, name string, fn func(ctx context.Context) error, opts ...Option) error {
	_, err := run(ctx, name, opts, func(ctx context.Context) (json.RawMessage, error) { return nil, fn(ctx) })
	return err
}

// ResultError says that a step's result can't be saved. The step's body ran.
type ResultError struct {
	step string
	err  error
}

func (e *ResultError) Error() string {
	return fmt.Sprintf("the result of step %q can't be saved, though its body ran: %v", e.step, e.err)
}

func run(ctx context.Context, name string, opts []Option, body func(context.Context) (json.RawMessage, error)) (json.RawMessage, error) {
	f := play.From(ctx)
	if f == nil {
		return nil, fmt.Errorf("step %q: %w", name, nelkap.ErrNotInRun)
	}
	o := options{retries: f.Playing.Retries()}
	for _, option := range opts {
		option.stepOption(&o)
	}
	if o.err != nil {
		return nil, nelkap.NonRetriable(fmt.Errorf("step %q: %w", name, o.err))
	}
	output, err := f.Step(&play.Request{Name: name, Retries: o.retries, Timeout: o.timeout, Body: body})
	if play.Misuse(err) {
		return nil, nelkap.NonRetriable(fmt.Errorf("step %q: %w", name, err))
	}
	return output, err
}

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
	retries int
	timeout time.Duration
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

// TimeoutOption is what Timeout makes.
type TimeoutOption struct{ d time.Duration }

func (t TimeoutOption) stepOption(o *options) {
	if t.d <= 0 {
		o.err = fmt.Errorf("nelkap: Timeout can't be %v", t.d)
	}
	o.timeout = t.d
}

// Timeout bounds an attempt. When it has passed, the attempt's context ends and the attempt fails, to be tried again. A body
// that does not heed its context goes on meanwhile: the next attempt may overlap it.
func Timeout(d time.Duration) TimeoutOption { return TimeoutOption{d} }
