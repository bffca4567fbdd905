package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"

	"github.com/nelkap/nelkap/internal/workflow"
)

// payload is the payload of every run and event here. Call is written into it on the way to the app.
type payload struct {
	Call string `json:"call,omitempty"`
	From string `json:"from,omitempty"` // the step that sent it, and its place there
	Tag  string `json:"tag,omitempty"`  // of an event: what waits choose by
	// Chapter counts how often the run began again.
	Chapter int `json:"chapter,omitempty"`
}

// thrownText is what saved errors say of errThrown.
const thrownText = "thrown by the script"

// errThrown is what scripted code throws.
var errThrown = errors.New(thrownText)

// noted is what the code makes of an undo that is saved.
const noted = "noted"

// errDead ends code whose process has died, once the simulation is over.
var errDead = errors.New("the process is dead")

// play is the code of a workflow.
func (p *process) play(ctx context.Context, f *workflowPlan, in payload) (string, error) {
	info, _ := nelkap.CurrentRun(ctx)
	playing := p.world.witness.played(p, in, info.ID)
	defer p.ends(playing, in)
	results, err := p.steps(ctx, playing, info, f.stepsOf(p.version))
	if err != nil {
		return "", err
	}
	if next := playing.restarts(f, in); next != nil {
		return "", step.Restart(ctx, *next)
	}
	output := strings.Join(results, " ")
	playing.returns(output)
	return output, nil
}

// ends is deferred by code: that its call ends is no panic for it.
func (p *process) ends(playing *playing, in payload) {
	playing.ends()
	if r := recover(); r != nil {
		p.world.violation("W10", "run %s: the code of call %s was shown a panic: %v", playing.run, in.Call, r)
	}
}

// steps plays steps one after the other, each after the code before it.
func (p *process) steps(ctx context.Context, playing *playing, info nelkap.RunInfo, steps []*stepPlan) (results []string, err error) {
	for i, s := range steps {
		_, dice := p.world.name(p.name + " code " + info.ID)
		if !p.pass(s.codeTakes + dice.between(1, 20_000)) {
			return nil, errDead
		}
		if playing.writes {
			nelkap.Log(ctx).Info(fmt.Sprintf("before %s %d", s.name, i))
		}
		if s.codeThrows >= info.Attempt && playing.mayThrow() {
			playing.throwsOutside(s)
			return nil, p.thrown(s)
		}
		var result string
		if s.kind == kindParallel {
			result, err = p.parallel(ctx, playing, info, s)
		} else {
			result, err = p.step(ctx, playing, s, dice)
		}
		if p.isDead() {
			p.pass(0)
			return nil, errDead
		}
		if err != nil {
			if s.fatal || errors.Is(err, errThrown) { // what a step threw is another
				return nil, err
			}
			result = fmt.Sprintf("failed %d", i)
		}
		results = append(results, result)
	}
	return results, nil
}

func (p *process) thrown(s *stepPlan) error {
	if s.codeNever {
		return nelkap.NonRetriable(errThrown)
	}
	if s.codeAfter > 0 {
		return nelkap.RetryAfter(errThrown, s.codeAfter)
	}
	return errThrown
}

// step runs one step, and tells the witness what the code was shown.
func (p *process) step(ctx context.Context, playing *playing, s *stepPlan, d *dice) (string, error) {
	switch s.kind {
	case workflow.KindUndo:
		return noted, p.undo(ctx, playing, s)
	case workflow.KindCallback:
		return p.callback(ctx, playing, s)
	}
	id := playing.asks(s, s.name, 1)
	var result string
	var err error
	if s.kind == "" {
		result, err = p.run(ctx, playing, s, id, d)
	} else {
		result, err = p.ask(ctx, s, id)
	}
	if !p.isDead() {
		playing.shown(s, id, result, err)
	}
	return result, err
}

// run runs a step with a body.
func (p *process) run(ctx context.Context, playing *playing, s *stepPlan, id stepID, d *dice) (string, error) {
	var options []step.Option
	if s.retries >= 0 {
		options = append(options, step.Retries(s.retries))
	}
	if s.timeout > 0 && p.world.paced == nil {
		options = append(options, step.Timeout(s.timeout+d.between(0, 20_000)))
	}
	if s.once {
		options = append(options, step.AtMostOnce())
	}
	if s.was != "" {
		options = append(options, step.Was(s.was))
	}
	body := func(ctx context.Context) (string, error) { return p.body(ctx, playing, s, id) }
	if s.checked {
		check := func(ctx context.Context) (string, bool, error) { return p.check(ctx, playing, s, id) }
		return step.RunWithCheck(ctx, s.name, check, body, options...)
	}
	return step.Run(ctx, s.name, body, options...)
}

// body is a step's body: it works for a while, sends, and returns or throws.
func (p *process) body(ctx context.Context, playing *playing, s *stepPlan, id stepID) (string, error) {
	began := time.Now()
	playing.begins(s, id, step.Attempt(ctx))
	defer playing.stops(s)
	playing.keyed(id, step.IdempotencyKey(ctx))
	if s.kills > 0 && p.kills(s, id) {
		return "", errDead
	}
	_, dice := p.world.name(p.name + " body " + id.String())
	takes := s.takes
	if ends, ok := p.world.paced[id]; ok {
		takes = time.Until(ends)
	}
	if !p.work(ctx, takes+dice.between(time.Microsecond, 100*time.Microsecond), s.heeds) || !p.pass(dice.between(1, 20_000)) {
		return "", errDead
	}
	playing.worked(id, ctx.Err() != nil)
	playing.timed(s, id, began, context.Cause(ctx))
	if ctx.Err() != nil && s.heeds {
		return "", context.Cause(ctx)
	}
	if err := p.send(ctx, playing, s, id); err != nil {
		return "", err
	}
	p.world.trace.add(p.name, "body ends", id.String())
	if s.checked && (s.leaves || step.Attempt(ctx) > s.throws) {
		playing.leaves(id)
	}
	if step.Attempt(ctx) <= s.throws && id.restart >= s.fails {
		playing.throws(s, id, step.Attempt(ctx), ctx.Err() != nil)
		err := errThrown
		if s.retryAfter > 0 {
			err = nelkap.RetryAfter(err, s.retryAfter)
		}
		return "", err
	}
	return playing.result(id), nil
}

// work takes d, less when the context ends and the body heeds it; false if the process is dead.
func (p *process) work(ctx context.Context, d time.Duration, heeds bool) bool {
	done := ctx.Done()
	if !heeds {
		done = nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	case <-p.died:
	case <-p.world.over:
	}
	return !p.world.isOver()
}

// send starts a run or emits an event, as the step's plan says.
func (p *process) send(ctx context.Context, playing *playing, s *stepPlan, id stepID) error {
	for place := 1; place <= s.sends; place++ {
		to := s.emits // it is told apart by, too: a deploy may give the step's name to one that sends elsewhere
		if to == "" {
			to = s.runs.name
		}
		in := payload{From: fmt.Sprintf("%s %d to %s", id, place, to)}
		var err error
		if s.emits != "" {
			_, err = p.app.Emit(ctx, nelkap.Event{Name: s.emits, Payload: in})
		} else {
			_, err = nelkap.Run(ctx, nelkap.Ref[payload, string](p.app, s.runs.name, nelkap.InApp(s.runs.app)), in)
		}
		if p.isDead() {
			p.pass(0)
			return errDead
		}
		if err != nil {
			return err
		}
		playing.sent(id, in.From)
	}
	return nil
}
