package sim

import (
	"errors"
	"strings"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// beginning is when an attempt of a body first began, and by which plan.
type beginning struct {
	at      time.Time
	plan    *stepPlan
	several bool // code of another version began it, too, which may have another step under its name
}

// notes notes that an attempt of a body begins. witness.mu is held.
func (p *playing) notes(s *stepPlan, of retryOf) {
	t := p.witness
	if b := t.began[of]; b == nil {
		t.began[of] = &beginning{at: time.Now(), plan: s}
	} else {
		b.several = b.several || b.plan != s
	}
}

// timed is told that a body has done its work, and why its context has ended; nil: it has not. A body's time is over when it has passed since
// the attempt began, and not before (S6). The time of one with a check counts from the check.
func (p *playing) timed(s *stepPlan, id stepID, began time.Time, cause error) {
	t := p.witness
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.timeout == 0 || t.lenient {
		return
	}
	took := time.Since(began)
	ofRun := t.runs[p.run].TimeoutAt // the bodies of a run that is out of time are told the same
	out := errors.Is(cause, nelkap.ErrTimeout) && (ofRun.IsZero() || t.world.latest().Before(ofRun))
	if out && took < s.timeout && !s.checked {
		t.broken("S6", "%s: its time is over after %v, and it has %v", id, took, s.timeout)
	} else if cause == nil && took > s.timeout+instant {
		t.broken("S6", "%s: it has gone on for %v, and it has %v", id, took, s.timeout)
	}
}

// checkOutOfTime: that an attempt was out of time is said of one that has begun so long ago, and has such a time; the pause before the next
// is that of a throw (S2, S6, promise 13). mu is held.
func (t *witness) checkOutOfTime(r *record, s workflow.Retry) {
	id := r.step(s.StepID)
	began := t.began[retryOf{id, s.Attempt}]
	if !outOfTime(s.Error) || began == nil || began.several {
		return
	}
	switch plan := began.plan; {
	case plan.timeout == 0:
		t.broken("S6", "%s: attempt %d was out of time, and its step has no timeout", id, s.Attempt)
	case plan.checked:
	case time.Since(began.at) < plan.timeout:
		t.broken("S6", "%s: attempt %d was out of time after %v, and it has %v", id, s.Attempt, time.Since(began.at), plan.timeout)
	case t.world.steady():
		next := began.at.Add(plan.timeout + t.world.plan.pauseAfter(s.Attempt, 0))
		if early := next.Sub(s.RetryAt); early > 2*instant { // the node's clock and what is stored each have whole milliseconds
			t.broken("W4", "%s: attempt %d was out of time, and the next is to begin %v before its pause is over", id, s.Attempt, early)
		}
	}
	t.world.report.reached(attemptOutOfTime)
}

// checkTimedOut: a step that failed since its last attempt was out of time had no other (S2, S6). mu is held.
func (t *witness) checkTimedOut(r *record, e store.Entry) {
	began, f := t.began[retryOf{r.step(e.StepID), e.Attempts}], t.workflows[r.Workflow]
	if e.Kind != workflow.KindRun || !outOfTime(e.Error) || began == nil || began.several || f == nil {
		return
	}
	plan, retries := began.plan, f.retries
	switch {
	case plan.once:
		retries = 0
	case plan.retries >= 0:
		retries = plan.retries
	}
	if plan.timeout == 0 || e.Attempts <= retries {
		t.broken("S6", "%s failed since attempt %d was out of time, and it has %d retries and a timeout of %v", r.step(e.StepID), e.Attempts, retries, plan.timeout)
	}
	t.world.report.reached(failedOutOfTime)
}

// outOfTime tells whether an error says that an attempt took too long.
func outOfTime(err []byte) bool { return strings.Contains(string(err), `"name":"TimeoutError"`) }
