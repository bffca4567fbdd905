package core

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

func slept(entry int64, name string) wire.Entry {
	return wire.Entry{Entry: entry, Kind: wire.KindSleep, Name: name, Number: 1, Status: wire.OpCompleted}
}

func (b *bench) news(entries ...wire.Entry) {
	b.m.News(&wire.News{Status: wire.StatusEntries, Entries: entries}, b.now)
}

var waiting = wire.ItemOutcome{Status: wire.ItemWaiting}

// side is a call whose code runs a step beside two sleeps, which a save has registered.
func side(t *testing.T) *bench {
	b := playing(t, wire.Call{}, Config{})
	b.want("code")
	b.m.Fork(b.m.Root(), &Fork{Size: 3}, b.now)
	b.askOn(b.branch("branch 0"), "a")
	b.sleepOn(b.branch("branch 1"), "x")
	b.sleepOn(b.branch("branch 2"), "y")
	b.want("body a1", "save wait-x1 wait-y1")
	return b
}

// end ends the branch that was released last.
func (b *bench) end() { b.m.BranchEnded(b.last.Step.branch, false, b.now) }

// Rules H1, H2.
func TestEntriesOfAllKindsAreShownInTheOrderOfTheHistory(t *testing.T) {
	b := side(t)
	b.accepted(waiting, waiting)
	b.returned("a1")
	b.want("save completed-a1")
	b.m.Saved(b.save, &wire.Outcome{
		Status: wire.StatusAccepted, Items: []wire.ItemOutcome{saved(2)}, Entries: []wire.Entry{slept(1, "y"), slept(3, "x")},
	}, b.now)
	b.want("release y1")
	b.end()
	b.want("release a1")
	b.end()
	b.want("release x1")
	b.end()
	b.want("join")
}

// Rule H2.
func TestNewsThatComesTwiceIsShownOnce(t *testing.T) {
	b := side(t)
	b.accepted(waiting, waiting)
	b.news(slept(1, "x"))
	b.want("release x1")
	b.news(slept(1, "x"))
	b.end()
	b.news(slept(1, "x"))
	b.want()
	b.returned("a1")
	b.want("save completed-a1")
	if b.save.Seen != 1 {
		t.Errorf("the save has seen %d", b.save.Seen)
	}
}

// H1: the news has an entry that comes after one that the save under way made. The save's answer has both, in order.
func TestNewsBeforeASavesAnswerWaitsForIt(t *testing.T) {
	b := side(t)
	b.accepted(waiting, waiting)
	b.returned("a1")
	b.want("save completed-a1")
	b.news(slept(2, "x"))
	b.want()
	b.m.Saved(b.save, &wire.Outcome{
		Status: wire.StatusAccepted, Items: []wire.ItemOutcome{saved(1)}, Entries: []wire.Entry{slept(2, "x")},
	}, b.now)
	b.want("release a1")
	b.end()
	b.want("release x1")
}

// H3: the answer to a registration is lost. It is sent again, unchanged, and the second answer brings what has come meanwhile.
func TestARegistrationWhoseAnswerIsLostIsSentAgain(t *testing.T) {
	b := side(t)
	first := b.save
	b.m.SaveFailed(b.save, b.now)
	b.after(100 * time.Millisecond)
	b.want("save wait-x1 wait-y1")
	if b.save != first {
		t.Error("it was changed")
	}
	b.m.Saved(b.save, &wire.Outcome{
		Status: wire.StatusAccepted, Items: []wire.ItemOutcome{{Status: wire.ItemStands}, waiting}, Entries: []wire.Entry{slept(1, "x")},
	}, b.now)
	b.want("release x1")
	b.end()
	b.want()
}

// The wait is over before the answer to its registration has come.
func TestAWaitMayBeOverInTheAnswerToItsRegistration(t *testing.T) {
	b := side(t)
	b.m.Saved(b.save, &wire.Outcome{
		Status: wire.StatusAccepted, Items: []wire.ItemOutcome{waiting, waiting}, Entries: []wire.Entry{slept(1, "y")},
	}, b.now)
	b.want("release y1")
}

// Rule Z1.
func TestCancelledWhileWaitingYields(t *testing.T) {
	b := side(t)
	b.m.News(&wire.News{Status: wire.StatusEnding, Ending: &wire.Ending{Reason: wire.ReasonCancelled}}, b.now)
	b.want("abort a1", "abort")
	b.threw("a1")
	b.want()
	b.accepted(waiting, wire.ItemOutcome{Status: wire.ItemRefused})
	b.want("unwind", "answer yielded", "forget")
}

// Z1: the context of code that starts after the run began to end would never end.
func TestCodeDoesNotStartOnceTheRunIsEnding(t *testing.T) {
	zero := int64(0)
	ending := &wire.Ending{Reason: wire.ReasonCancelled}
	b := playing(t, wire.Call{}, Config{Bind: true})
	b.want("save")
	b.m.Saved(b.save, &wire.Outcome{Status: wire.StatusAccepted, Ending: ending}, b.now)
	b.want("abort", "unwind", "answer yielded", "forget")

	b = playing(t, wire.Call{Steps: wire.Steps{Next: &zero}}, Config{})
	b.want("fetch")
	b.m.News(&wire.News{Status: wire.StatusEnding, Ending: ending}, b.now)
	b.want("abort")
	b.m.Page(&wire.Page{}, b.now)
	b.want("unwind", "answer yielded", "forget")
}

// Rule C12.
func TestAYieldRegistersNothing(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.want("code")
	b.m.Fork(b.m.Root(), &Fork{Size: 2}, b.now)
	b.sleepOn(b.branch("branch 0"), "x")
	right := b.branch("branch 1")
	b.m.Stop(b.now)
	b.askOn(right, "a")
	b.want("unwind", "answer yielded", "forget")
	if register := b.m.end.answer.Register; len(register) > 0 {
		t.Errorf("it registers %+v", register)
	}
}

// C11: what an answer may not carry is not in it.
func TestOnlyEndsOfBodiesTravelUnsaved(t *testing.T) {
	b := side(t)
	b.returned("a1")
	b.m.SaveFailed(b.save, b.now)
	b.after(time.Minute)
	b.want("save wait-x1 wait-y1", "unwind", "answer yielded")
	if unsaved := b.m.end.answer.Unsaved; len(unsaved) != 1 || unsaved[0].Name != "a" {
		t.Errorf("unsaved are %+v", unsaved)
	}
}

// A claim that the server refuses fails its step with the server's reason.
func TestARefusedClaimFailsItsStep(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.want("code")
	b.askFor(b.m.Root(), "c", AskOptions{Terms: &wire.Terms{Op: wire.OpClaim, Kind: wire.KindClaim, Key: "k"}})
	b.want("save claim-c1")
	b.accepted(wire.ItemOutcome{Status: wire.ItemRefused, Error: &wire.Error{Name: "E", Message: "no"}})
	b.want("save failed-c1")
	if item := b.save.Items[0]; item.Kind != wire.KindClaim || item.Retriable || item.Attempt != 1 {
		t.Errorf("saves %+v", item)
	}
}

// Rule K4.
func TestTheRunsOwnKeyIsClaimedAfterItsPagesAndBeforeItsCode(t *testing.T) {
	key, zero := "k", int64(0)
	claimed := wire.Entry{Entry: 1, Kind: wire.KindClaim, Name: "", Number: 1, Status: wire.OpCompleted, Output: json.RawMessage("true")}
	b := playing(t, wire.Call{Steps: wire.Steps{Next: &zero}}, Config{Once: &key, Bind: true})
	b.want("save")
	b.accepted()
	b.want("fetch")
	b.m.Page(&wire.Page{}, b.now)
	b.want("save claim-1")
	b.accepted(wire.ItemOutcome{Status: wire.ItemSaved, Entry: 1, Output: json.RawMessage("true")})
	b.want("code")

	b = playing(t, wire.Call{Steps: wire.Steps{Entries: []wire.Entry{claimed}}}, Config{Once: &key})
	b.want("code")

	for _, c := range []struct {
		outcome wire.Outcome
		want    []string
	}{
		{wire.Outcome{Status: wire.StatusEnded}, []string{"abort", "forget", "answer over", "unwind"}},
		{wire.Outcome{Status: wire.StatusAccepted, Items: []wire.ItemOutcome{{Status: wire.ItemRefused}}}, []string{"unwind", "answer failed", "forget"}},
		{wire.Outcome{Status: wire.StatusAccepted, Items: []wire.ItemOutcome{{Status: wire.ItemRefused}}, Ending: &wire.Ending{Reason: "cancelled"}}, []string{"abort", "unwind", "answer yielded", "forget"}},
		{wire.Outcome{Status: wire.StatusAccepted, Items: []wire.ItemOutcome{{Status: wire.ItemStands}}, Entries: []wire.Entry{claimed}}, []string{"code"}},
	} {
		b = playing(t, wire.Call{}, Config{Once: &key})
		b.want("save claim-1")
		b.m.Saved(b.save, &c.outcome, b.now)
		b.want(c.want...)
	}
}

// H6: the loser of a race finishes and is saved, though nobody waits for it; where it throws it is not tried again.
func TestTheLoserOfARaceKeepsTheCallOpen(t *testing.T) {
	for _, throws := range []bool{false, true} {
		b := playing(t, wire.Call{}, Config{})
		b.want("code")
		b.m.Fork(b.m.Root(), &Fork{Size: 2, Join: JoinRace}, b.now)
		b.askOn(b.branch("branch 0"), "a")
		b.askOn(b.branch("branch 1"), "b")
		b.want("body a1", "body b1")
		b.returned("b1")
		b.want("save completed-b1")
		b.accepted(saved(1))
		b.want("release b1")
		b.end()
		b.want("join")
		b.sleepOn(b.m.Root(), "nap")
		b.want("save wait-nap1")
		b.accepted(waiting)
		b.want()
		if throws {
			b.threw("a1")
			b.want("save failed-a1")
			b.accepted(wire.ItemOutcome{Status: wire.ItemRetrying, Attempt: 1, RetryInMs: 1000})
		} else {
			b.returned("a1")
			b.want("save completed-a1")
			b.accepted(saved(2))
		}
		b.want("unwind", "answer suspended", "forget")
		want := []wire.Wait{{Wait: &wire.StepRef{Name: "nap", Number: 1}}}
		if diff := cmp.Diff(want, b.m.end.answer.Waits); diff != "" {
			t.Errorf("it waits for (-want +got):\n%s", diff)
		}
	}
}

// Where a race is decided in the history, its losers don't start again.
func TestWhatTheHistoryDecidedDoesNotStart(t *testing.T) {
	b := playing(t, wire.Call{Steps: wire.Steps{Entries: []wire.Entry{{Entry: 1, Kind: "run", Name: "b", Number: 1, Status: "completed"}}}}, Config{})
	b.want("code")
	b.m.Fork(b.m.Root(), &Fork{Size: 2, Join: JoinRace}, b.now)
	b.askOn(b.branch("branch 0"), "a")
	b.askOn(b.branch("branch 1"), "b")
	b.want("release b1")
	b.end()
	b.want("join")
	b.m.Completed(nil, b.now)
	b.want("unwind", "answer completed", "forget")
}

// The code goes on after a failure only when the bodies of the other branches have settled. What else comes meanwhile waits.
func TestAFailureWaitsForWhatRuns(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.want("code")
	b.m.Fork(b.m.Root(), &Fork{Size: 2}, b.now)
	inner := b.branch("branch 0")
	b.m.Fork(inner, &Fork{Size: 2}, b.now)
	b.askOn(b.branch("branch 1"), "outer")
	b.askOn(b.branch("branch 0"), "bad")
	b.askOn(b.branch("branch 1"), "slow")
	b.want("body outer1", "body bad1", "body slow1")
	b.returned("bad1")
	b.want("save completed-bad1")
	b.accepted(saved(1))
	b.want("release bad1")
	b.m.BranchEnded(b.last.Step.branch, true, b.now)
	b.want()
	b.returned("outer1")
	b.want("save completed-outer1")
	b.accepted(saved(2))
	b.want() // though it is saved
	b.returned("slow1")
	b.want("save completed-slow1")
	b.accepted(saved(3))
	b.want("join")
	b.askOn(inner, "undo")
	b.want("release outer1")
}

// Rule S4.
func TestACheckIsDroppedWhereItsCallIsOver(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.want("code")
	b.askFor(b.m.Root(), "a", AskOptions{Check: true})
	b.want("save start-a1")
	b.accepted(wire.ItemOutcome{Status: wire.ItemStarted, Again: true, CheckInMs: 500})
	b.want()
	if wake := b.m.Wake(b.now); wake != b.now.Add(500*time.Millisecond) {
		t.Errorf("wakes at %v", wake)
	}
	b.after(500 * time.Millisecond)
	b.want("check a1")
	b.m.News(&wire.News{Status: wire.StatusSuperseded}, b.now)
	b.want("abort a1", "abort", "forget")
	b.m.CheckFoundNothing(b.steps["a1"], 1, b.now)
	b.want("answer over", "unwind")
}

// Rules S4, H3.
func TestWaitsAreRegisteredWhileACheckWaitsForItsTime(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.want("code")
	b.m.Fork(b.m.Root(), &Fork{Size: 2}, b.now)
	b.askFor(b.branch("branch 0"), "a", AskOptions{Check: true})
	b.sleepOn(b.branch("branch 1"), "x")
	b.want("save start-a1")
	b.accepted(wire.ItemOutcome{Status: wire.ItemStarted, Again: true, CheckInMs: 500})
	b.want("save wait-x1")
	b.accepted(waiting)
	b.after(500 * time.Millisecond)
	b.want("check a1")
	b.m.CheckFoundNothing(b.steps["a1"], 1, b.now)
	b.want("body a1")
}

// A goroutine of the user's asked for a step with the branch's context, and the branch does not wait for it.
func TestABranchThatLeavesAStepBehindCountsOnce(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.want("code")
	b.m.Fork(b.m.Root(), &Fork{Size: 2}, b.now)
	left := b.branch("branch 0")
	b.askOn(left, "left behind")
	right := b.branch("branch 1")
	b.m.BranchEnded(left, false, b.now)
	b.want()
	b.askOn(right, "b")
	b.want("body b1")
	if b.m.busy != 0 {
		t.Errorf("%d branches are said to run, and none does", b.m.busy)
	}
	b.returned("b1")
	b.want("save completed-b1")
	b.accepted(saved(1))
	b.want("release b1")
	b.end()
	b.want("join")
}
