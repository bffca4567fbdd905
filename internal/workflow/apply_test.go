package workflow_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nelkap/nelkap/internal/workflow"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const lease = 5 * time.Minute

func newRun() workflow.Run {
	return workflow.Start(workflow.Run{ID: "run_1", App: "shop", Workflow: "w"}, workflow.Settings{Lease: lease}, t0)
}

func apply(t *testing.T, r workflow.Run, in workflow.Input, now time.Time) workflow.Decision {
	t.Helper()
	d, err := workflow.Apply(r, in, now)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func begun(t *testing.T) workflow.Run {
	t.Helper()
	return apply(t, newRun(), workflow.Begin{CallID: "call_1", Token: "t1"}, t0).Run
}

func TestANewRunIsDueAtOnce(t *testing.T) {
	r := newRun()
	if r.Status != workflow.Queued || !r.ReadyAt().Equal(t0) || !r.TimerAt().IsZero() || r.Root != r.ID || r.Version != 1 {
		t.Fatalf("%+v", r)
	}
}

// Rule H2.
func TestBeginningRaisesTheEpochAndStartsTheLease(t *testing.T) {
	r := begun(t)
	if r.Epoch != 1 || r.Status != workflow.Running || !r.TimerAt().Equal(t0.Add(lease)) || !r.StartedAt.Equal(t0) || r.Version != 2 {
		t.Fatalf("%+v", r)
	}
	if _, err := workflow.Apply(r, workflow.Begin{CallID: "call_2"}, t0); !errors.Is(err, workflow.ErrForbidden) {
		t.Fatalf("W2: a second call began: %v", err)
	}
}

func TestAVoidBeginGivesTheOlderCallBack(t *testing.T) {
	r := apply(t, begun(t), workflow.Cut{CallID: "call_1"}, t0).Run
	r = apply(t, r, workflow.Begin{CallID: "call_2", Token: "t2"}, t0).Run
	older := workflow.Fence{CallID: "call_1", Token: "t1", Nonce: "n"}
	if v := workflow.Admit(&r, older, false); v != workflow.Undecided {
		t.Errorf("C3: while undecided the older call is told %s", v)
	}
	if v := workflow.Admit(&r, older, true); v != workflow.Superseded {
		t.Errorf("W2: once decided the older call is told %s", v)
	}
	r = apply(t, r, workflow.Void{CallID: "call_2", RetryAt: t0.Add(time.Second)}, t0).Run
	if v := workflow.Admit(&r, older, true); v != workflow.Accept || r.Epoch != 2 || r.Status != workflow.Queued {
		t.Errorf("C3: after the void: %s, %+v", v, r)
	}
}

func TestAContactMovesTheLease(t *testing.T) {
	r := apply(t, begun(t), workflow.Contact{CallID: "call_1", LeaseEndsAt: t0.Add(time.Hour)}, t0).Run
	if !r.TimerAt().Equal(t0.Add(time.Hour)) || r.Status != workflow.Running {
		t.Fatalf("C5: %+v", r)
	}
}

func TestACutUsesUpNoAttempt(t *testing.T) {
	r := begun(t)
	for n := range workflow.CutsMax - 1 {
		r = apply(t, r, workflow.Cut{CallID: fmt.Sprintf("call_%d", n+1)}, t0).Run
		if r.Cuts != n+1 || r.Attempts != 0 || !r.ReadyAt().Equal(t0) {
			t.Fatalf("C13: after %d cuts: %+v", n+1, r)
		}
		r = apply(t, r, workflow.Begin{CallID: fmt.Sprintf("call_%d", n+2)}, t0).Run
	}
}

func TestACallComesBackOnlyWhileNoNewerOneHasBegun(t *testing.T) {
	cut := apply(t, begun(t), workflow.Cut{CallID: "call_1"}, t0).Run
	if r := apply(t, cut, workflow.Revive{CallID: "call_1"}, t0).Run; r.Status != workflow.Running || r.Cuts != 0 || r.Epoch != 1 {
		t.Errorf("C5: %+v", r)
	}
	newer := apply(t, cut, workflow.Begin{CallID: "call_2"}, t0).Run
	again := apply(t, newer, workflow.Cut{CallID: "call_2"}, t0).Run
	for outcome, run := range map[string]workflow.Run{"a newer call is current": newer, "a newer call was cut": again} {
		if r, err := workflow.Apply(run, workflow.Revive{CallID: "call_1"}, t0); err == nil {
			t.Errorf("W2: %s, and the older one came back: %+v", outcome, r.Run)
		}
	}
}

// Rules W2, C6.
func TestFences(t *testing.T) {
	r := begun(t)
	bound := r
	bound.Call = &workflow.Call{ID: "call_1", Token: "t1", Nonce: "n"}
	suspended := apply(t, r, workflow.End{CallID: "call_1", Kind: workflow.EndSuspended, RetryAt: t0.Add(time.Second)}, t0).Run
	ended := apply(t, r, workflow.End{CallID: "call_1", Kind: workflow.EndCompleted}, t0).Run
	for _, c := range []struct {
		outcome string
		run     workflow.Run
		fence   workflow.Fence
		want    workflow.Verdict
	}{
		{"the current call", r, workflow.Fence{CallID: "call_1", Token: "t1", Nonce: "n"}, workflow.Accept},
		{"another token", r, workflow.Fence{CallID: "call_1", Token: "t2", Nonce: "n"}, workflow.Superseded},
		{"no token", r, workflow.Fence{CallID: "call_1", Nonce: "n"}, workflow.Superseded},
		{"the playing that holds it", bound, workflow.Fence{CallID: "call_1", Token: "t1", Nonce: "n"}, workflow.Accept},
		{"another playing", bound, workflow.Fence{CallID: "call_1", Token: "t1", Nonce: "m"}, workflow.Superseded},
		{"another call", r, workflow.Fence{CallID: "call_0", Token: "t1", Nonce: "n"}, workflow.Superseded},
		{"a call that has suspended", suspended, workflow.Fence{CallID: "call_1", Token: "t1", Nonce: "n"}, workflow.Ended},
		{"a run that has ended", ended, workflow.Fence{CallID: "call_1", Token: "t1", Nonce: "n"}, workflow.Ended},
	} {
		if got := workflow.Admit(&c.run, c.fence, true); got != c.want {
			t.Errorf("%s: %s, want %s", c.outcome, got, c.want)
		}
	}
}

func failure(retriable bool, retries int) *workflow.Failure {
	return &workflow.Failure{Error: []byte(`{}`), Retriable: retriable, Retries: retries}
}

// Rules H3, S2.
func TestAStepsOutcome(t *testing.T) {
	at := func(attempt int, f *workflow.Failure) workflow.Outcome {
		return workflow.Outcome{StepID: workflow.StepID{Name: "a", Number: 1}, Kind: workflow.KindRun, Attempt: attempt, Failure: f, Jitter: 0.5}
	}
	after := failure(true, 4)
	after.RetryAfter = time.Hour
	for _, c := range []struct {
		outcome string
		given   workflow.Outcome
		status  string        // of the entry; empty where it is tried again
		pause   time.Duration // until then
	}{
		{"a result", at(1, nil), workflow.StepCompleted, 0},
		{"the first throw", at(1, failure(true, 4)), "", time.Second},
		{"the fourth throw", at(4, failure(true, 4)), "", 8 * time.Second},
		{"the last throw", at(5, failure(true, 4)), workflow.StepFailed, 0},
		{"a throw without retries", at(1, failure(true, 0)), workflow.StepFailed, 0},
		{"a throw that may not be tried again", at(1, failure(false, 4)), workflow.StepFailed, 0},
		{"a throw that says when", at(1, after), "", time.Hour},
	} {
		s, r := workflow.Settle(c.given, t0)
		switch {
		case (s == nil) == (r == nil):
			t.Errorf("%s: an entry or a retry, not %v and %v", c.outcome, s, r)
		case s != nil && s.Status != c.status, r != nil && (c.status != "" || !r.RetryAt.Equal(t0.Add(c.pause))):
			t.Errorf("%s: %+v, %+v", c.outcome, s, r)
		}
	}
}

func TestThrowsOfTheCodeCountInARow(t *testing.T) {
	r := begun(t)
	throw := func(entries int64) workflow.Decision {
		d := apply(t, r, workflow.End{CallID: r.Call.ID, Kind: workflow.EndFailed, Error: failure(true, 2), Entries: entries, Jitter: 0.5}, t0)
		if r = d.Run; !r.Status.Final() {
			r = apply(t, apply(t, r, workflow.Timer{}, r.NextAt).Run, workflow.Begin{CallID: "call_n", Token: "t"}, t0).Run
		}
		return d
	}
	throw(0)
	throw(0)
	throw(1) // a step was saved: the count starts anew (S2)
	throw(1)
	if d := throw(1); d.Run.Status != workflow.Failed || string(d.Error) != `{}` {
		t.Fatalf("%+v", d)
	}
}

func TestSuspending(t *testing.T) {
	r := begun(t)
	end := workflow.End{CallID: "call_1", Kind: workflow.EndSuspended, Entries: 2, Seen: 2, RetryAt: t0.Add(time.Minute)}
	if got := apply(t, r, end, t0).Run; got.Status != workflow.Waiting || !got.TimerAt().Equal(end.RetryAt) || got.Reason == "" {
		t.Errorf("%+v", got)
	}
	end.Seen = 1 // something newer than it has seen (H2)
	if got := apply(t, r, end, t0).Run; got.Status != workflow.Queued {
		t.Errorf("H2: %+v", got)
	}
	end.Seen, end.RetryAt = 2, time.Time{}
	if _, err := workflow.Apply(r, end, t0); !errors.Is(err, workflow.ErrForbidden) {
		t.Errorf("W5: it waits for nothing: %v", err)
	}
}

// H4: several things that a run waits for wake it at once and then once a second, also where the clock was set back since they last did.
func TestWakingIsPacedByASecond(t *testing.T) {
	r := begun(t)
	for i, c := range []struct{ now, ready time.Duration }{{0, 0}, {100 * time.Millisecond, time.Second}, {time.Minute, time.Minute}, {-time.Hour, time.Second - time.Hour}, {0, 0}} {
		if i > 0 {
			r = apply(t, r, workflow.Begin{CallID: "call_1", Token: "t1"}, t0).Run
		}
		r = apply(t, r, workflow.End{CallID: "call_1", Kind: workflow.EndSuspended, Waits: true}, t0).Run
		r = apply(t, r, workflow.News{Steps: []workflow.Step{{}}, Wakes: true, Paced: true}, t0.Add(c.now)).Run
		if got := r.ReadyAt().Sub(t0); got != c.ready {
			t.Errorf("news after %v: it is called after %v, want %v", c.now, got, c.ready)
		}
	}
}

func TestATimerIsNeverEarly(t *testing.T) {
	r := apply(t, begun(t), workflow.End{CallID: "call_1", Kind: workflow.EndSuspended, RetryAt: t0.Add(time.Minute)}, t0).Run
	if d := apply(t, r, workflow.Timer{}, t0.Add(time.Minute-time.Millisecond)); d.Run != r {
		t.Errorf("W4: %s", cmp.Diff(r, d.Run))
	}
	woken := apply(t, r, workflow.Timer{}, t0.Add(time.Minute)).Run
	if woken.Status != workflow.Queued {
		t.Errorf("%+v", woken)
	}
	if again := apply(t, woken, workflow.Timer{}, t0.Add(time.Hour)); again.Run != woken {
		t.Error("W4: a doubled timer changed something")
	}
}

// TestAnyRunKeepsItsInvariants plays random inputs, right and wrong ones, and looks at every run that comes of them.
// Rules W3, W4, W5, N1, Z1, Z2.
func TestAnyRunKeepsItsInvariants(t *testing.T) {
	seen := map[string]bool{} // "queued --> running: begin"
	// Some arrows are rare: 10,000 runs, or a fifth with -short, and more where one has not been seen yet.
	for round := 0; round < 100 || round < 2_000 && len(seen) < len(drawnArrows()); round++ {
		rapid.Check(t, randomRun(seen))
	}
	checkDrawing(t, seen)
}

func randomRun(seen map[string]bool) func(t *rapid.T) {
	return func(t *rapid.T) {
		now, entries := t0, int64(0)
		r := newRun()
		if rapid.Bool().Draw(t, "timeout") {
			r.TimeoutAt = t0.Add(time.Hour)
		}
		r.Closers = rapid.SampledFrom([]workflow.Closers{0, 0, workflow.CloserOnFailure, workflow.CloserOnCancel, workflow.CloserUndo}).Draw(t, "closers")
		// All inputs, or only those by which what is rare comes about: its time is over before it is called, calls are lost again and again.
		inputs := rapid.SampledFrom([][]int{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}, {7}, {0, 8, 8}, {0, 0, 3}, {0, 0, 3, 4, 9}, {0, 0, 9, 10, 11, 11}}).Draw(t, "kinds")
		growth := rapid.SampledFrom([][]int{{0}, {0, 0, 0, 1}}).Draw(t, "growth")
		for i := range rapid.IntRange(1, 60).Draw(t, "inputs") {
			now = now.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "seconds")) * time.Second)
			entries += int64(rapid.SampledFrom(growth).Draw(t, "entries"))
			in := drawInput(t, rapid.SampledFrom(inputs).Draw(t, "input"), &r, fmt.Sprintf("call_%d", i), entries, now)
			before := r
			d, err := workflow.Apply(r, in, now)
			if err != nil {
				if !errors.Is(err, workflow.ErrForbidden) && !errors.Is(err, workflow.ErrNotCurrent) {
					t.Fatalf("an error without a kind: %v", err)
				}
				if d.Run != before {
					t.Fatal("a forbidden input changed the run")
				}
				continue
			}
			r = d.Run
			if d.Chapter != nil {
				entries = 0
			}
			checkInvariants(t, &before, in, &d, now)
			if from, to := before.Phase(), r.Phase(); from != to {
				seen[fmt.Sprintf("%s --> %s: %s", from, to, strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", in), "workflow.")))] = true
			}
		}
	}
}

func drawInput(t *rapid.T, kind int, r *workflow.Run, newCall string, entries int64, now time.Time) workflow.Input {
	callID := rapid.SampledFrom([]string{"current", "current", "current", "call_none"}).Draw(t, "call")
	if callID == "current" && r.Call != nil {
		callID = r.Call.ID
	}
	switch kind {
	case 0, 1, 2:
		return workflow.Begin{CallID: newCall, Token: "t", Handlers: r.Closers &^ workflow.CloserUndo}
	case 3:
		return workflow.Cut{CallID: callID, Entries: entries, Open: rapid.SampledFrom([][]workflow.StepID{nil, {{Name: "a", Number: 1}}}).Draw(t, "open")}
	case 4:
		return workflow.Void{CallID: callID, Entries: entries, RetryAt: now, Reason: rapid.SampledFrom([]string{"", "why"}).Draw(t, "reason")}
	case 5:
		return workflow.Contact{CallID: callID, LeaseEndsAt: now.Add(r.Lease)}
	case 6:
		return workflow.Revive{CallID: callID}
	case 7:
		return workflow.Timer{Entries: entries}
	case 8:
		if rapid.IntRange(0, 3).Draw(t, "cancel") == 0 {
			return workflow.Cancel{Entries: entries, Grace: workflow.GraceStd, Force: rapid.IntRange(0, 3).Draw(t, "force") == 0}
		}
		return workflow.Timer{Entries: entries}
	case 13:
		return workflow.Adopt{CallID: callID, Node: newCall}
	case 12:
		return workflow.Opened{CallID: callID, Undoes: true}
	case 10:
		if rapid.IntRange(0, 9).Draw(t, "skip") == 0 {
			return workflow.Skip{CallID: callID, Owner: "run_2"}
		}
		return workflow.Opened{CallID: callID, Waits: []workflow.Wait{{StepID: workflow.StepID{Name: "w", Number: 1}, Kind: workflow.KindSleep, DueAt: now.Add(time.Minute)}}}
	case 11:
		return workflow.News{
			Steps: []workflow.Step{{StepID: workflow.StepID{Name: "w", Number: 1}, Kind: workflow.KindSleep, Status: workflow.StepCompleted}},
			Wakes: rapid.Bool().Draw(t, "wakes"), Paced: rapid.Bool().Draw(t, "paced"),
		}
	default:
		end := rapid.SampledFrom([]workflow.EndKind{workflow.EndSuspended, workflow.EndYielded, workflow.EndFailed, workflow.EndSuspended, workflow.EndYielded, workflow.EndCompleted, workflow.EndRestarted}).Draw(t, "end")
		e := workflow.End{CallID: callID, Kind: end, Entries: entries, Seen: entries - int64(rapid.IntRange(0, 1).Draw(t, "unseen")), RetryAt: now.Add(time.Second), Jitter: 0.5}
		if rapid.Bool().Draw(t, "waits") {
			e.Waits, e.RetryAt, e.Why = true, time.Time{}, "it waits for an event"
		}
		if end == workflow.EndFailed {
			e.Error = failure(rapid.Bool().Draw(t, "retriable"), 2)
		}
		return e
	}
}

func checkInvariants(t *rapid.T, before *workflow.Run, in workflow.Input, d *workflow.Decision, now time.Time) {
	r := &d.Run
	_, news := in.(workflow.News)
	grows := len(d.Append)+len(d.Open) > 0
	switch {
	case before.Status.Final() && *r != *before:
		t.Fatalf("W3: an ended run changed: %s", cmp.Diff(*before, *r))
	case r.Epoch < before.Epoch, r.Epoch > before.Epoch && (r.Call == nil || r.Status != workflow.Running):
		t.Fatalf("W2: epoch %d after %d: %+v", r.Epoch, before.Epoch, r)
	case r.Status == workflow.Running && r.Call == nil:
		t.Fatalf("W2: it runs without a call: %+v", r)
	case !r.Status.Final() && r.TimerAt().IsZero() && r.ReadyAt().IsZero() && r.Status != workflow.Waiting:
		t.Fatalf("W5: nothing will happen to it: %+v", r)
	case r.Status.Final() && (r.Call != nil || !r.TimerAt().IsZero() || !r.ReadyAt().IsZero() || r.EndedAt.IsZero()):
		t.Fatalf("W3: an ended run has something left: %+v", r)
	case r.Status == workflow.Waiting && r.Reason == "":
		t.Fatalf("W5: it waits without a reason: %+v", r)
	case before.Status == workflow.Waiting && r.Status == workflow.Queued && r.Call == nil && !news && r.Closing() == before.Closing() && now.Before(before.NextAt):
		t.Fatalf("W4: it woke at %v, before %v", now, before.NextAt)
	case *r != *before && r.Version != before.Version+1:
		t.Fatalf("N1: version %d after %d", r.Version, before.Version)
	case *r == *before && r.Version != before.Version && !grows:
		t.Fatal("N1: nothing changed, and the version did")
	case r.Ending != nil && r.Status == workflow.Completed:
		t.Fatalf("Z1: an ending run completed: %+v", r)
	case before.Ending != nil && (r.Ending == nil || r.Ending.Reason != before.Ending.Reason || !r.Ending.At.Equal(before.Ending.At)):
		t.Fatalf("Z1: an ending run ends otherwise: %+v", r)
	case before.Closing() && (r.Ending == nil || *r.Ending != *before.Ending):
		t.Fatalf("Z1: a closing changed under its calls: %+v", r)
	case r.Status.Final() && !before.Status.Final() && !before.Closing() && r.Ending != nil && !forced(in) && owes(r):
		t.Fatalf("Z1: it has its final status before what is to be done: %+v", r)
	case r.Closing() && !before.Closing() && (!d.CloseWaits || r.Call != nil || r.Status != workflow.Queued):
		t.Fatalf("Z1: a closing begins with something left: %+v", d)
	case r.Restart != before.Restart && (d.Chapter == nil || !d.CloseWaits || r.Closers&workflow.CloserUndo != 0):
		t.Fatalf("Z2: it begins again with something left: %+v", d)
	}
}

// drawnArrows are the arrows of the state diagram, each with its input.
func drawnArrows() map[string]bool {
	drawn := map[string]bool{}
	for line := range strings.Lines(workflow.Diagram()) {
		from, inputs, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || !strings.Contains(from, " --> ") {
			continue
		}
		for in := range strings.SplitSeq(inputs, ", ") {
			drawn[from+": "+in] = true
		}
	}
	return drawn
}

// checkDrawing compares the arrows of the state diagram with the changes that were seen.
func checkDrawing(t *testing.T, seen map[string]bool) {
	t.Helper()
	drawn := drawnArrows()
	var missing []string
	for arrow := range seen {
		if !drawn[arrow] {
			missing = append(missing, arrow)
		}
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		t.Errorf("the drawing in diagram.go lacks:\n%s", strings.Join(missing, "\n"))
	}
	var never []string
	for arrow := range drawn {
		if !seen[arrow] {
			never = append(never, arrow)
		}
	}
	slices.Sort(never)
	if len(never) > 0 {
		t.Errorf("the drawing has what never happens:\n%s", strings.Join(never, "\n"))
	}
}

func TestTheStateDiagramIsTheTables(t *testing.T) {
	page, err := os.ReadFile("../../docs/internals/states.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(workflow.Diagram(), string(page)); diff != "" {
		t.Errorf("run go generate ./... (-table +page)\n%s", diff)
	}
}

func forced(in workflow.Input) bool {
	c, ok := in.(workflow.Cancel)
	return ok && c.Force
}

// owes tells whether a run has to undo or to tell before its final status.
func owes(r *workflow.Run) bool {
	handler := workflow.CloserOnFailure
	if r.Ending.Reason == workflow.EndingCancelled {
		handler = workflow.CloserOnCancel
	}
	return r.Closers&(workflow.CloserUndo|handler) != 0
}
