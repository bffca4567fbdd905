package play

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/nelkap/nelkap/sdk/go/internal/core"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// nameBytesMax bounds a name: the server's limit.
const nameBytesMax = 256

// CheckName refuses names that can't be saved; kind is what is named.
func CheckName(kind, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: a %s needs one", errName, kind)
	case len(name) > nameBytesMax:
		return fmt.Errorf("%w: that of a %s has at most %d bytes, this one has %d", errName, kind, nameBytesMax, len(name))
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: that of a %s must be UTF-8, %q is not", errName, kind, name)
	}
	return nil
}

// Request is a step that the code asks for.
type Request struct {
	Name    string
	Retries int
	Timeout time.Duration // of an attempt; 0: none
	// Body gives the result as JSON, nil for undefined.
	Body func(ctx context.Context) (json.RawMessage, error)

	released chan struct{}
	cancel   context.CancelCauseFunc
	attempt  *Attempt
	deadline time.Time
}

// Step runs a step, or gives its saved end: the result as JSON, nil for undefined, or what Host.StepError makes of its
// failure. It does not return when the call ends meanwhile (H7).
func (f *Frame) Step(r *Request) (json.RawMessage, error) {
	if f.Attempt != nil {
		return nil, ErrInStep
	}
	if err := CheckName("step", r.Name); err != nil {
		return nil, err
	}
	p := f.Playing
	r.released = make(chan struct{})
	var step *core.Step
	var err error
	p.input(func(now time.Time) {
		step, err = p.m.Ask(f.branch, r.Name, core.AskOptions{Retries: r.Retries}, r, now)
	})
	switch {
	case errors.Is(err, core.ErrOver):
		return nil, p.exit()
	case errors.Is(err, core.ErrBusy):
		return nil, ErrStepInFlight
	case errors.Is(err, core.ErrStepsMax):
		return nil, ErrStepsMax
	}
	select {
	case <-r.released:
		if step.Entry.Status == wire.OpFailed {
			return nil, p.host.StepError(step.Entry)
		}
		return step.Entry.Output, nil
	case <-p.unwind:
		return nil, p.exit()
	}
}

// startBody starts the body of s in a goroutine. p.mu is held. Its context is its own: it survives the request's and the
// code's (C8).
func (p *Playing) startBody(s *core.Step) {
	r := s.Shell.(*Request)
	attempt := &Attempt{Name: s.Name, Number: s.Number, Attempt: s.Attempt, run: &p.call.Run}
	ctx, cancel := context.WithCancelCause(context.Background())
	r.cancel, r.attempt = cancel, attempt
	settle := func() { cancel(ErrCallOver) }
	if r.Timeout > 0 {
		r.deadline = time.Now().Add(r.Timeout)
		timed, stopTimer := context.WithDeadlineCause(ctx, r.deadline, ErrTimeout)
		stopWatch := context.AfterFunc(timed, func() { p.timedOut(s, r, attempt, context.Cause(timed)) })
		ctx, settle = timed, func() { stopWatch(); stopTimer(); cancel(ErrCallOver) }
	}
	p.live++
	go p.runBody(with(ctx, &Frame{Playing: p, Attempt: attempt}), s, r, attempt, settle)
}

// bodies counts the bodies that run in this process.
var bodies atomic.Int64

// Bodies is how many bodies run in this process.
func Bodies() int64 { return bodies.Load() }

// runBody runs one attempt and says how it ended; settle then ends the context.
func (p *Playing) runBody(ctx context.Context, s *core.Step, r *Request, attempt *Attempt, settle func()) {
	var output json.RawMessage
	var err error
	returned := false
	bodies.Add(1)
	defer bodies.Add(-1)
	defer func() {
		end := core.Settled{Output: output}
		if failure := p.failure(err, returned, recover()); failure != nil {
			end = *failure
			if errors.Is(context.Cause(ctx), ErrTimeout) {
				end = timeoutFailure(r.Timeout)
			}
		}
		if attempt.isAmbiguous() {
			end = p.host.Failure(ErrAmbiguousSend)
			end.Retriable = false
		}
		end = p.bounded(s, end)
		attempt.close(attemptSettled)
		p.input(func(now time.Time) {
			p.live--
			p.m.BodyEnded(s, attempt.Attempt, end, now)
		})
		settle()
	}()
	output, err = r.Body(ctx)
	returned = true
}

// valueBytesMax bounds a result or an output where the server names no limit: it must fit into a request.
const valueBytesMax = wire.RequestBytesMax - 1<<20

// bounded refuses a result that the server would refuse for its size (S3).
func (p *Playing) bounded(s *core.Step, end core.Settled) core.Settled {
	if end.Err != nil {
		return end
	}
	if most := p.resultMax(); len(end.Output) > most {
		return tooLarge(fmt.Sprintf("the result of step %q", s.Name), "; its body ran", len(end.Output), most)
	}
	return end
}

// resultMax is how many bytes a result or an output may have.
func (p *Playing) resultMax() int {
	if most := p.call.Limits.ResultBytes; most > 0 {
		return min(most, valueBytesMax)
	}
	return valueBytesMax
}

// tooLarge is the failure of a value that can't be saved for its size.
func tooLarge(what, note string, size, most int) core.Settled {
	return core.Settled{RetryAfter: -1, Err: &wire.Error{Name: "ResultTooLargeError", Message: fmt.Sprintf(
		"%s has %d bytes, and at most %d can be saved%s: save the data elsewhere and return where", what, size, most, note)}}
}

// timedOut fails an attempt whose time is up, though its body may go on: the next attempt may overlap it (S6).
func (p *Playing) timedOut(s *core.Step, r *Request, attempt *Attempt, cause error) {
	if !errors.Is(cause, ErrTimeout) {
		return
	}
	p.input(func(now time.Time) {
		if p.m.Current(s, attempt.Attempt) && !now.Before(r.deadline) {
			attempt.close(attemptAbandoned)
			p.m.BodyEnded(s, attempt.Attempt, timeoutFailure(r.Timeout), now)
		}
	})
}

func timeoutFailure(d time.Duration) core.Settled {
	return core.Settled{Retriable: true, RetryAfter: -1, Err: &wire.Error{
		Name: "TimeoutError", Message: fmt.Sprintf("the attempt took longer than %v", d),
	}}
}
