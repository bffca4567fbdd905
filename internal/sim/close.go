package sim

import (
	"context"
	"errors"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"

	"github.com/nelkap/nelkap/internal/workflow"
)

// The prefixes of the names of handlers' steps.
const (
	onFailurePrefix = "onFailure: "
	onCancelPrefix  = "onCancel: "
)

// closers are the handlers that a workflow has.
func (p *process) closers(f *workflowPlan) (options []nelkap.WorkflowOption) {
	if f.onFailure != nil {
		options = append(options, nelkap.OnFailure(func(ctx context.Context, failure nelkap.Failure[payload]) error {
			p.world.witness.toldOf(failure)
			return p.handle(ctx, f.onFailure, onFailurePrefix, failure.Payload)
		}))
	}
	if f.onCancel != nil {
		options = append(options, nelkap.OnCancel(func(ctx context.Context, cancellation nelkap.Cancellation[payload]) error {
			return p.handle(ctx, f.onCancel, onCancelPrefix, cancellation.Payload)
		}))
	}
	return options
}

// handle is the code of a handler.
func (p *process) handle(ctx context.Context, steps []*stepPlan, prefix string, in payload) error {
	info, _ := nelkap.CurrentRun(ctx)
	playing := p.world.witness.handles(p, in, info.ID, prefix)
	defer p.ends(playing, in)
	if _, err := p.steps(ctx, playing, info, steps); err != nil {
		return err
	}
	playing.handled()
	return nil
}

// undo notes that there is something to undo, and undoes it when the run closes.
func (p *process) undo(ctx context.Context, playing *playing, s *stepPlan) error {
	id := playing.asks(s, s.name, 2)
	body := id
	body.Number++
	err := step.Undo(ctx, s.name, func(ctx context.Context) error {
		playing.undoes(id)
		defer playing.undone()
		_, err := p.body(ctx, playing, s, body)
		return err
	})
	if !p.isDead() {
		playing.shown(s, id, noted, err)
	}
	return err
}

// callback makes a callback, gives it to whoever posts, and waits for it after a while.
func (p *process) callback(ctx context.Context, playing *playing, s *stepPlan) (string, error) {
	id := playing.asks(s, s.name, 1)
	options := []step.WaitOption{step.Timeout(s.lasts)}
	if s.was != "" {
		options = append(options, step.Was(s.was))
	}
	made, err := step.NewCallback[posted](ctx, s.name, options...)
	if p.isDead() {
		p.pass(0)
		return "", errDead
	}
	if err != nil {
		playing.shown(s, id, "", err)
		return "", err
	}
	playing.shown(s, id, made.Token, nil)
	p.world.offers(made.Token, id)
	_, dice := p.world.name(p.name + " gap " + id.String())
	if !p.pass(s.gap + dice.between(time.Microsecond, 20*time.Microsecond)) {
		return "", errDead
	}
	id = playing.asks(nil, id.Name, 1)
	got, ok, err := made.Wait(ctx)
	text := got.Post
	if !ok {
		text = noEvent
	}
	if !p.isDead() {
		playing.shown(s, id, text, err)
	}
	return text, err
}

// restarts tells what the run begins again with; nil if it does not.
func (p *playing) restarts(f *workflowPlan, in payload) *payload {
	t := p.witness
	t.mu.Lock()
	defer t.mu.Unlock()
	if in.Chapter-t.runs[p.run].chapter >= f.restarts {
		return nil
	}
	next := payload{From: in.From, Tag: in.Tag, Chapter: in.Chapter + 1}
	if c := t.calls[p.call]; c != nil {
		c.restarts = &next
	}
	return &next
}

// mayThrow tells whether code outside steps throws at times. In a closing it goes as far as what is saved takes it, or nothing could be
// said of its undos.
func (p *playing) mayThrow() bool { return p.closing == nil || p.prefix != "" || p.strays }

// toldOf takes in what a handler is told of a failure: that of the closing, and no step of later (Z1).
func (t *witness) toldOf(failure nelkap.Failure[payload]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.calls[failure.Payload.Call]
	if c == nil || c.closing == nil {
		return // handles says so
	}
	if c.closing.Reason == workflow.EndingTimedOut && !errors.Is(failure.Err, nelkap.ErrTimeout) {
		t.broken("Z1", "run %s timed out, and its handler is told %v", failure.Run.ID, failure.Err)
	}
	if int64(len(failure.Steps)) > c.closing.Entries {
		t.broken("Z1", "run %s closes after entry %d, and its handler is given %d steps", failure.Run.ID, c.closing.Entries, len(failure.Steps))
	}
}
