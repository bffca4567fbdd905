package core

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

func undoEntry(entry int64, name string, number int) wire.Entry {
	return wire.Entry{Entry: entry, Kind: wire.KindUndo, Name: name, Number: number, Status: wire.OpCompleted}
}

func runEntry(entry int64, name string, number int) wire.Entry {
	return wire.Entry{Entry: entry, Kind: wire.KindRun, Name: name, Number: number, Status: wire.OpCompleted}
}

// closes is a call of a run that closes with the first entries of entries.
func closes(first int64, entries ...wire.Entry) wire.Call {
	return wire.Call{
		Steps: wire.Steps{Entries: entries}, Ending: &wire.Closing{Reason: wire.ReasonFailed, Entries: first},
	}
}

func (b *bench) undo(name string) error {
	return b.askFor(b.m.Root(), name, AskOptions{Terms: &wire.Terms{Op: wire.OpUndo, Kind: wire.KindUndo}, Undo: "the body of " + name})
}

// answer is the one that the call ends with.
func (b *bench) answer(kind string) *wire.Answer {
	b.t.Helper()
	for _, o := range b.m.Take() {
		if o.Do == DoAnswer && o.Answer.Type == kind {
			return o.Answer
		}
	}
	b.t.Fatalf("there is no answer %s", kind)
	return nil
}

func TestAnUndoIsSavedAndTakesTwoCounts(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.want("code")
	b.undo("u")
	b.want("save undo-u1")
	b.accepted(saved(1))
	b.want("release u1")
	b.ask("u")
	b.want("body u3")
}

// Rule Z1.
func TestTheHandlerStartsWhenAllIsUndone(t *testing.T) {
	b := playing(t, closes(2, runEntry(1, "a", 1), undoEntry(2, "u", 1)), Config{Handler: OnFailurePrefix})
	b.want("code")
	b.ask("a")
	b.want("release a1")
	b.undo("u")
	b.want("release u1")
	b.ask("never") // which has no entry: it stays open, and the code rests
	b.want("body u2")
	if got := b.last.Step.Shell; got != "the body of u" {
		t.Errorf("the body is %v", got)
	}
	if err := b.ask("more"); !errors.Is(err, ErrOver) {
		t.Errorf("the function asks on: %v", err)
	}
	b.returned("u2")
	b.want("save completed-u2")
	b.accepted(saved(3))
	b.want("handler")
	b.askFor(b.last.Branch, OnFailurePrefix+"a", AskOptions{})
	b.want("body onFailure: a1")
	b.returned("onFailure: a1")
	b.want("save completed-onFailure: a1")
	b.accepted(saved(4))
	b.want("release onFailure: a1")
	b.m.Completed([]byte("7"), b.now)
	b.want("unwind", "answer completed", "forget")
}

func TestTheHandlerIsToldTheStepsBeforeTheClosing(t *testing.T) {
	entries := []wire.Entry{
		{Entry: 1, Kind: wire.KindClaim, Name: "", Number: 1, Status: wire.OpCompleted}, runEntry(2, "a", 1), undoEntry(3, "u", 1), runEntry(4, "u", 2),
	}
	b := playing(t, closes(3, entries...), Config{Handler: OnFailurePrefix, Once: new("k")})
	b.want("handler") // nothing is left to undo, so that the function is not played, nor its key claimed
	var names []string
	for _, e := range b.last.Entries {
		names = append(names, fmt.Sprint(e.Name, e.Number))
	}
	if diff := cmp.Diff([]string{"a1", "u1"}, names); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// Rule H5.
func TestAClosingBeginsWhenAllPagesAreIn(t *testing.T) {
	call := closes(2, undoEntry(1, "u", 1))
	call.Steps.Next = new(int64(1))
	b := playing(t, call, Config{})
	b.want("fetch")
	b.m.Page(&wire.Page{Entries: []wire.Entry{undoEntry(2, "v", 1), runEntry(3, "v", 2)}}, b.now)
	b.want("code")
	b.undo("u")
	b.want("release u1")
	b.undo("v")
	b.want("release v1")
	b.m.Completed(nil, b.now)
	b.want("body u2")
}

// What a call of the closing saved is none of the function's business.
func TestTheFunctionIsNotShownWhatTheClosingSaved(t *testing.T) {
	call := closes(1, undoEntry(1, "u", 1), runEntry(2, "onFailure: a", 1))
	call.Steps.Retrying = []wire.Retry{{Name: "u", Number: 2, Attempt: 1, RetryInMs: 1000}}
	b := playing(t, call, Config{})
	b.want("code")
	b.undo("u")
	b.want("release u1")
	b.ask("onFailure: a")
	b.want("unwind", "answer suspended", "forget")
}

func TestWhatIsOfAnotherKindStaysOpenInAClosing(t *testing.T) {
	b := playing(t, closes(2, runEntry(1, "a", 1), undoEntry(2, "u", 1)), Config{})
	b.want("code")
	b.sleepOn(b.m.Root(), "a")
	b.want("save failed-u2")
	if got := b.save.Items[0].Error.Name; got != "UndoMissingError" {
		t.Errorf("the undo failed with %s", got)
	}
}

// Rule C12.
func TestAStoppingProcessLeavesWhatIsNotUndone(t *testing.T) {
	b := playing(t, closes(2, undoEntry(1, "u", 1), undoEntry(2, "v", 1)), Config{})
	b.want("code")
	b.undo("u")
	b.want("release u1")
	b.undo("v")
	b.want("release v1")
	b.m.Completed(nil, b.now)
	b.want("body v2")
	b.m.Stop(b.now)
	b.returned("v2")
	b.want("save completed-v2")
	b.accepted(saved(3))
	b.want("unwind", "answer yielded", "forget")
}

// Rule W2.
func TestASupersededClosingUndoesNothingMore(t *testing.T) {
	b := playing(t, closes(1, undoEntry(1, "u", 1)), Config{Handler: OnFailurePrefix})
	b.want("code")
	b.undo("u")
	b.want("release u1")
	b.m.Completed(nil, b.now)
	b.want("body u2")
	b.m.News(&wire.News{Status: wire.StatusSuperseded}, b.now)
	b.want("abort u2", "abort", "forget")
	b.threw("u2")
	b.want("answer over", "unwind")
}

// Rule H6.
func TestARestartWaitsForWhatRunsAndNoLonger(t *testing.T) {
	b, quick := besideABody(t)
	if err := b.m.Restart(quick, []byte("2"), b.now); err != nil {
		t.Fatal(err)
	}
	b.want("abort slow1")
	b.after(abandonAfter - time.Second)
	b.want()
	b.after(time.Second)
	b.want("unwind", "answer restarted", "forget")
}

func TestUnaskedStepsAreNamedUpToABound(t *testing.T) {
	var entries []wire.Entry
	entries = append(entries, wire.Entry{Entry: 1, Kind: wire.KindClaim, Number: 1, Status: wire.OpCompleted}, undoEntry(2, "u", 1))
	for i := range int64(30) {
		entries = append(entries, runEntry(3+i, "gone", int(i)+1))
	}
	b := playing(t, wire.Call{Steps: wire.Steps{Entries: entries}}, Config{Once: new("k")})
	b.want("code")
	b.undo("u")
	b.want("release u1")
	b.sleepOn(b.m.Root(), "nap")
	unasked := b.answer("suspended").Unasked
	if len(unasked) != unaskedMax || unasked[0] != (wire.StepRef{Name: "gone", Number: 1}) {
		t.Errorf("unasked are %v", unasked)
	}
}
