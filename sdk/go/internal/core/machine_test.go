package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// bench holds a machine and reads its outputs as words.
type bench struct {
	t     *testing.T
	m     *Machine
	now   time.Time
	steps map[string]*Step
	last  Output // that was wanted
	save  *wire.Save
}

func playing(t *testing.T, call wire.Call, config Config) *bench {
	if call.Call.LeaseMs == 0 {
		call.Call.LeaseMs, call.Call.HeartbeatMs = 300000, 5000
	}
	b := &bench{t: t, now: start, steps: map[string]*Step{}}
	b.m = New(&call, config, start)
	b.m.Begin(start)
	return b
}

var words = map[Do]string{
	DoRunCode: "code", DoBody: "body", DoRelease: "release", DoAbort: "abort", DoSave: "save", DoFetch: "fetch", DoAnswer: "answer",
	DoFail: "fail", DoEnd: "end", DoUnwind: "unwind", DoForget: "forget", DoBranch: "branch", DoJoin: "join", DoCheck: "check", DoHandler: "handler", DoVerified: "verified",
}

// want takes the outputs, and checks that they are these and no others.
func (b *bench) want(want ...string) {
	b.t.Helper()
	got := []string{}
	for _, o := range slices.Clone(b.m.Take()) {
		word := words[o.Do]
		b.last = o
		switch {
		case o.Do == DoBranch:
			word += fmt.Sprintf(" %d", o.Branch.Index)
		case o.Step != nil:
			word += fmt.Sprintf(" %s%d", o.Step.Name, o.Step.Number)
			b.steps[fmt.Sprint(o.Step.Name, o.Step.Number)] = o.Step
		case o.Save != nil:
			b.save = o.Save
			for _, item := range o.Save.Items {
				word += fmt.Sprintf(" %s-%s%d", item.Op, item.Name, item.Number)
			}
		case o.Answer != nil:
			word += " " + o.Answer.Type
		}
		got = append(got, word)
	}
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		b.t.Fatalf("outputs (-want +got):\n%s", diff)
	}
}

// branch is the one that starts with the only output.
func (b *bench) branch(want string) *Branch {
	b.t.Helper()
	b.want(want)
	return b.last.Branch
}

func (b *bench) ask(name string) error { return b.askFor(b.m.Root(), name, AskOptions{Retries: 4}) }

func (b *bench) askOn(branch *Branch, name string) error {
	return b.askFor(branch, name, AskOptions{Retries: 4})
}

func (b *bench) sleepOn(branch *Branch, name string) error {
	return b.askFor(branch, name, AskOptions{Terms: &wire.Terms{Op: wire.OpWait, Kind: wire.KindSleep, Delay: time.Minute}})
}

func (b *bench) askFor(branch *Branch, name string, opts AskOptions) error {
	s, err := b.m.Ask(branch, name, opts, nil, b.now)
	if s != nil {
		b.steps[fmt.Sprint(s.Name, s.Number)] = s
	}
	return err
}

func (b *bench) returned(step string) {
	s := b.steps[step]
	b.m.BodyEnded(s, s.Attempt, Settled{Output: json.RawMessage("1")}, b.now)
}

func (b *bench) threw(step string) {
	s := b.steps[step]
	b.m.BodyEnded(s, s.Attempt, Settled{Err: &wire.Error{Name: "Error", Message: "no"}, Retriable: true, RetryAfter: -1}, b.now)
}

func (b *bench) accepted(items ...wire.ItemOutcome) {
	b.m.Saved(b.save, &wire.Outcome{Status: wire.StatusAccepted, Items: items}, b.now)
}

func (b *bench) after(d time.Duration) {
	b.now = b.now.Add(d)
	b.m.Tick(b.now)
}

func saved(entry int64) wire.ItemOutcome {
	return wire.ItemOutcome{Status: wire.ItemSaved, Entry: entry}
}

func TestBranchHasOneStepOpen(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.want("code")
	b.ask("a")
	if err := b.ask("b"); !errors.Is(err, ErrBusy) {
		t.Errorf("a second step: %v", err)
	}
	b.want("body a1")
	b.returned("a1")
	b.want("save completed-a1")
	b.accepted(saved(1))
	b.want("release a1")
	if err := b.ask("b"); err != nil || b.steps["b1"].Number != 1 {
		t.Errorf("the step after it: %v", err)
	}
}

// Rule S3.
func TestRunHasAtMostSoManySteps(t *testing.T) {
	b := playing(t, wire.Call{
		Limits: wire.Limits{Steps: 1}, Steps: wire.Steps{Entries: []wire.Entry{{Entry: 1, Kind: "run", Name: "a", Number: 1, Status: "completed"}}},
	}, Config{})
	b.want("code")
	b.ask("a")
	b.want("release a1")
	if err := b.ask("a"); !errors.Is(err, ErrStepsMax) {
		t.Errorf("the second step: %v", err)
	}
	b.want()
}

// Rule S7.
func TestSavedStepOfAnotherKindStopsTheRun(t *testing.T) {
	b := playing(t, wire.Call{
		Steps: wire.Steps{Entries: []wire.Entry{{Entry: 1, Kind: "sleep", Name: "a", Number: 1, Status: "completed"}}},
	}, Config{})
	b.want("code")
	if err := b.ask("a"); !errors.Is(err, ErrOver) {
		t.Errorf("asking: %v", err)
	}
	b.want("unwind", "answer failed", "forget")
}

// H6: a body that the function did not wait for is aborted; what it returns within ten seconds is saved.
func TestFunctionThatDoesNotWaitForItsStep(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(b *bench)
	}{
		{"it returns", func(b *bench) {
			b.returned("a1")
			b.want("save completed-a1")
			b.accepted(saved(1))
			b.want("unwind", "answer completed", "forget")
		}},
		{"it throws", func(b *bench) {
			b.threw("a1")
			b.want("unwind", "answer completed", "forget")
		}},
		{"it goes on", func(b *bench) {
			if wake := b.m.Wake(b.now); wake != b.now.Add(10*time.Second) {
				t.Errorf("wakes at %v", wake)
			}
			b.after(10 * time.Second)
			b.want("unwind", "answer completed", "forget")
			b.returned("a1")
			b.want()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := playing(t, wire.Call{}, Config{})
			b.ask("a")
			b.want("code", "body a1")
			b.m.Completed(nil, b.now)
			b.want("abort a1")
			c.then(b)
		})
	}
}

// H6: code that is tried again needs what its bodies come to, so that none of them runs again.
func TestCodeThatIsTriedAgainWaitsForItsBodies(t *testing.T) {
	for attempt, want := range map[int][]string{1: nil, 4: nil, 5: {"abort a1"}} {
		b := playing(t, wire.Call{Run: wire.Run{Attempt: attempt}}, Config{Retries: 4})
		b.ask("a")
		b.want("code", "body a1")
		b.m.Failed(Settled{Err: &wire.Error{Name: "Error", Message: "no"}, Retriable: true, RetryAfter: -1}, b.now)
		b.want(want...)
		if wake := b.m.Wake(b.now); wake.IsZero() != (want == nil) {
			t.Errorf("attempt %d is given up at %v", attempt, wake)
		}
		b.returned("a1")
		b.want("save completed-a1")
		b.accepted(saved(1))
		b.want("unwind", "answer failed", "forget")
	}
}

// Rule C12.
func TestStoppingFinishesTheBodyAndYields(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.ask("a")
	b.m.Stop(b.now)
	b.want("code", "body a1")
	b.returned("a1")
	b.want("save completed-a1")
	b.accepted(saved(1))
	b.want("release a1")
	b.ask("b")
	b.want("unwind", "answer yielded", "forget")
}

// besideABody has a branch whose step is saved beside another whose body, of the step slow, still runs.
func besideABody(t *testing.T) (b *bench, quick *Branch) {
	t.Helper()
	b = playing(t, wire.Call{}, Config{})
	b.want("code")
	b.m.Fork(b.m.Root(), &Fork{Size: 2}, b.now)
	b.askOn(b.branch("branch 0"), "slow")
	quick = b.branch("branch 1")
	b.askOn(quick, "quick")
	b.want("body slow1", "body quick1")
	b.returned("quick1")
	b.want("save completed-quick1")
	b.accepted(saved(1))
	b.want("release quick1")
	return b, quick
}

// Rules C12, H6: what another branch may not start any more does not end the call while a body runs.
func TestStoppingWaitsForTheBodyOfAnotherBranch(t *testing.T) {
	b, quick := besideABody(t)
	b.m.Stop(b.now)
	b.askOn(quick, "next")
	b.want()
	b.returned("slow1")
	b.want("save completed-slow1")
	b.accepted(saved(2))
	b.want("release slow1")
}

// Rules S7, H6: what a body in flight comes to is saved before the run is stopped.
func TestAStepOfAnotherKindWaitsForTheBodyOfAnotherBranch(t *testing.T) {
	b, quick := besideABody(t)
	b.news(slept(2, "x"))
	if err := b.askOn(quick, "x"); !errors.Is(err, ErrOver) {
		t.Errorf("asking: %v", err)
	}
	b.want("abort slow1")
	b.returned("slow1")
	b.want("save completed-slow1")
	b.accepted(saved(3))
	b.want("unwind", "answer failed", "forget")
}

// Rule C12.
func TestTimeLimitYieldsOnlyAfterProgress(t *testing.T) {
	b := playing(t, wire.Call{}, Config{YieldAt: start.Add(time.Second)})
	b.now = start.Add(2 * time.Second)
	b.ask("a")
	b.want("code", "body a1")
	b.returned("a1")
	b.want("save completed-a1")
	b.accepted(saved(1))
	b.want("release a1")
	b.ask("a")
	b.want("unwind", "answer yielded", "forget")
}

func TestRefusedTwiceFailsTheRun(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.ask("a")
	b.want("code", "body a1")
	b.returned("a1")
	b.want("save completed-a1")
	b.accepted(wire.ItemOutcome{Status: wire.ItemRefused})
	b.want("save failed-a1")
	b.accepted(wire.ItemOutcome{Status: wire.ItemRefused})
	b.want("unwind", "answer failed", "forget")
}

// Rule Z1.
func TestStartThatIsRefusedBecauseTheRunEndsDoesNotHappen(t *testing.T) {
	b := playing(t, wire.Call{Call: wire.CallInfo{Cuts: 1}}, Config{})
	b.ask("a")
	b.want("code", "save start-a1")
	b.m.Saved(b.save, &wire.Outcome{
		Status: wire.StatusAccepted, Items: []wire.ItemOutcome{{Status: wire.ItemRefused}}, Ending: &wire.Ending{Reason: wire.ReasonCancelled},
	}, b.now)
	b.want("abort", "unwind", "answer yielded", "forget")
}

// Rule Z1.
func TestEndingWaitsForTheCodeToRest(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.want("code")
	b.m.News(&wire.News{Status: wire.StatusEnding, Ending: &wire.Ending{Reason: wire.ReasonTimedOut}}, b.now)
	b.want("abort")
	b.ask("a")
	b.want("unwind", "answer yielded", "forget")
}

func TestSupersededWaitsForItsBodiesAndThenSaysThatItStopped(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.ask("a")
	b.want("code", "body a1")
	for range 2 {
		b.m.News(&wire.News{Status: wire.StatusSuperseded}, b.now)
	}
	b.want("abort a1", "abort", "forget")
	b.returned("a1")
	b.want("answer over", "unwind")
}

// A poll that another call opened names this one before it begins, and may be answered before.
func TestACallThatIsLostBeforeItBeginsDoesNotBegin(t *testing.T) {
	for _, bind := range []bool{false, true} {
		b := &bench{t: t, now: start}
		b.m = New(&wire.Call{}, Config{Bind: bind}, start)
		b.m.News(&wire.News{Status: wire.StatusSuperseded}, start)
		b.m.Begin(start)
		b.want("abort", "forget", "answer over", "unwind")
	}
}

// Rule C10.
func TestAnswerWithUnsavedResultsIsAlsoDeliveredThroughTheAPI(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.ask("a")
	b.want("code", "body a1")
	b.returned("a1")
	b.want("save completed-a1")
	b.m.SaveFailed(b.save, b.now)
	b.want()
	b.after(time.Minute)
	b.want("save completed-a1", "unwind", "answer yielded")
	b.after(3 * time.Second)
	b.want("end yielded")
	b.m.EndOutcome("", b.now)
	b.want()
	b.after(100 * time.Millisecond)
	b.want("end yielded")
	b.m.EndOutcome(wire.StatusSuperseded, b.now)
	b.want("forget")
	if !b.m.Wake(b.now).IsZero() {
		t.Error("the machine wants to be woken for nothing")
	}
}

// H6, C11: what a loser came to in its ten seconds is not lost where no save has brought it to the server.
func TestWhatALoserCameToTravelsInTheAnswer(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.ask("a")
	b.want("code", "body a1")
	b.m.Completed(nil, b.now)
	b.want("abort a1")
	b.returned("a1")
	b.want("save completed-a1")
	b.m.SaveFailed(b.save, b.now)
	b.after(10 * time.Second)
	b.want("save completed-a1", "unwind", "answer completed")
	if unsaved := b.m.end.answer.Unsaved; len(unsaved) != 1 || unsaved[0].Name != "a" {
		t.Errorf("unsaved are %+v", unsaved)
	}
}

// C11: an answer that is larger than answers may be would reach the server on no way.
func TestNoMoreTravelsThanAnAnswerHolds(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.want("code")
	b.m.Fork(b.m.Root(), &Fork{Size: 5}, b.now)
	for i := range 5 {
		b.askOn(b.branch(fmt.Sprintf("branch %d", i)), "a")
	}
	b.want("body a1", "body a2", "body a3", "body a4", "body a5")
	large := json.RawMessage(`"` + strings.Repeat("x", 4<<20-2) + `"`)
	for i := range 5 {
		s := b.steps[fmt.Sprintf("a%d", i+1)]
		b.m.BodyEnded(s, 1, Settled{Output: large}, b.now)
	}
	b.want("save completed-a1")
	b.m.SaveFailed(b.save, b.now)
	b.after(time.Minute)
	b.want("save completed-a1", "unwind", "answer yielded")
	if answer := b.m.end.answer; len(answer.Unsaved) != 3 || len(answer.AppendJSON(nil)) > wire.MessageBytesMax {
		t.Errorf("the answer has %d results and %d bytes", len(answer.Unsaved), len(answer.AppendJSON(nil)))
	}
}

// A lease of 5 s leaves 3.33 s for tries, counted from the first one's sending: what is swallowed is known to have failed only later.
// Rule C11.
func TestSilenceIsCountedFromTheFirstTryThatFailed(t *testing.T) {
	b := playing(t, wire.Call{Call: wire.CallInfo{LeaseMs: 5_000, HeartbeatMs: 1_665}}, Config{})
	b.ask("a")
	b.want("code", "body a1")
	b.returned("a1")
	b.want("save completed-a1")
	b.after(1_500 * time.Millisecond)
	b.m.SaveFailed(b.save, b.now)
	b.after(100 * time.Millisecond)
	b.want("save completed-a1")
	if wake := b.m.Wake(b.now).Sub(b.now); wake != 1_730*time.Millisecond {
		t.Errorf("the machine wants to be woken in %v", wake)
	}
	b.after(1_730 * time.Millisecond)
	b.want("unwind", "answer yielded")
}

// Rule C11. The host, or whoever stops the process, waits no minute for the server to come back.
func TestWhatCanNotBeSavedTravelsInTheAnswerOfACallThatHurries(t *testing.T) {
	for _, test := range []struct {
		name    string
		yieldAt time.Time
		hurry   func(b *bench)
	}{
		{"near the time limit", start.Add(time.Second), func(b *bench) { b.after(time.Second) }},
		{"when the process stops", time.Time{}, func(b *bench) { b.m.Stop(b.now) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			fails := func(b *bench) { b.m.SaveFailed(b.save, b.now) }
			for _, order := range [][]func(*bench){{fails, test.hurry}, {test.hurry, fails}} {
				b := playing(t, wire.Call{}, Config{YieldAt: test.yieldAt})
				b.ask("a")
				b.want("code", "body a1")
				b.returned("a1")
				b.want("save completed-a1")
				order[0](b)
				b.want()
				order[1](b)
				if a := b.answer("yielded"); !a.Excused || len(a.Unsaved) != 1 {
					t.Errorf("answered %+v", a)
				}
			}
		})
	}
}

// Rule C11.
func TestOnlyWhatCanNotBeAcceptedIsKept(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.ask("a")
	b.want("code", "body a1")
	b.returned("a1")
	b.want("save completed-a1")
	if kept := b.m.Kept(); kept != 0 {
		t.Errorf("%d bytes are kept of a save that is under way", kept)
	}
	b.m.SaveFailed(b.save, b.now)
	if kept := b.m.Kept(); kept < 100 || kept > 1_000 {
		t.Errorf("%d bytes are kept of a small result", kept)
	}
	b.after(time.Minute)
	b.want("save completed-a1", "unwind", "answer yielded")
	if kept := b.m.Kept(); kept < 100 || kept > 2_000 {
		t.Errorf("%d bytes are kept of an end with a small result", kept)
	}
	b.m.News(&wire.News{Status: wire.StatusEnded}, b.now)
	b.want("forget")
	if kept := b.m.Kept(); kept != 0 || !b.m.Wake(b.now).IsZero() {
		t.Errorf("%d bytes are kept of a call that has ended", kept)
	}
}

// Rule C1.
func TestPausesBetweenTriesGrowToHalfAHeartbeat(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.m.Closed(b.now)
	b.ask("a")
	b.want("code", "body a1")
	b.returned("a1")
	var pauses []time.Duration
	for range 8 {
		b.want("save completed-a1")
		b.m.SaveFailed(b.save, b.now)
		pause := b.m.Wake(b.now).Sub(b.now)
		pauses = append(pauses, pause/time.Millisecond)
		b.after(pause)
	}
	if want := []time.Duration{100, 200, 400, 800, 1600, 2500, 2500, 2500}; !slices.Equal(pauses, want) {
		t.Errorf("pauses %v, want %v", pauses, want)
	}
}

func TestLateOutcomesAndEndsChangeNothing(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.ask("a")
	b.want("code", "body a1")
	b.returned("a1")
	b.want("save completed-a1")
	first := b.save
	b.accepted(saved(1))
	b.want("release a1")
	b.m.Saved(first, &wire.Outcome{Status: wire.StatusSuperseded}, b.now)
	b.m.SaveFailed(first, b.now)
	b.returned("a1")
	b.m.EndOutcome(wire.StatusAccepted, b.now)
	b.m.AnswerFailed(b.now)
	b.m.Page(&wire.Page{}, b.now)
	b.want()
}

// Rule H5.
func TestPageThatLeadsToItselfIsACut(t *testing.T) {
	zero := int64(0)
	b := playing(t, wire.Call{Steps: wire.Steps{Next: &zero}}, Config{})
	b.want("fetch")
	b.m.Page(&wire.Page{Next: &zero}, b.now)
	b.want("unwind", "fail", "forget")
}
