package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"

	"github.com/nelkap/nelkap/internal/workflow"
)

// stepID is a step of a run, in one of its chapters (S1).
type stepID struct {
	run     string
	restart int
	workflow.StepID
}

func (s stepID) String() string {
	if s.restart > 0 {
		return fmt.Sprintf("%s@%d/%s/%d", s.run, s.restart, s.Name, s.Number)
	}
	return fmt.Sprintf("%s/%s/%d", s.run, s.Name, s.Number)
}

// result is what the step's nth body returns.
func (s stepID) result(nth int) string {
	if s.restart > 0 {
		return fmt.Sprintf("%s@%d#%d", s.Name, s.restart, nth)
	}
	return fmt.Sprintf("%s#%d", s.Name, nth)
}

// playing is one playing of a call, as its code sees it.
type playing struct {
	witness *witness
	process *process
	call    string
	run     string
	restart int              // the chapter
	closing *workflow.Ending // nil unless the call is of a closing
	prefix  string           // of the names of a handler's steps; empty: it plays the function
	writes  bool             // its code writes lines
	strays  bool             // it throws also in a closing
	retries int              // of its workflow

	// witness.mu guards what follows.
	names map[string]int // how often the code asked for each
	ran   map[stepID]int // the last attempt whose body ran here
	clear map[stepID]int // the last attempt whose check found nothing
	saw   []stepID       // what the code was shown, in order
	seen  int64          // the highest entry that the code was shown
	ended bool
	// undoing is how many bodies of undos run.
	undoing int
	running int // bodies in a call after a cut
}

// played is told that code begins to play a call.
func (t *witness) played(p *process, in payload, run string) *playing {
	t.mu.Lock()
	defer t.mu.Unlock()
	call := in.Call
	pl := t.newPlaying(p, call, run)
	c := t.calls[call]
	switch {
	case c == nil:
		t.broken("W6", "call %q of run %s is played, and no commit has begun it", call, run)
		return pl
	case c.run != run:
		t.broken("W2", "call %s of run %s plays run %s", call, c.run, run)
	}
	c.playings++
	r := t.runs[run]
	t.checkChapter(r, c, in)
	if last := r.playing; last != nil && !last.ended && !last.process.isDead() {
		t.world.report.reached(twoPlayings)
	}
	r.playing = pl
	t.world.trace.add(p.name, "plays "+run, call)
	return pl
}

func (t *witness) newPlaying(p *process, call, run string) *playing {
	pl := &playing{witness: t, process: p, call: call, run: run, names: map[string]int{}, ran: map[stepID]int{}, clear: map[stepID]int{}}
	if c := t.calls[call]; c != nil {
		pl.restart, pl.closing = c.restart, c.closing
	}
	if f := t.workflows[t.runs[run].Workflow]; f != nil {
		pl.writes, pl.strays, pl.retries = f.logs, f.straysInClosing, f.retries
	}
	return pl
}

// asks is told that the code asks for a step of that name, which takes so many counts of it. s is its plan; nil where that says nothing of
// its name.
func (p *playing) asks(s *stepPlan, name string, counts int) stepID {
	p.witness.mu.Lock()
	defer p.witness.mu.Unlock()
	name = p.prefix + name
	id := stepID{p.run, p.restart, workflow.StepID{Name: name, Number: p.names[name] + 1}}
	p.names[name] += counts
	if s != nil && s.was != "" {
		id = p.renamed(s, id)
	}
	if _, known := p.witness.askedAt[id]; !known {
		p.witness.askedAt[id] = time.Now()
	}
	return id
}

// begins is told that a step's body begins.
func (p *playing) begins(s *stepPlan, id stepID, attempt int) {
	t := p.witness
	t.mu.Lock()
	defer t.mu.Unlock()
	run, call := t.runs[p.run], t.calls[p.call]
	if p.closing != nil && p.prefix == "" && s.kind != workflow.KindUndo {
		t.broken("Z1", "%s begins in call %s, which is of a closing", id, p.call)
	}
	if heard, over := call.over(); over {
		t.broken("Z1", "%s begins in call %s, and its process has heard that this %s", id, p.call, heard)
	}
	t.world.trace.add(p.process.name, "body begins", fmt.Sprintf("%s attempt %d", id, attempt))
	if e := run.entryIn(id.restart, id.StepID); e != nil && call != nil && e.savedIn < call.begunIn {
		t.broken("W1", "%s was saved as entry %d before call %s began, and its body runs again in it", id, e.saved.Entry, p.call)
	}
	if slices.Contains(p.saw, id) {
		t.broken("W1", "%s: the code of call %s has its result, and its body runs again", id, p.call)
	}
	if attempt <= p.ran[id] {
		t.broken("W1", "%s: attempt %d runs in call %s after attempt %d", id, attempt, p.call, p.ran[id])
	}
	p.ran[id] = attempt
	if due := t.retries[retryOf{id, attempt - 1}]; t.world.latest().Before(due) {
		t.broken("W4", "%s: attempt %d begins %v early", id, attempt, due.Sub(t.world.latest()))
	}
	t.checkNextTry(id, attempt, p.call)
	p.checkAgain(s, id, attempt)
	p.checkRecorded(s, id, attempt)
	t.bodies[id]++
	p.notes(s, retryOf{id, attempt})
	if t.attempts[retryOf{id, attempt}]++; t.attempts[retryOf{id, attempt}] == 2 {
		t.world.report.reached(bodyRanTwice)
		if s.kind == workflow.KindUndo {
			t.world.report.reached(undoneAgain)
		}
		if t.spared {
			t.broken("C1", "%s: attempt %d ran again, and nothing had befallen its app", id, attempt)
		}
	}
}

// checkAgain: a step at most once begins once (S5), one with a check begins again only after its check has found nothing (S4), and
// both only after the start is recorded. witness.mu is held.
func (p *playing) checkAgain(s *stepPlan, id stepID, attempt int) {
	t := p.witness
	if (s.once || s.checked) && !t.starts[startOf{retryOf{id, attempt}, p.call}] && !t.lenient {
		t.broken("S5", "%s: attempt %d begins in call %s, and its start is not recorded", id, attempt, p.call)
	}
	again := t.bodies[id] > 0
	if s.once && again {
		t.broken("S5", "%s: the body of a step at most once begins a second time, in call %s", id, p.call)
	}
	if s.checked && (again || t.runs[p.run].ReplayOf != "") && p.clear[id] != attempt {
		t.broken("S4", "%s: attempt %d begins in call %s before its check has found nothing", id, attempt, p.call)
	}
}

// checks is told that a step's check looks, and tells what a body has left.
func (p *playing) checks(id stepID, attempt int) (found string, ok bool) {
	t := p.witness
	t.mu.Lock()
	defer t.mu.Unlock()
	if found, ok = t.left[id]; !ok {
		found, ok = t.left[stepID{t.runs[p.run].ReplayOf, id.restart, id.StepID}]
	}
	t.world.trace.add(p.process.name, "check looks", fmt.Sprintf("%s attempt %d: %t", id, attempt, ok))
	if ok {
		t.world.report.reached(checkFound)
	} else {
		p.clear[id] = attempt
		t.world.report.reached(checkFoundNothing)
	}
	return found, ok
}

// leaves is told that a body has done what its check looks for.
func (p *playing) leaves(id stepID) {
	p.witness.mu.Lock()
	defer p.witness.mu.Unlock()
	p.witness.left[id] = id.result(p.witness.bodies[id])
}

// result is what a body returns: another text each time, so that a result that changed is noticed.
func (p *playing) result(id stepID) string {
	p.witness.mu.Lock()
	defer p.witness.mu.Unlock()
	return id.result(p.witness.bodies[id])
}

// sent is told that a send of a step was acknowledged.
func (p *playing) sent(id stepID, from string) {
	p.witness.mu.Lock()
	defer p.witness.mu.Unlock()
	if p.witness.children[from] == 0 && !p.witness.lenient {
		p.witness.broken("W6", "%s: its send %q was acknowledged, and nothing is stored", id, from)
	}
}

// shown is told what a step gave to the code: what is saved of it, and nothing else (H1).
func (p *playing) shown(s *stepPlan, id stepID, result string, err error) {
	t := p.witness
	t.mu.Lock()
	defer t.mu.Unlock()
	t.world.trace.add(p.process.name, "code is shown", fmt.Sprintf("%s %q %v", id, result, err))
	if errors.Is(err, nelkap.ErrCallOver) || errors.Is(err, nelkap.ErrSuperseded) {
		t.broken("W10", "%s: the code of call %s was shown the end of its call: %v", id, p.call, err)
		return
	}
	run := t.runs[p.run]
	e := run.entryIn(id.restart, id.StepID)
	var failed *nelkap.StepError
	switch {
	case e == nil:
		t.broken("W6", "%s: the code of call %s goes past a step that is not saved: %q, %v", id, p.call, result, err)
		return
	case e.saved.Kind != cmp.Or(s.kind, workflow.KindRun):
		t.broken("S7", "%s: the code of call %s asked for a step of kind %q, and saved is one of kind %q", id, p.call, s.kind, e.saved.Kind)
	case err == nil && (e.saved.Status != workflow.StepCompleted || textOf(e.saved) != result):
		t.broken("W1", "%s: the code of call %s was shown %q, and saved is %s %s", id, p.call, result, e.saved.Status, e.saved.Output)
	case err != nil && (e.saved.Status != workflow.StepFailed || !errors.As(err, &failed)):
		t.broken("W1", "%s: the code of call %s was shown the error %v, and saved is %s %s", id, p.call, err, e.saved.Status, e.saved.Output)
	}
	if p.closing != nil && p.prefix == "" && e.saved.Entry > p.closing.Entries {
		t.broken("Z1", "%s: the code of call %s was shown entry %d, and the closing began after entry %d", id, p.call, e.saved.Entry, p.closing.Entries)
	}
	// Code of another version may ask in another order. Who played a chapter that is closed is not known any more.
	if e.saved.Entry <= p.seen && id.restart == run.Restart && run.sameCode(p.process.version) {
		t.broken("W9", "%s: the code of call %s was shown entry %d after entry %d", id, p.call, e.saved.Entry, p.seen)
	}
	// Where no clock stepped, time can also be measured from here: it counts from the registration, which comes later (W4).
	timedOut := s.kind == workflow.KindSleep || s.kind == workflow.KindEvent && result == noEvent
	if took := time.Since(t.askedAt[id]); err == nil && timedOut && took < s.lasts && t.world.steady() && e.saved.Entry > run.keptIn(id.restart) {
		t.broken("W4", "%s: the code was shown %q %v after it asked, and it asked for %v", id, result, took, s.lasts)
	}
	if c, news := t.calls[p.call], newsOf[e.saved.Kind]; c != nil && e.savedIn > c.begunIn && news != "" {
		t.world.report.reached(news)
	}
	p.seen = max(p.seen, e.saved.Entry)
	p.saw = append(p.saw, id)
}

// returns is told that the code has come to its end.
func (p *playing) returns(output string) {
	p.witness.mu.Lock()
	defer p.witness.mu.Unlock()
	if c := p.witness.calls[p.call]; c != nil {
		c.outputs = append(c.outputs, fmt.Sprintf("%q", output))
	}
}

// ends is told that nothing of the code runs any more.
func (p *playing) ends() {
	p.witness.mu.Lock()
	defer p.witness.mu.Unlock()
	p.ended = true
}
