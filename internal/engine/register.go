package engine

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nelkap/nelkap/internal/filter"
	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// The bounds of waits.
const (
	waitMax      = 366 * 24 * time.Hour // promise 16: a year, also a leap year
	waitNamesMax = 16                   // events that one wait names
)

// registration is what a message registers: waits with the children that they start, and the entries of those that can't be had.
type registration struct {
	waits    []workflow.Wait
	children map[string]*store.InsertRun // by the child's id
	failed   []workflow.Step
	undoes   bool // it has the run's first step.undo
}

// register plans the waits of a run's items; items of other ops are passed over. What is wrong with a wait becomes its entry: the code
// shall see it where it asked.
func (e *Engine) register(ctx context.Context, run *workflow.Run, items []wire.Item) (registration, error) {
	r := registration{children: map[string]*store.InsertRun{}}
	for i := range items {
		item := &items[i]
		if item.Op != wire.OpWait {
			continue
		}
		w := workflow.Wait{StepID: stepID(item), Kind: item.Kind}
		var err error
		switch item.Kind {
		case workflow.KindSleep:
			w.DueAt, err = sleepUntil(item, e.now())
		case workflow.KindEvent:
			err = e.planEvent(&w, item)
		case workflow.KindInvoke:
			err = e.planChild(&r, &w, run, item)
		case workflow.KindCallback:
			err = e.planCallback(ctx, &w, run, item)
		}
		var refused refusal
		switch {
		case errors.As(err, &refused):
			r.failed = append(r.failed, workflow.Refused(w.StepID, w.Kind, "WaitError", string(refused), e.now()))
		case err != nil:
			return r, err
		default:
			r.waits = append(r.waits, w)
		}
	}
	return r, nil
}

// refusal is what is wrong with a wait, as a sentence for whoever wrote the workflow.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

func sleepUntil(item *wire.Item, now time.Time) (time.Time, error) {
	due := now
	switch {
	case item.DelayMs != nil:
		if *item.DelayMs < 0 || *item.DelayMs > waitMax.Milliseconds() {
			return due, refuse("the sleep %q can't last %d ms: a sleep has 0 ms to a year", item.Name, *item.DelayMs)
		}
		due = now.Add(time.Duration(*item.DelayMs) * time.Millisecond)
	default:
		parsed, err := time.Parse(time.RFC3339Nano, item.Until)
		if err != nil {
			return due, refuse("the sleep %q needs delayMs, or until as an RFC 3339 time; until is %q", item.Name, item.Until)
		}
		due = parsed.UTC()
		if up := due.Truncate(time.Millisecond); up.Before(due) {
			due = up.Add(time.Millisecond) // never early (W4)
		}
	}
	if due.Before(now) {
		due = now // over at once; and the year 1 would read as no time at all
	}
	if due.Sub(now) > waitMax {
		return due, refuse("the sleep %q would end at %s, and a sleep lasts a year at most", item.Name, due.Format(time.RFC3339))
	}
	return due, nil
}

// timeoutOf is when a wait with that timeout is over; zero without one.
func timeoutOf(item *wire.Item, now time.Time) (time.Time, error) {
	if item.TimeoutMs == nil {
		return time.Time{}, nil
	}
	if *item.TimeoutMs < 0 || *item.TimeoutMs > waitMax.Milliseconds() {
		return time.Time{}, refuse("the timeout of %q can't be %d ms: it has 0 ms to a year", item.Name, *item.TimeoutMs)
	}
	return now.Add(time.Duration(*item.TimeoutMs) * time.Millisecond), nil
}

func (e *Engine) planEvent(w *workflow.Wait, item *wire.Item) (err error) {
	if w.DueAt, err = timeoutOf(item, e.now()); err != nil {
		return err
	}
	if len(item.Events) == 0 || len(item.Events) > waitNamesMax {
		return refuse("the wait %q names %d events: name 1 to %d", item.Name, len(item.Events), waitNamesMax)
	}
	for _, name := range item.Events {
		if name == "" || len(name) > wire.NameBytesMax {
			return refuse("the wait %q: an event's name has 1 to %d bytes", item.Name, wire.NameBytesMax)
		}
	}
	if item.Since != "" && item.Since != "run" && item.Since != "wait" {
		return refuse("the wait %q: since is \"run\" or \"wait\", not %q", item.Name, item.Since)
	}
	w.Event = &workflow.EventWait{Names: item.Events, If: item.If, SinceRun: item.Since != "wait"}
	if len(item.Match) > 0 {
		match, err := filter.ParseMatch(item.Match)
		if err != nil {
			return refuse("the wait %q: %v", item.Name, err)
		}
		w.Event.Paths, w.Event.Key = strings.Join(match.Paths, pathsEnd), match.Key
	}
	if item.If != "" {
		if _, err := e.filters.get(item.If); err != nil {
			return refuse("the wait %q: if: %v", item.Name, err)
		}
	}
	return nil
}

// planChild makes the run that an invoke starts. A workflow of an app that is known may come with its next deploy: the child waits for
// it and says so (C14).
func (e *Engine) planChild(r *registration, w *workflow.Wait, parent *workflow.Run, item *wire.Item) (err error) {
	if w.DueAt, err = timeoutOf(item, e.now()); err != nil {
		return err
	}
	if len(item.Payload) > wire.ResultBytesMax {
		return refuse("the payload of %q has %d bytes, and a payload has at most %d: store the data elsewhere and pass a reference to it", item.Name, len(item.Payload), wire.ResultBytesMax)
	}
	if item.Workflow == "" || len(item.Workflow) > wire.NameBytesMax {
		return refuse("the step %q invokes a workflow without a name", item.Name)
	}
	app := appID{parent.Env, or(item.App, parent.App)}
	if _, err := e.apps.target(app); err != nil {
		return refuse("the step %q invokes a workflow of the app %q, which this server does not know: register the app, or mend its name", item.Name, app.name)
	}
	known := wire.Workflow{Name: item.Workflow}
	if t, err := e.oneWorkflow(app.env, app.name, item.Workflow); err == nil {
		known = t.workflow
	}
	child := e.newRun(workflow.Run{ID: id.New(id.Run), Env: app.env, App: app.name, Workflow: item.Workflow, Parent: parent.ID}, known)
	w.Child = child.ID
	r.children[child.ID] = &store.InsertRun{Run: child, Payload: item.Payload, Waits: cancelWaits(known)}
	return nil
}

// planCallback waits for the callback that an earlier step made; its time counts from then.
func (e *Engine) planCallback(ctx context.Context, w *workflow.Wait, run *workflow.Run, item *wire.Item) error {
	made, err := e.store.Callback(ctx, store.CallbackQuery{RunID: run.ID, StepID: workflow.StepID{Name: item.Name, Number: item.Of}})
	switch {
	case errors.Is(err, store.ErrNotFound) && run.ReplayOf != "":
		return refuse("the step %q waits for callback %d of its name, which this replay does not have: a run that had not ended has it, or it went with the run that made it; replay from %q to make another",
			item.Name, item.Of, item.Name)
	case errors.Is(err, store.ErrNotFound):
		return refuse("the step %q waits for callback %d of its name, which was not made", item.Name, item.Of)
	}
	w.Of, w.DueAt = item.Of, made.DueAt
	return err
}

// with is what registering adds to the write of a decision.
func (r registration) with(trees jsontext.Value) with {
	return func(u *store.UpdateRun) []store.Op {
		for i := range u.Open {
			u.Open[i].Start = r.children[u.Open[i].Child]
		}
		u.Trees = trees
		return nil
	}
}

// opened acts on a committed registration: children are called, and waits may be over already.
func (e *Engine) opened(r registration, opened []bool) {
	look := false
	for i, w := range r.waits {
		if i < len(opened) && !opened[i] {
			continue
		}
		look = look || w.Kind == workflow.KindEvent || w.Kind == workflow.KindCallback
		if birth := r.children[w.Child]; birth != nil {
			child := birth.Run
			e.logStarted(&child)
			e.timers.notice(child.TimerAt())
			e.mu.Lock()
			e.enqueue(child)
			e.mu.Unlock()
		}
	}
	if look {
		e.matching.wake()
	}
}
