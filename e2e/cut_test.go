package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nelkap/nelkap/e2e/plan"
	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
)

// pickUp bounds how long a run may wait for its next call once a new process of its app answers: the question that a lost
// connection raises (2 s), the app's pause (a second or so), and a busy machine.
const pickUp = 8 * time.Second

// three is a run of three steps, the second of which waits for its gate.
var three = plan.Plan{Steps: []plan.Step{{Name: "one"}, {Name: "two", Gate: "gate"}, {Name: "three"}}}

func TestAKilledAppRepeatsOnlyTheStepThatWasCutOff(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		w, app := newSimple(t, language)
		id := w.run(language, three)
		first := w.began(id, "two", 1)
		app.kill()
		app.start()
		second := w.markWithin(pickUp, plan.MarkBody, id, "two", 2)
		if first.PID == second.PID || second.Attempt != 1 {
			t.Errorf("the step was picked up as attempt %d by process %d; it was cut off in %d", second.Attempt, second.PID, first.PID)
		}
		w.open("gate")
		w.completed(id, within)
		w.bodies(id, map[string]int{"one": 1, "two": 2, "three": 1})
		w.results(id)
	})
}

func TestARetryThatIsCutOffKeepsItsAttempt(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		w, app := newSimple(t, language)
		id := w.run(language, plan.Plan{Steps: []plan.Step{{Name: "one"}, {Name: "two", Throws: 1, Gate: "gate"}}})
		w.open("gate.attempt1")
		w.began(id, "two", 2)
		app.kill()
		w.open("gate")
		app.start()
		w.completed(id, within)
		w.bodies(id, map[string]int{"one": 1, "two": 3})
		for i, m := range w.find(plan.MarkBody, id, "two") {
			if want := min(i+1, 2); m.Attempt != want {
				t.Errorf("body %d of the step was attempt %d, want %d: a cut uses up no attempt", i+1, m.Attempt, want)
			}
		}
		w.results(id)
	})
}

func TestADeployThatStopsRepeatsNothing(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		w, app := newSimple(t, language)
		id := w.run(language, three)
		old := w.began(id, "two", 1)
		app.signal(syscall.SIGTERM)
		// A deploy that stops waits for the bodies that run.
		if holds(t.Context(), 300*time.Millisecond, app.hasEnded) {
			t.Fatal("the app ended while a body ran")
		}
		w.open("gate")
		if code := app.exit(); code != 0 {
			t.Errorf("the app exited with %d", code)
		}
		app.env = append(app.env, plan.EnvVersion+"=2")
		app.start()
		run := w.completed(id, pickUp)
		w.bodies(id, map[string]int{"one": 1, "two": 1, "three": 1, plan.Added: 1})
		results := w.results(id)
		if results["two"].PID != old.PID {
			t.Errorf("step two has the result of process %d, not of %d, which ran it", results["two"].PID, old.PID)
		}
		if out := decode[plan.Output](t, run.Output); out.PID == old.PID || out.Steps != 4 {
			t.Errorf("the output is %+v, want that of the new version", out)
		}
	})
}

func TestADeployThatKillsRepeatsOnlyTheStepThatWasCutOff(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		w, app := newSimple(t, language)
		id := w.run(language, three)
		old := w.began(id, "two", 1)
		app.kill()
		app.env = append(app.env, plan.EnvVersion+"=2")
		app.start()
		w.markWithin(pickUp, plan.MarkBody, id, "two", 2)
		w.open("gate")
		w.completed(id, within)
		w.bodies(id, map[string]int{"one": 1, "two": 2, "three": 1, plan.Added: 1})
		if one := w.results(id)["one"]; one.PID != old.PID {
			t.Errorf("step one has the result of process %d, not of %d, which ran it", one.PID, old.PID)
		}
	})
}

// Before a deploy, its code is played against what lives: nothing of it runs, and the run goes on as if nothing had been.
func TestAVerifyTellsWhatADeployWouldBreak(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		w, _ := newSimple(t, language)
		id := w.run(language, three)
		w.began(id, "two", 1)
		verify := func(version string, meant ...string) apitype.VerifiedRun {
			addr := freeAddress(t)
			newer := w.app(language, addr, plan.EnvVersion+"="+version)
			newer.start()
			defer newer.kill()
			page, err := w.api.Verify(t.Context(), appURL(addr), meant, client.Page{})
			if err != nil || page.App != language || len(page.Data) != 1 || page.Data[0].RunID != id {
				t.Fatalf("version %s: %s, %v", version, asJSON(t, page), err)
			}
			return page.Data[0]
		}
		if v := verify("1"); v.Diverges || len(v.Asks) != 1 || v.Asks[0].Name != "two" {
			t.Errorf("the same code: %s", asJSON(t, v))
		}
		for version, asks := range map[string]string{"2": plan.Added, "3": plan.Renamed + "one"} {
			v := verify(version)
			if !v.Diverges || !strings.Contains(strings.Join(v.Problems, " "), `it asks for "`+asks+`" (run), which is not saved, before it has asked for "one" (run)`) {
				t.Errorf("code that asks first for %q: %s", asks, asJSON(t, v))
			}
		}
		if v := verify("2", plan.Added); v.Diverges {
			t.Errorf("code with a step that is meant to be new: %s", asJSON(t, v))
		}
		w.open("gate")
		w.completed(id, within)
		w.bodies(id, map[string]int{"one": 1, "two": 1, "three": 1})
	})
}

func TestCancellingReachesARunningBodyWithinASecond(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		w, _ := newSimple(t, language)
		id := w.run(language, three)
		w.began(id, "two", 1)
		asked := time.Now()
		if _, err := w.api.Cancel(t.Context(), id, false); err != nil {
			t.Fatal(err)
		}
		aborted := w.mark(plan.MarkAborted, id, "two", 1)
		took := time.UnixMilli(int64(aborted.At)).Sub(asked)
		t.Logf("aborted after %v: %s", took.Round(time.Millisecond), aborted.Why)
		if took > time.Second {
			t.Errorf("the body's signal was aborted after %v", took)
		}
		run := w.end(id, within)
		if run.Status != "cancelled" || run.CancelRequestedAt == nil {
			t.Errorf("the run: %s", asJSON(t, run))
		}
		w.bodies(id, map[string]int{"one": 1, "two": 1})
	})
}
