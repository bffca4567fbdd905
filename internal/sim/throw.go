package sim

import (
	"strings"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// throw is what an attempt threw, as the code knows it that threw: what stores say of pauses and of tries is what the engine made of it.
type throw struct {
	retries int           // tries that its code may have beyond the first
	pause   time.Duration // before the next, the longest that was asked for
	until   time.Time     // before which the next may not begin; zero: that is not known
}

// outside is what code outside steps threw.
type outside struct {
	at      time.Time
	retries int
	asked   time.Duration // zero: for no pause
	final   bool          // it is not to be tried again
	another bool          // of its branches has thrown too
}

// instant is what an instant may lose where it is stored, since stores keep whole milliseconds.
const instant = time.Millisecond

// pauseAfter is the pause after the nth attempt: the one that it asked for, or 1, 2, 4, 8 … s, at most five minutes, moved by this world's
// jitter (promise 13).
func (p *plan) pauseAfter(attempt int, asked time.Duration) time.Duration {
	if asked > 0 {
		return asked
	}
	pause := 5 * time.Minute
	if attempt <= 9 {
		pause = min(pause, time.Second<<(attempt-1))
	}
	return pause + time.Duration((p.jitter-0.5)*0.4*float64(pause))
}

// throws is told that an attempt of a step's body throws. One that may have ended before, by its timeout or with its call, says nothing of
// when the next may begin.
func (p *playing) throws(s *stepPlan, id stepID, attempt int, ended bool) {
	t := p.witness
	t.mu.Lock()
	defer t.mu.Unlock()
	key := retryOf{id, attempt}
	th := t.throws[key]
	if th == nil {
		th = &throw{}
		t.throws[key] = th
	}
	pause := t.world.plan.pauseAfter(attempt, s.retryAfter)
	if until := time.Now().Add(pause); !ended && s.timeout == 0 && (th.until.IsZero() || until.Before(th.until)) {
		th.until = until
	}
	th.pause = max(th.pause, pause)
	switch {
	case s.once:
	case s.retries >= 0:
		th.retries = s.retries
	default:
		th.retries = p.retries
	}
}

// checkNextTry: an attempt follows a throw that is stored, since a cut is none; it is one of those that the step has, and it is not early
// (S2, W4). mu is held.
func (t *witness) checkNextTry(id stepID, attempt int, call string) {
	before := retryOf{id, attempt - 1}
	if attempt == 1 || t.lenient {
		return
	}
	if t.retries[before].IsZero() {
		t.broken("S2", "%s: attempt %d begins in call %s, and no throw of the one before is stored", id, attempt, call)
	}
	th := t.throws[before]
	if th == nil {
		return // it was out of time
	}
	if attempt > th.retries+1 {
		t.broken("S2", "%s: attempt %d begins in call %s, and it has %d retries", id, attempt, call, th.retries)
	}
	if early := time.Until(th.until); early > instant && t.world.steady() {
		t.broken("W4", "%s: attempt %d begins in call %s %v before the pause is over that follows the one before", id, attempt, call, early)
	}
}

// checkPause: the pause that is stored is no longer than the one that was asked for, or than a growing one (promise 13).
func (t *witness) checkPause(n *node, r *record, s workflow.Retry) {
	t.checkOutOfTime(r, s)
	pause := t.world.plan.pauseAfter(s.Attempt, 0)
	if th := t.throws[retryOf{r.step(s.StepID), s.Attempt}]; th != nil {
		pause = max(pause, th.pause)
	}
	if late := s.RetryAt.Sub(n.latest()) - pause; late > instant {
		t.broken("W5", "%s: attempt %d threw, and the next is to begin %v after its pause of %v", r.step(s.StepID), s.Attempt, late, pause)
	}
}

// checkThrown: a step that failed by what its last attempt threw had no other (S2).
func (t *witness) checkThrown(r *record, e store.Entry) {
	if e.Kind != workflow.KindRun && e.Kind != workflow.KindUndo || !thrown(e.Error) {
		return
	}
	id := r.step(e.StepID)
	switch th := t.throws[retryOf{id, e.Attempts}]; {
	case th == nil:
		t.broken("S2", "%s failed by what attempt %d threw, and that threw nothing", id, e.Attempts)
	case e.Attempts <= th.retries:
		t.broken("S2", "%s failed by what attempt %d threw, and it has %d retries", id, e.Attempts, th.retries)
	}
}

// thrown tells whether an error is one that scripted code threw.
func thrown(err []byte) bool { return strings.Contains(string(err), thrownText) }

// threw is what the witness keeps of the throws of a run's code outside steps.
type threw struct {
	inRow       int       // of its current code, since the history last grew
	entries     int       // that there were at the last
	pausedUntil time.Time // zero: it is not
}

// throwsOutside is told that code outside steps throws. What the function throws in a closing ends nothing.
func (p *playing) throwsOutside(s *stepPlan) {
	t := p.witness
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.calls[p.call]; c != nil && (p.closing == nil || p.prefix != "") {
		c.throw = &outside{at: time.Now(), retries: p.retries, asked: s.codeAfter, final: s.codeNever, another: c.throw != nil}
	}
}

// checkOutside: a throw of code outside steps is tried again as often as the workflow has it, counted in a row since the history grew, and
// after its pause; nothing else is counted as one (S2, promise 13).
func (t *witness) checkOutside(n *node, r *record, before, run *workflow.Run, ops []store.Op) {
	c := t.calls[callOf(before)]
	over := c != nil && callOf(run) == ""
	if run.Attempts > before.Attempts && (!over || c.throw == nil) {
		t.broken("S2", "run %s: %d throws of its code are counted, after %d, and that of call %q did not throw", run.ID, run.Attempts, before.Attempts, callOf(before))
	}
	if !over || c.throw == nil {
		return
	}
	// Which of several has ended it is not known. And a node without a name, whose place was taken while it was paused, does not hear that its
	// successor has saved something: no store lets two such nodes in.
	if !c.alone() || c.throw.another || t.world.plan.taken() {
		r.inRow, r.threw.entries, r.pausedUntil = run.Attempts, len(r.entries), time.Time{}
		return
	}
	nth := 1
	if len(r.entries) == r.threw.entries {
		nth += r.inRow
	}
	switch {
	case run.Status == workflow.Waiting:
		pause := t.world.plan.pauseAfter(nth, c.throw.asked)
		r.inRow, r.threw.entries, r.pausedUntil = nth, len(r.entries), c.throw.at.Add(pause)
		if c.throw.final || nth > c.throw.retries || run.Attempts != nth {
			t.broken("S2", "run %s: its code threw %d times in a row and has %d retries, final %t, and waits after %d", run.ID, nth, c.throw.retries, c.throw.final, run.Attempts)
		}
		if late := run.NextAt.Sub(n.latest()) - pause; late > instant {
			t.broken("W5", "run %s: its code threw, and is called %v after its pause of %v", run.ID, late, pause)
		}
		if len(r.open) > 0 {
			t.world.report.reached(threwBesideWaits)
		}
	case failedBy(ops) && !c.throw.final && nth <= c.throw.retries:
		t.broken("S2", "run %s failed when its code threw %d times in a row, and it has %d retries", run.ID, nth, c.throw.retries)
	}
}

// failedBy tells whether a change fails a run by what its code threw.
func failedBy(ops []store.Op) bool {
	for _, op := range ops {
		u, ok := op.(store.UpdateRun)
		var failure wire.Error
		if ok && thrown(u.Error) && wire.Decode(u.Error, &failure) == nil && failure.Message == thrownText {
			return true
		}
	}
	return false
}

// checkPaused: code that threw is not called before its pause is over, whatever comes meanwhile (promise 13).
func (t *witness) checkPaused(r *record, call string) {
	if early := time.Until(r.pausedUntil); early > instant && t.world.steady() {
		t.broken("W4", "run %s: call %s begins %v before the pause of code that threw is over", r.ID, call, early)
	}
	r.pausedUntil = time.Time{}
}
