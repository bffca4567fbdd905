package play

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/core"
)

// newRoot is the lane of the function or the handler, with its context's end. Its goroutine is not started.
func newRoot(branch *core.Branch) *lane {
	return &lane{branch: branch, leave: make(chan struct{}), cancel: func(error) {}}
}

// startCode runs code in a goroutine, as the lane l. p.mu is held.
func (p *Playing) startCode(l *lane, code func(context.Context) (json.RawMessage, error)) {
	ctx, cancel := context.WithCancelCause(context.Background())
	l.cancel, l.done = cancel, make(chan struct{})
	p.live++
	go p.runCode(with(ctx, &Frame{Playing: p, lane: l}), l, code)
}

// startHandler lets the function's goroutines end, whose deferred functions run, and then starts the handler. p.mu is held.
func (p *Playing) startHandler(o core.Output) {
	function := p.root
	close(function.leave)
	p.root = newRoot(o.Branch)
	p.root.prefix = p.config.Prefix
	p.startCode(p.root, func(ctx context.Context) (json.RawMessage, error) {
		if function.done != nil { // nil: it was not played, since all was undone
			<-function.done
		}
		return nil, p.config.Handler(ctx, o.Entries)
	})
}

// runCode runs the workflow's function, or the handler.
func (p *Playing) runCode(ctx context.Context, l *lane, code func(context.Context) (json.RawMessage, error)) {
	var output json.RawMessage
	var err error
	returned := false
	defer func() {
		failure := p.failure(l, err, returned, recover())
		if most := p.resultMax(); failure == nil && len(output) > most {
			failure = new(tooLarge("the output", "", len(output), most))
		}
		l.cancel(ErrCallOver)
		p.input(func(now time.Time) {
			p.live--
			switch {
			case l.unwound.Load(): // the call is over: whatever came is ignored (H7)
			case failure != nil:
				p.m.Failed(*failure, now)
			default:
				p.m.Completed(output, now)
			}
		})
		close(l.done)
	}()
	output, err = code(ctx)
	returned = true
}

// Restart has the run begin again with payload, nil for undefined (Z2). It returns only where it is refused: the code goes no further,
// as at the end of a call (H7).
func (f *Frame) Restart(payload json.RawMessage) error {
	switch {
	case f.Attempt != nil:
		return ErrRestartInStep
	case f.lane.prefix != "":
		return ErrRestartInHandler
	}
	p := f.Playing
	if most := min(p.resultMax(), restartBytesMax); len(payload) > most {
		return errors.New(tooLarge("the payload of the restart", "", len(payload), most).Err.Message)
	}
	var err error
	p.input(func(now time.Time) { err = p.m.Restart(f.lane.branch, payload, now) })
	if err != nil {
		return p.refused(f.lane, err)
	}
	<-f.lane.leave
	return p.exit(f.lane)
}

// failure is how user code failed, nil where it did not: by an error, by a panic, or by ending its goroutine. l is nil for a body.
func (p *Playing) failure(l *lane, err error, returned bool, panicked any) *core.Settled {
	switch {
	case returned && err == nil:
		return nil
	case returned:
		end := p.host.Failure(err)
		return &end
	case panicked != nil:
		end := p.host.Failure(&PanicError{panicked, l.stackOf()})
		return &end
	}
	end := p.host.Failure(errGoexit)
	return &end
}

var errGoexit = errors.New("the code ended its goroutine with runtime.Goexit (as testing's FailNow does): return an error instead")

// PanicError is a panic of user code.
type PanicError struct {
	Value any
	Stack string
}

func (e *PanicError) Error() string { return "panic" }
