package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nelkap/nelkap/internal/store"
)

// trace is what happened, in order.
type trace struct {
	mu    sync.Mutex
	start time.Time
	lines []traceLine
}

type traceLine struct {
	at                time.Duration
	actor, what, more string
	// change is told in the place of more, where the trace is read: most are not.
	change store.Change
	result store.Result
}

func (t *trace) add(actor, what, more string) {
	t.line(traceLine{actor: actor, what: what, more: more})
}

// committed adds a change. It is kept as it is: nobody writes to one that was committed.
func (t *trace) committed(actor, what string, change store.Change, result store.Result) {
	t.line(traceLine{actor: actor, what: what, change: change, result: result})
}

func (t *trace) line(l traceLine) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.at = time.Since(t.start)
	t.lines = append(t.lines, l)
}

// String is the trace, a line for each thing that happened. What happens at one instant has no order.
func (t *trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.lines {
		if l := &t.lines[i]; l.change != nil {
			l.more, l.change = describe(l.change, l.result), nil
		}
	}
	slices.SortStableFunc(t.lines, func(a, b traceLine) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.actor, b.actor), cmp.Compare(a.what, b.what), cmp.Compare(a.more, b.more))
	})
	var b strings.Builder
	for _, l := range t.lines {
		fmt.Fprintf(&b, "%15.9f %-8s %s", l.at.Seconds(), l.actor, l.what)
		if l.more != "" {
			b.WriteString(": " + l.more)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// describe is a change and its result, for the trace.
func describe(change store.Change, res store.Result) string {
	text := ""
	for _, op := range change {
		text += describeOp(op) + " "
	}
	if res.Err != nil {
		return text + "refused: " + res.Err.Error()
	}
	return text
}

func describeOp(op store.Op) string {
	switch op := op.(type) {
	case store.InsertRun:
		return fmt.Sprintf("insert %s %s %q of %q", op.Run.ID, op.Run.Status, op.Run.Workflow, op.Run.Event)
	case store.UpdateRun:
		call := ""
		if op.Run.Call != nil {
			call = op.Run.Call.ID
		}
		return fmt.Sprintf("update %s v%d %s epoch %d cuts %d %s%s", op.Run.ID, op.Run.Version, op.Run.Status, op.Run.Epoch, op.Run.Cuts, call, describeWaits(op))
	case store.SaveSteps:
		text := fmt.Sprintf("save %s %s nonce %.6s", op.RunID, op.CallID, op.Nonce)
		for _, s := range op.Steps {
			text += fmt.Sprintf(" %s/%d=%s%s", s.Name, s.Number, s.Status, s.Output)
		}
		for _, r := range op.Retries {
			text += fmt.Sprintf(" %s/%d retry %d at %s", r.Name, r.Number, r.Attempt, r.RetryAt.Format("15:04:05.000"))
		}
		for _, s := range op.Starts {
			text += fmt.Sprintf(" %s/%d starts", s.Name, s.Number)
		}
		return text
	case store.InsertEvent:
		return fmt.Sprintf("event %s %s", op.Event.Name, op.Event.ID)
	case store.TakeKey:
		return fmt.Sprintf("key %s %q then [%s]", op.Key.Kind, op.Key.Key, describe(op.Then, store.Result{}))
	case store.PutApp:
		return "app " + op.App.Name
	case store.DropKeys:
		return "drop keys"
	default:
		return describeWait(op)
	}
}

// describeWaits is what an update does to waits.
func describeWaits(op store.UpdateRun) (text string) {
	for _, s := range op.Append {
		text += fmt.Sprintf(" %s/%d=%s%s%s", s.Name, s.Number, s.Status, s.Output, s.Error)
	}
	for _, w := range op.Open {
		text += fmt.Sprintf(" opens %s %s/%d due %s", w.Kind, w.Name, w.Number, w.DueAt.Format("15:04:05.000"))
		if w.Start != nil {
			text += " child " + w.Child
		}
	}
	if op.Trees != nil {
		text += fmt.Sprintf(" waits for %s", op.Trees)
	}
	if op.Run.Ending != nil {
		text += " ending: " + op.Run.Ending.Reason
	}
	if op.Run.Closing() {
		text += fmt.Sprintf(", closing after entry %d", op.Run.Ending.Entries)
	}
	if op.Chapter != nil {
		text += fmt.Sprintf(" begins again, restart %d, with %s", op.Run.Restart, op.Chapter.Payload)
	}
	return text
}

func describeWait(op store.Op) string {
	switch op := op.(type) {
	case store.CloseWait:
		return fmt.Sprintf("forget %s child %s", op.RunID, op.Child)
	case store.UseEvent:
		return fmt.Sprintf("%s uses event %d", op.RunID, op.Position)
	case store.LookedBack:
		return fmt.Sprintf("looked back for %s %s/%d", op.RunID, op.Name, op.Number)
	case store.Advance:
		return fmt.Sprintf("%s: %d by %s", op.Cursor, op.Position, op.Owner)
	case store.TakeCursor:
		return fmt.Sprintf("%s is %s's", op.Cursor, op.Owner)
	case store.PutNode:
		return fmt.Sprintf("%s beats %d %s", op.Node.ID, op.Node.Beat, op.Node.State)
	case store.DropNode:
		return fmt.Sprintf("%s is gone", op.ID)
	case store.PassKey:
		return fmt.Sprintf("pass %s %q from %s to %s", op.Key.Kind, op.Key.Key, op.From, op.Key.Owner)
	}
	return fmt.Sprintf("%T", op)
}
