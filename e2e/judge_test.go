package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nelkap/nelkap/e2e/history"
	"github.com/nelkap/nelkap/e2e/plan"
	"github.com/nelkap/nelkap/internal/apitype"
)

const (
	// cutMin is the least silence of a living process after which its call may be taken for cut: two seconds after its connection has
	// closed, where it has no poll open (C1).
	cutMin = 2 * time.Second
	// unaware is how long a playing that was cut off in a stop may go on before it hears of it: it begins one more body at most, since it
	// learns what it is when it saves that.
	unaware = time.Second
	// skew is how far the clock of a mark may be from the tests'.
	skew = 15 * time.Millisecond
	// singlePickUpMax is pickUpMax of one server: a lease, the question, the app's pause, a busy machine. Among several nodes a call that
	// nobody hears is kept for longer.
	singlePickUpMax = shortLease + question + 12*time.Second
	// cutsMax is how many cuts in a row fail a run (C13).
	cutsMax = 10
)

// judge looks at what is there in the end, and at the marks.
type judge struct {
	*chaos
	byRun  map[string][]plan.Mark
	status map[string]int

	runs, steps, bodies     int
	cutByKill, cutByFreeze  int // bodies that ran again, by what had cut them off
	repeated, lost, cutOffs int
	pickUps, calmPickUps    []time.Duration // from the kill; from when server and app worked again
}

func (c *chaos) judge(runs map[string]apitype.Run) *judge {
	j := &judge{chaos: c, byRun: map[string][]plan.Mark{}, status: map[string]int{}, runs: len(runs)}
	for _, m := range c.marks() {
		if m.Kind == plan.MarkBody {
			j.byRun[m.Run] = append(j.byRun[m.Run], m)
			j.bodies++
		}
	}
	for id := range j.byRun {
		if _, ok := runs[id]; !ok {
			j.lost++
			c.violate("run %s had a body, and is not there", id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(runs)) {
		run := runs[id]
		j.status[run.Status]++
		p := planOf(run)
		j.order(run, p)
		j.repeats(run)
		j.results(run, p)
		j.end(run, p)
	}
	j.starts(runs)
	return j
}

// order checks a run's bodies in the order of their marks: none begins once a later step's has. It tells the history of them too.
func (j *judge) order(run apitype.Run, p plan.Plan) {
	place := map[string]int{}
	for i, s := range p.Steps {
		place[s.Name] = i
	}
	furthest := 0
	for _, m := range j.byRun[run.ID] {
		i, ok := place[m.Step]
		if !ok {
			j.violate("run %s ran a body of step %q, which its plan does not have", run.ID, m.Step)
			continue
		}
		if i < furthest {
			j.repeated++
			j.violate("step %q of %s was saved, and its body ran again\n%s", m.Step, run.ID, j.logs(run))
		}
		furthest = max(furthest, i)
		at := j.history.At(m.Time())
		span := history.Span{Asked: at - int64(skew), Heard: at + int64(skew)}
		j.history.Begins(span, history.Step{Run: run.ID, Name: m.Step})
		if i > 0 {
			j.history.Passed(span, history.Step{Run: run.ID, Name: p.Steps[i-1].Name})
		}
	}
}

// logs is what there is to know of a run: its bodies, the faults of its time, and the lines of the logs.
func (j *judge) logs(run apitype.Run) string {
	var text strings.Builder
	for _, m := range j.byRun[run.ID] {
		fmt.Fprintf(&text, "  %s attempt %d of %q in process %d\n", clock(m.Time()), m.Attempt, m.Step, m.PID)
	}
	for _, v := range append(slices.Clone(j.serverVictims), j.appVictims[run.App]) {
		for _, f := range v.faults {
			if f.to.After(run.CreatedAt.Time) && (run.EndedAt == nil || f.from.Before(run.EndedAt.Time)) {
				fmt.Fprintf(&text, "  %s %s of %s, process %d, which worked again %s\n", clock(f.from), f.card, v.process.called(), f.pid, clock(f.to))
			}
		}
	}
	return fmt.Sprintf("Its bodies and the faults of its time:\n%sThe server's log has of it:\n%s\nIts app's log has of it:\n%s",
		text.String(), j.said(run.ID), j.apps[run.App].linesWith(run.ID))
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.0000") }

// calmAt is for how long an app and all servers have worked at an instant.
func (j *judge) calmAt(app *victim, at time.Time) time.Duration {
	calm := at.Sub(app.workedSince(at))
	for _, server := range j.serverVictims {
		calm = min(calm, at.Sub(server.workedSince(at)))
	}
	return calm
}

// body is an attempt of a run's step.
type body struct {
	run, step string
	attempt   int
}

// repeats checks that a body ran again as the same attempt only where it had been cut off.
func (j *judge) repeats(run apitype.Run) {
	before, app := map[body]plan.Mark{}, j.appVictims[run.App]
	for _, m := range j.byRun[run.ID] {
		b := body{run.ID, m.Step, m.Attempt}
		first, again := before[b]
		before[b] = m
		if !again {
			continue
		}
		from, to := first.Time(), m.Time()
		if first.PID != m.PID {
			if at, ok := app.killOf(first.PID); ok {
				j.cutByKill++
				calm := j.calmAt(app, to)
				j.pickUps, j.calmPickUps = append(j.pickUps, to.Sub(at)), append(j.calmPickUps, calm)
				if calm > j.pickUpMax {
					j.violate("step %q of %s was picked up %v after server and app worked again\n%s", m.Step, run.ID, calm, j.logs(run))
				}
			} else {
				j.violate("%s: bodies ran in process %d, which nobody killed, and in %d", run.ID, first.PID, m.PID)
			}
			continue
		}
		if silent := app.stoppedFor(m.PID, from, to.Add(skew)); silent >= cutMin {
			j.cutByFreeze++
			continue
		}
		j.repeated++
		j.violate("attempt %d of step %q of %s ran twice in process %d, which was neither killed nor frozen for long\n%s",
			m.Attempt, m.Step, run.ID, m.PID, j.logs(run))
	}
}

// results reads a run's steps for the last time and checks them against its plan and its bodies.
func (j *judge) results(run apitype.Run, p plan.Plan) {
	h := j.try(http.MethodGet, "/v1/runs/"+run.ID+"/steps?limit=100", nil)
	list, ok := read[apitype.List[apitype.Step]](j.chaos, h, "the steps of "+run.ID)
	if !ok {
		return
	}
	j.sawSteps(h.span, run.ID, list.Data, namesOf(run))
	bodies := map[string][]plan.Mark{}
	for _, m := range j.byRun[run.ID] {
		bodies[m.Step] = append(bodies[m.Step], m)
	}
	saved := 0
	for _, s := range list.Data {
		if s.Entry == nil {
			continue
		}
		saved++
		if s.Status != "completed" {
			continue
		}
		result := decode[plan.Result](j.t, s.Output)
		ran := bodies[s.Name]
		if i := slices.IndexFunc(ran, func(m plan.Mark) bool { return m.ID == result.ID }); i < 0 {
			j.violate("step %q of %s has the result of body %s, which never ran: %+v", s.Name, run.ID, result.ID, ran)
		} else if last := ran[len(ran)-1]; i < len(ran)-1 && j.appVictims[run.App].stoppedFor(last.PID, run.CreatedAt.Time, time.Now()) < cutMin {
			j.repeated++
			j.violate("step %q of %s has the result of its body %d of %d\n%s", s.Name, run.ID, i+1, len(ran), j.logs(run))
		}
	}
	j.steps += saved
	if run.Status == "completed" && saved != len(p.Steps) {
		j.lost++
		j.violate("run %s completed with %d of its %d steps", run.ID, saved, len(p.Steps))
	}
}

// end checks a run's final status against its plan.
func (j *judge) end(run apitype.Run, p plan.Plan) {
	fails := false
	attemptsMax := map[string]int{}
	for _, s := range p.Steps {
		fails = fails || s.Throws > cutsMax
		attemptsMax[s.Name] = s.Throws + 1
	}
	for _, m := range j.byRun[run.ID] {
		at := m.Time()
		if run.EndedAt != nil && at.Add(-skew).After(run.EndedAt.Time) && j.appVictims[run.App].stoppedFor(m.PID, at, at) < cutMin {
			j.violate("a body of step %q of %s began after the run had ended, at %v\n%s", m.Step, run.ID, run.EndedAt, j.logs(run))
		}
		if most, ok := attemptsMax[m.Step]; ok && m.Attempt > most {
			j.violate("step %q of %s ran as attempt %d: a cut uses up no attempt", m.Step, run.ID, m.Attempt)
		}
	}
	switch {
	case run.EndedAt == nil: // it is a violation already
	case run.Status == "cancelled" && run.CancelRequestedAt != nil:
	case run.Status == "completed" && !fails:
	case run.Status == "failed" && fails && run.Error.Message == "attempt 5 throws":
	case run.Status == "failed" && (run.Error.Name == "StepCutOffError" || run.Error.Name == "RunCutOffError"):
		j.cutOffs++
		if n := j.appVictims[run.App].cutsIn(run.CreatedAt.Time, run.EndedAt.Time); n < cutsMax {
			j.violate("run %s failed as cut off %d times, but its app was killed or frozen %d times: %s\n%s", run.ID, cutsMax, n, asJSON(j.t, run.Error), j.logs(run))
		}
	default:
		j.violate("run %s is %s, which its plan does not say: %s\n%s", run.ID, run.Status, asJSON(j.t, run), j.logs(run))
	}
}

// starts checks that there are just the runs that were asked for: by clients, by events and webhooks, and in steps.
func (j *judge) starts(runs map[string]apitype.Run) {
	byEvent, byHook, byParent, byKey := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	for id, run := range runs {
		parent := planOf(run).Parent
		switch {
		case run.Workflow == plan.Hooked && run.ReplayOf == nil:
			byHook[parent]++
		case run.EventID != nil && run.ReplayOf == nil:
			byEvent[run.App+"/"+*run.EventID]++
			if _, inStep := runs[parent]; inStep {
				byParent["event of "+parent]++
			} else if !j.asked.ids[run.App+"/"+*run.EventID] {
				j.violate("event %s started run %s, and nobody emitted it", *run.EventID, id)
			}
		case run.ReplayOf == nil && parent != "":
			byParent["child of "+parent]++
		case !j.asked.ids[id]:
			j.violate("run %s was started, and nobody asked for it: %s", id, asJSON(j.t, run))
		}
		if run.Key != nil && run.ReplayOf == nil {
			byKey[run.App+"/"+*run.Key]++
		}
	}
	for id := range j.asked.acked {
		if _, ok := runs[id]; !ok {
			j.lost++
			j.violate("run %s was acknowledged, and is lost", id)
		}
	}
	for event := range j.asked.events {
		j.once("event "+event, byEvent[event], true)
	}
	for hook, acked := range j.asked.hooks {
		j.once(hook, byHook[hook], acked)
	}
	for what, counted := range map[string]map[string]int{"event ": byEvent, "": byParent, "key ": byKey} {
		for name, n := range counted {
			j.once(what+name, n, false)
		}
	}
	for id, run := range runs {
		for _, s := range planOf(run).Steps {
			if run.Status == "completed" && s.Child {
				j.once("child of "+id, byParent["child of "+id], true)
			}
			if run.Status == "completed" && s.Emit {
				j.once("event of "+id, byParent["event of "+id], true)
			}
		}
	}
}

// once checks that something has one run, or none where nobody acknowledged it.
func (j *judge) once(what string, n int, acked bool) {
	if n == 0 && acked {
		j.lost++
		j.violate("%s was acknowledged, and started no run", what)
	}
	if n > 1 {
		j.violate("%s has %d runs", what, n)
	}
}
