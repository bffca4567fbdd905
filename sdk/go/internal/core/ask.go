package core

import (
	"errors"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// What Ask may answer beside a step.
var (
	// ErrOver says that the call is over: the goroutine that asked must end without the code noticing (H7).
	ErrOver = errors.New("the call is over")
	// ErrBusy says that the branch has a step open already, or waits for branches of its own.
	ErrBusy = errors.New("a step of this branch is in flight")
	// ErrEnded says that the branch's function has returned.
	ErrEnded = errors.New("the branch has ended")
	// ErrLast says that the branch said before that no further step would come.
	ErrLast = errors.New("the branch has had its last step")
	// ErrStepsMax says that the run has as many steps as the server allows.
	ErrStepsMax = errors.New("the run has as many steps as it may have")
)

// AskOptions are a step's own.
type AskOptions struct {
	Terms   *wire.Terms // what it asks of the server; nil: it has a body
	Was     string      // its name before it was renamed (S7); empty: none
	Retries int
	Check   bool // it has a check (S4)
	Once    bool // it runs at most once (S5)
	Last    bool // no step of its branch comes after it (H4)
	Undo    any  // of an undo, the Shell of the step that its body runs as
}

// Ask is the code of branch asking for a step. The branch rests until DoRelease of that step. It fails with ErrOver, ErrBusy,
// ErrEnded, ErrLast or ErrStepsMax; then the branch goes on.
func (m *Machine) Ask(branch *Branch, name string, opts AskOptions, shell any, now time.Time) (*Step, error) {
	if err := m.mayAsk(branch); err != nil {
		return nil, err
	}
	s := &Step{
		Name: name, Number: m.number(branch, name, opts.countsTwice()), Retries: opts.Retries, Shell: shell,
		branch: branch, terms: opts.Terms, check: opts.Check, once: opts.Once,
	}
	m.identify(s, opts.Was)
	m.meet(s)
	s.Entry = m.entryOf(s.key())
	if s.Entry == nil && !m.frozen() && m.full() {
		return nil, ErrStepsMax
	}
	if kind := m.knownKind(s); kind != s.kind() && !m.otherKind(s, kind, now) {
		return nil, ErrOver
	}
	if s.Entry != nil {
		s.state = stepSaved
	} else if r, ok := m.retryOf(s.key()); ok {
		s.state, s.Attempt, s.dueAt = stepRetrying, r.attempt, r.dueAt
	} else if m.openKind(s.key()) != "" {
		s.state = stepWaiting
	}
	if opts.Undo != nil && m.closing != nil {
		m.closing.bodies[s.key()] = opts.Undo
	}
	branch.open, branch.last = s, opts.Last
	m.asked = append(m.asked, s)
	m.busy--
	m.advance(now)
	return s, nil
}

// countsTwice is true for an undo: the number after its own is that of its body.
func (o *AskOptions) countsTwice() bool { return o.Terms != nil && o.Terms.Op == wire.OpUndo }

// meet notes that the code asked for s, and so for what an undo of it runs as.
func (m *Machine) meet(s *Step) {
	m.met[s.key()] = struct{}{}
	if s.kind() == wire.KindUndo {
		m.met[s.body()] = struct{}{}
	}
}

// otherKind stops the run where the code asks for s under another kind than it was saved as (S7). It is true where the code goes on
// all the same: the function of a closing has no say any more, and rests there.
func (m *Machine) otherKind(s *Step, kind string, now time.Time) bool {
	if m.closing != nil && m.frozen() {
		s.Entry = nil
		return true
	}
	m.codeEnded(m.failure("StepKindError", "step "+s.Name+" was saved as "+kindWords[kind]+", and the code asks for "+kindWords[s.kind()]+
		" under that name: give the new step a name of its own"), now)
	return false
}

// mayAsk is nil where the code of branch may ask for something.
func (m *Machine) mayAsk(branch *Branch) error {
	switch {
	case m.phase != phasePlaying || m.over != nil || m.returned != nil || branch.closed:
		return ErrOver
	case branch.ended:
		return ErrEnded
	case branch.open != nil || branch.fork != nil:
		return ErrBusy
	case branch.last:
		return ErrLast
	}
	return nil
}

// identify gives s its old name where the run knows it under that, and not under the new one (S7).
func (m *Machine) identify(s *Step, was string) {
	if was == "" || m.knows(s.key()) {
		return
	}
	old := stepKey{was, s.Number}
	if _, met := m.met[old]; met { // a step that kept the name came before it
		old.number = m.counts[was] + 1
	}
	if m.knows(old) {
		s.Name, s.Number = old.name, old.number
		last := s.Number
		if s.kind() == wire.KindUndo {
			last = s.body().number
		}
		m.counts[was] = max(m.counts[was], last) // a step that kept the name comes after it
	}
}

// knows tells whether the run has anything of a step: also that it began and was cut off, or a step at most once would begin again under its
// new name, and one with a check without it.
func (m *Machine) knows(key stepKey) bool {
	_, retrying := m.retryOf(key)
	_, begun := m.begun[key]
	return retrying || begun && !m.inFunction() || m.entryOf(key) != nil || m.openKind(key) != ""
}

// knownKind is the kind under which the run knows s; that of s where it does not know it.
func (m *Machine) knownKind(s *Step) string {
	_, retrying := m.retryOf(s.key())
	open := m.openKind(s.key())
	switch {
	case s.Entry != nil:
		return s.Entry.Kind
	case retrying:
		return wire.KindRun
	case open != "":
		return open
	}
	return s.kind()
}

// entryOf is the saved end of a step for the code that asks now. The function of a closing is not shown what the closing saved.
func (m *Machine) entryOf(key stepKey) *wire.Entry {
	e := m.ends[key]
	if e != nil && m.inFunction() && e.Entry > m.closing.entries {
		return nil
	}
	return e
}

func (m *Machine) retryOf(key stepKey) (retry, bool) {
	if m.inFunction() {
		return retry{}, false
	}
	r, ok := m.retrying[key]
	return r, ok
}

// openKind is the kind of the wait that is open for a step; empty where none is.
func (m *Machine) openKind(key stepKey) string {
	if m.inFunction() {
		return ""
	}
	return m.waiting[key]
}

// kindWords say in a sentence what a step of a kind is.
var kindWords = map[string]string{
	wire.KindRun: "a step with a body", wire.KindSleep: "a sleep", wire.KindEvent: "a wait for an event",
	wire.KindInvoke: "a child run", wire.KindCallback: "a callback", wire.KindClaim: "a claim",
	wire.KindUndo: "an undo",
}

// full is true where the run has as many steps as the server allows, those that are not saved yet among them.
func (m *Machine) full() bool {
	most := m.call.Limits.Steps
	if most <= 0 || len(m.ends)+len(m.asked) < most {
		return false
	}
	steps := len(m.ends)
	for _, s := range m.asked {
		if s.Entry == nil {
			steps++
		}
	}
	return steps >= most
}
