package play

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/nelkap/nelkap/sdk/go/internal/core"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

const (
	// nameBytesMax bounds a name: the server's limit.
	nameBytesMax = 256
	// keyBytesMax bounds the key of a run or a claim: the protocol's limit.
	keyBytesMax = 512
	// restartBytesMax bounds the payload of a restart: the server's limit for payloads.
	restartBytesMax = 4 << 20
)

// CheckName refuses names that can't be saved; kind is what is named.
func CheckName(kind, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the %s needs one", errName, kind)
	case len(name) > nameBytesMax:
		return fmt.Errorf("%w: that of the %s has at most %d bytes, this one has %d", errName, kind, nameBytesMax, len(name))
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: that of the %s must be UTF-8, %q is not", errName, kind, name)
	}
	return nil
}

// CheckKey refuses keys that no run can own; what is whose key it is.
func CheckKey(what, key string) error {
	switch {
	case key == "":
		return fmt.Errorf("nelkap: the key of %s is empty, so that all would share it: make it of what there is one of, such as an order's id", what)
	case len(key) > keyBytesMax:
		return fmt.Errorf("nelkap: the key of %s has %d bytes, and at most %d can be kept: use an id or a hash", what, len(key), keyBytesMax)
	case !utf8.ValidString(key):
		return fmt.Errorf("nelkap: the key of %s must be UTF-8, %q is not", what, key)
	}
	return nil
}

// Request is a step that the code asks for.
type Request struct {
	Name  string
	Was   string      // its name before it was renamed (S7); empty: none
	Terms *wire.Terms // what a step without a body asks of the server; nil: it has one
	Last  bool        // no step of its branch comes after it (H4)
	Undo  *Request    // of an undo, the step that its body runs as in a closing

	// Of a step with a body.
	Retries    int
	Timeout    time.Duration // of an attempt, its check included; 0: none
	AtMostOnce bool
	// Check looks for what an attempt before left (S4); nil: nothing is looked for.
	Check func(ctx context.Context) (found json.RawMessage, ok bool, err error)
	// Body gives the result as JSON, nil for undefined.
	Body func(ctx context.Context) (json.RawMessage, error)

	released chan struct{}
	step     *core.Step
	cancel   context.CancelCauseFunc
	attempt  *Attempt
	deadline time.Time
}

// Identity is the name and the number that the run knows the step by, once Step has returned.
func (r *Request) Identity() (name string, number int) { return r.step.Name, r.step.Number }

// Step runs a step, or gives its saved end: the result as JSON, nil for undefined, or what Host.StepError makes of its
// failure. It does not return when the call ends meanwhile (H7).
func (f *Frame) Step(r *Request) (json.RawMessage, error) {
	if f.Attempt != nil {
		return nil, ErrInStep
	}
	if r.Undo != nil && f.lane.prefix != "" {
		return nil, ErrUndoInHandler
	}
	if f.lane.prefix == "" && (strings.HasPrefix(r.Name, core.OnFailurePrefix) || strings.HasPrefix(r.Name, core.OnCancelPrefix)) {
		return nil, fmt.Errorf("%w: that of the step %q is one of a handler's steps; let it begin otherwise", errName, r.Name)
	}
	name, was := r.names(f.lane.prefix)
	if err := CheckName("step", name); err != nil || r.Name == "" {
		return nil, cmp.Or(err, CheckName("step", r.Name))
	}
	p := f.Playing
	f.lane.stack.Store(nil)
	r.released = make(chan struct{})
	opts := core.AskOptions{Terms: r.Terms, Was: was, Retries: r.Retries, Check: r.Check != nil, Once: r.AtMostOnce, Last: r.Last}
	if r.Undo != nil {
		opts.Undo = r.Undo
	}
	var err error
	p.input(func(now time.Time) { r.step, err = p.m.Ask(f.lane.branch, name, opts, r, now) })
	if err != nil {
		return nil, p.refused(f.lane, err)
	}
	select {
	case <-r.released:
		if r.step.Entry.Status == wire.OpFailed {
			return nil, p.host.StepError(r.step.Entry)
		}
		return r.step.Entry.Output, nil
	case <-f.lane.leave:
		return nil, p.exit(f.lane)
	}
}

// names are the step's name and the one before it, as the run has them.
func (r *Request) names(prefix string) (name, was string) {
	if r.Was == "" {
		return prefix + r.Name, ""
	}
	return prefix + r.Name, prefix + r.Was
}

// startAttempt starts the check or the body of s in a goroutine. p.mu is held. Its context is its own: it survives the request's and
// the code's (C8). A body goes on with its check's attempt: both are bounded by one time.
func (p *Playing) startAttempt(s *core.Step, check bool) {
	r := s.Shell.(*Request)
	attempt := r.attempt
	if attempt == nil || attempt.Attempt != s.Attempt {
		attempt = &Attempt{Name: s.Name, Number: s.Number, Attempt: s.Attempt, run: &p.call.Run}
		r.attempt = attempt
		if r.Timeout > 0 {
			r.deadline = time.Now().Add(r.Timeout)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	r.cancel = cancel
	settle := func() { cancel(ErrCallOver) }
	if r.Timeout > 0 {
		timed, stopTimer := context.WithDeadlineCause(ctx, r.deadline, ErrTimeout)
		stopWatch := context.AfterFunc(timed, func() { p.timedOut(s, r, attempt, context.Cause(timed)) })
		ctx, settle = timed, func() { stopWatch(); stopTimer(); cancel(ErrCallOver) }
	}
	p.live++
	go p.runAttempt(with(ctx, &Frame{Playing: p, Attempt: attempt, check: check, step: s}), s, attempt, check, settle)
}

// bodies counts the bodies that run in this process.
var bodies atomic.Int64

// Bodies is how many bodies run in this process.
func Bodies() int64 { return bodies.Load() }

// runAttempt runs the check or the body of one attempt and says how it ended; settle then ends the context.
func (p *Playing) runAttempt(ctx context.Context, s *core.Step, attempt *Attempt, check bool, settle func()) {
	r := s.Shell.(*Request)
	var output json.RawMessage
	var err error
	returned, ended := false, true // a check that finds nothing is no end
	bodies.Add(1)
	defer bodies.Add(-1)
	defer func() {
		end := core.Settled{Output: output}
		if failure := p.failure(nil, err, returned, recover()); failure != nil {
			end, ended = *failure, true
			if errors.Is(context.Cause(ctx), ErrTimeout) {
				end = timeoutFailure(r.Timeout)
			}
		}
		if attempt.isAmbiguous() {
			end, ended = p.host.Failure(ErrAmbiguousSend), true
			end.Retriable = false
		}
		end = p.bounded(s, end)
		if ended {
			attempt.close(attemptSettled)
		}
		p.input(func(now time.Time) {
			p.live--
			if ended {
				p.m.BodyEnded(s, attempt.Attempt, end, now)
			} else {
				p.m.CheckFoundNothing(s, attempt.Attempt, now)
			}
		})
		settle()
	}()
	output, ended, err = p.attempt(ctx, attempt, r, check)
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
