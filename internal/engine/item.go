package engine

import (
	"encoding/json/jsontext"
	"fmt"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// itemPlan says where an item of a save went: to a step of the change, a retry, a start, or nowhere.
type itemPlan struct {
	step    int // index among the change's steps; -1 if it is none
	retry   int // index among the change's retries; -1 likewise
	start   int // index among the change's starts; -1 likewise
	attempt int // that threw, and is tried again
	wait    bool
	refused *wire.Error
	output  jsontext.Value // of a step that the server made
}

// planSave makes the write of a save. detail is not empty when an item breaks the protocol; then nothing is saved.
func (e *Engine) planSave(run *workflow.Run, save wire.Save) (op store.SaveSteps, items []itemPlan, detail string) {
	now, ending := e.now(), run.Phase() == workflow.PhaseEnding
	if detail := wire.CheckLogs(save.Logs); detail != "" {
		return op, nil, detail
	}
	op = store.SaveSteps{RunID: run.ID, CallID: save.Call, Nonce: save.Nonce, StepsMax: wire.StepsMax, BytesMax: wire.RunBytesMax}
	for i := range save.Items {
		item := &save.Items[i]
		if detail := wire.CheckItem(item); detail != "" {
			return op, nil, detail
		}
		plan := itemPlan{step: -1, retry: -1, start: -1}
		switch {
		case ending && (item.Op == wire.OpStart || item.Op == wire.OpWait || madeAtOnce(item.Op)):
			plan.refused = runEnding()
		case item.Op == wire.OpUndo && run.Closing():
			plan.refused = &wire.Error{Name: "RunEndingError", Message: "the run is closing: there is nothing more to undo"}
		case item.Op == wire.OpWait:
			plan.wait = true
		case madeAtOnce(item.Op): // makeSteps makes their steps
		case item.Op == wire.OpStart:
			plan.start = len(op.Starts)
			op.Starts = append(op.Starts, store.Start{StepID: stepID(item), Attempt: item.Attempt, StartedAt: now, Interrupted: interrupted(item, now)})
		case len(item.Output) > wire.ResultBytesMax:
			plan.refused = tooLarge(item)
		default:
			step, retry := workflow.Settle(e.outcomeOf(item), now)
			if retry != nil {
				plan.retry, plan.attempt = len(op.Retries), retry.Attempt
				op.Retries = append(op.Retries, *retry)
			} else {
				plan.step = len(op.Steps)
				op.Steps = append(op.Steps, *step)
			}
		}
		items = append(items, plan)
	}
	return op, items, ""
}

func runEnding() *wire.Error {
	return &wire.Error{Name: "RunEndingError", Message: "the run is ending: no further step starts"}
}

func tooLarge(item *wire.Item) *wire.Error {
	return &wire.Error{Name: "ResultTooLargeError", Message: fmt.Sprintf(
		"the result of step %q has %d bytes, and a result has at most %d: its body ran, but its result can't be saved; store the data elsewhere and return a reference to it",
		item.Name, len(item.Output), wire.ResultBytesMax)}
}

func stepID(item *wire.Item) workflow.StepID {
	return workflow.StepID{Name: item.Name, Number: item.Number}
}

func (e *Engine) outcomeOf(item *wire.Item) workflow.Outcome {
	o := workflow.Outcome{
		StepID: stepID(item), Kind: item.Kind, Attempt: item.Attempt, Output: item.Output,
		StartedAt: item.StartedAt.Time, EndedAt: item.EndedAt.Time, Jitter: e.options.Jitter(),
	}
	if item.Op == wire.OpFailed {
		o.Output = nil
		o.Failure = failureOf(item.Error, item.Retriable, item.Retries, item.RetryAfterMs)
	}
	return o
}

func failureOf(err *wire.Error, retriable bool, retries int, afterMs *int64) *workflow.Failure {
	f := &workflow.Failure{Error: encodeError(err), Retriable: retriable, Retries: retries}
	if afterMs != nil {
		f.RetryAfter = time.Duration(min(*afterMs, wire.DurationMsMax)) * time.Millisecond
	}
	return f
}

func encodeError(err *wire.Error) jsontext.Value {
	if err == nil {
		err = &wire.Error{Name: "Error", Message: "an error without a message"}
	}
	b, encodeErr := wire.Encode(err)
	if encodeErr != nil {
		b, _ = wire.Encode(&wire.Error{Name: "Error", Message: "an error that could not be encoded: " + encodeErr.Error()})
	}
	return b
}

// entry is the entry that the item's step has now; 0 if it has none.
func (p itemPlan) entry(steps []store.StepResult) int64 {
	if p.step < 0 {
		return 0
	}
	return steps[p.step].Entry
}

// outcome is what a committed item is answered.
func (p itemPlan) outcome(res *store.Result, now time.Time) wire.ItemOutcome {
	switch {
	case p.refused != nil:
		return wire.ItemOutcome{Status: wire.ItemRefused, Error: p.refused}
	case p.retry >= 0:
		return wire.ItemOutcome{Status: wire.ItemRetrying, Attempt: p.attempt, RetryInMs: max(res.Retries[p.retry].Sub(now).Milliseconds(), 0)}
	case p.wait:
		return wire.ItemOutcome{Status: wire.ItemWaiting}
	case p.start >= 0:
		return startOutcome(res.Starts[p.start], now)
	case p.step < 0:
		return wire.ItemOutcome{Status: wire.ItemStands}
	}
	switch r := res.Steps[p.step]; {
	case r.Refused == store.LimitSteps:
		return wire.ItemOutcome{Status: wire.ItemRefused, Error: &wire.Error{Name: "TooManyStepsError", Message: fmt.Sprintf("the run has %d saved steps, the most that a run can have", wire.StepsMax)}}
	case r.Refused == store.LimitBytes:
		return wire.ItemOutcome{Status: wire.ItemRefused, Error: &wire.Error{Name: "RunTooLargeError", Message: fmt.Sprintf("the saved results of the run would exceed %d bytes, the most that a run can have: its body ran, but its result can't be saved", wire.RunBytesMax)}}
	case r.Stands:
		return wire.ItemOutcome{Status: wire.ItemStands}
	default:
		return wire.ItemOutcome{Status: wire.ItemSaved, Entry: r.Entry, Output: p.output}
	}
}

// interrupted is the entry of a step that runs at most once, should another playing have started it; nil for other steps (S5).
func interrupted(item *wire.Item, now time.Time) *workflow.Step {
	if !item.Once {
		return nil
	}
	return new(workflow.Interrupted(stepID(item), now))
}

// startOutcome tells a step with a check whether to look first, and when at the earliest: a playing before may go on for two heartbeat
// intervals after it was last heard of, and a cut comes at least a short question after that (S4, C1).
func startOutcome(r store.StartResult, now time.Time) wire.ItemOutcome {
	if r.Entry > 0 {
		return wire.ItemOutcome{Status: wire.ItemStands}
	}
	o := wire.ItemOutcome{Status: wire.ItemStarted, Again: r.Again}
	if !r.CutAt.IsZero() {
		o.CheckInMs = max(r.CutAt.Add(2*heartbeatMax-shortQuestion).Sub(now).Milliseconds(), 0)
	}
	return o
}
