package sim

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"strconv"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// What the code makes of the end of a wait that brings nothing.
const (
	slept   = "slept"
	noEvent = "none"
)

// ask asks for a step without a body, and gives what the code is shown as a text: see textOf.
func (p *process) ask(ctx context.Context, s *stepPlan, id stepID) (string, error) {
	switch s.kind {
	case workflow.KindSleep:
		var options []step.SleepOption
		if s.was != "" {
			options = append(options, step.Was(s.was))
		}
		return slept, step.Sleep(ctx, s.name, s.lasts, options...)
	case workflow.KindEvent:
		event, err := step.WaitForAny(ctx, s.name, []string{s.event}, s.eventOptions()...)
		if event == nil {
			return noEvent, err
		}
		return event.ID, err
	case workflow.KindInvoke:
		var options []step.InvokeOption
		if s.lasts > 0 {
			options = append(options, step.Timeout(s.lasts))
		}
		if s.was != "" {
			options = append(options, step.Was(s.was))
		}
		child := nelkap.Ref[payload, string](p.app, s.invokes.name, nelkap.InApp(s.invokes.app))
		return step.Invoke(ctx, s.name, child, payload{From: invokedBy(id)}, options...)
	default:
		var options []step.ClaimOption
		if s.untilFailed {
			options = append(options, step.UntilFailed())
		}
		if s.lasts > 0 {
			options = append(options, step.For(s.lasts))
		}
		if s.was != "" {
			options = append(options, step.Was(s.was))
		}
		owned, err := step.Claim(ctx, s.name, s.key, options...)
		return strconv.FormatBool(owned), err
	}
}

func (s *stepPlan) eventOptions() []step.WaitOption {
	options := []step.WaitOption{step.Timeout(s.lasts)}
	if s.sinceWait {
		options = append(options, step.SinceWait())
	}
	if s.was != "" {
		options = append(options, step.Was(s.was))
	}
	switch {
	case s.tag == "":
	case s.filtered:
		options = append(options, step.If(fmt.Sprintf("payload.tag == %q", s.tag)))
	default:
		options = append(options, step.Match("payload.tag", s.tag))
	}
	return options
}

// invokedBy is what the payload of a step's child says.
func invokedBy(id stepID) string { return id.String() + " invoke" }

// textOf is what the code is shown of an entry that is no failure.
func textOf(e store.Entry) string {
	switch {
	case e.Kind == workflow.KindSleep && e.Output == nil:
		return slept
	case e.Kind == workflow.KindClaim:
		return string(e.Output)
	case e.Kind == workflow.KindUndo:
		return noted
	case e.Kind == workflow.KindCallback:
		return textOfCallback(e)
	case e.Kind == workflow.KindEvent:
		if string(e.Output) == "null" {
			return noEvent
		}
		var event wire.Event
		if err := wire.Decode(e.Output, &event); err != nil {
			return err.Error()
		}
		return event.ID
	}
	var text string
	if err := json.Unmarshal(e.Output, &text); err != nil {
		return err.Error()
	}
	return text
}

// parallel plays branches side by side.
func (p *process) parallel(ctx context.Context, playing *playing, info nelkap.RunInfo, s *stepPlan) (string, error) {
	results := make([][]string, len(s.branches))
	var branches []func(context.Context) error
	for i, steps := range s.branches {
		branches = append(branches, func(ctx context.Context) (err error) {
			results[i], err = p.steps(ctx, playing, info, steps)
			return err
		})
	}
	err := step.Parallel(ctx, branches...)
	return fmt.Sprint(results), err
}

// check is a step's check: it takes a while, and finds what a body has left.
func (p *process) check(ctx context.Context, playing *playing, s *stepPlan, id stepID) (string, bool, error) {
	_, dice := p.world.name(p.name + " check " + playing.run + s.name)
	if !p.work(ctx, dice.between(10*time.Microsecond, 20*time.Millisecond), s.heeds) || !p.pass(dice.between(1, 20_000)) {
		return "", false, errDead
	}
	if ctx.Err() != nil && s.heeds {
		return "", false, context.Cause(ctx)
	}
	found, ok := playing.checks(id, step.Attempt(ctx))
	return found, ok, nil
}
