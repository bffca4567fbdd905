package core

import (
	"cmp"
	"slices"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// closing is what a call plays of a run that closes (Z1): the function, what it has to undo, and the handler, each when the one before
// is done. What the code of the function asks for is answered with the first entries, or stays open for good.
type closing struct {
	entries int64 // how many entries the history had when the closing began
	stage   stage
	bodies  map[stepKey]any // by undo, the Shell of the step that its body runs as, as the function gave it
	undos   []stepKey       // that are not looked at yet
	undoing *Step           // the body that runs, or waits for its next attempt
}

type stage int

const (
	stageFunction stage = iota
	stageUndo
	stageHandler
)

// frozen is true while the function is played without acting: nothing that it asks for starts.
func (m *Machine) frozen() bool { return m.config.Verify || m.inFunction() }

// inFunction is true while the function of a closing is played.
func (m *Machine) inFunction() bool { return m.closing != nil && m.closing.stage == stageFunction }

// beginClosing plays the function, unless all that it has to undo is done.
func (m *Machine) beginClosing(now time.Time) {
	c := m.closing
	for _, e := range m.entries() {
		if e.Kind == wire.KindUndo && e.Status == wire.OpCompleted {
			c.undos = append(c.undos, stepKey{e.Name, e.Number})
		}
	}
	slices.Reverse(c.undos)
	if slices.ContainsFunc(c.undos, func(undo stepKey) bool { return m.ends[undo.body()] == nil }) {
		m.runCode(now)
		return
	}
	m.phase, c.stage = phasePlaying, stageUndo
	m.undo(now)
}

// entries are the first ones of a closing, or all of a verify, in order. The claim of the run's own key is no step.
func (m *Machine) entries() (list []*wire.Entry) {
	for key, e := range m.ends {
		if key != onceKey && (m.closing == nil || e.Entry <= m.closing.entries) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *wire.Entry) int { return cmp.Compare(a.Entry, b.Entry) })
	return list
}

// playFrozen lets the function go on as far as saved steps take it.
func (m *Machine) playFrozen(now time.Time) {
	if m.config.Verify && !now.Before(m.config.LateAt) {
		m.verified(&wire.Verified{End: wire.EndLate})
		return
	}
	if m.busy > 0 || m.takeTurn() {
		return
	}
	m.functionRested(nil, now)
}

// functionRested goes on after the function: it ended as a says, or where a is nil it waits.
func (m *Machine) functionRested(a *wire.Answer, now time.Time) {
	if m.config.Verify {
		m.verified(verdict(a))
		return
	}
	m.close(m.root, false)
	m.ready, m.busy = nil, 0
	m.closing.stage = stageUndo
	m.undo(now)
}

// undo runs what is to be undone, one at a time, and then the handler.
func (m *Machine) undo(now time.Time) {
	c := m.closing
	if c.undoing != nil && c.undoing.state == stepSaved {
		m.drop(c.undoing)
		c.undoing = nil
	}
	for c.undoing == nil {
		if len(c.undos) == 0 {
			m.handle(now)
			return
		}
		next := c.undos[0]
		c.undos = c.undos[1:]
		if m.ends[next.body()] == nil {
			m.beginUndo(next, now)
		}
	}
	held := m.start(now)
	m.send(now)
	m.rest(held, now)
}

// beginUndo asks for the body of an undo, in the code's place.
func (m *Machine) beginUndo(undo stepKey, now time.Time) {
	c, key := m.closing, undo.body()
	s := &Step{Name: key.name, Number: key.number, Retries: m.config.Retries, Shell: c.bodies[undo]}
	c.undoing = s
	m.asked = append(m.asked, s)
	if s.Shell == nil {
		s.state, s.Attempt = stepSaving, 1
		m.saves.add(s, s.item(Settled{Err: &wire.Error{
			Name: "UndoMissingError", Message: "the run has to undo \"" + undo.name + "\", and its code does not ask for that step.undo any more: " +
				"bring it back and replay the run, or undo by hand",
		}}, now))
		return
	}
	if r, ok := m.retrying[key]; ok {
		s.state, s.Attempt, s.dueAt = stepRetrying, r.attempt, r.dueAt
	}
}

// handle starts the handler, where the workflow has one: code with names and counts of its own.
func (m *Machine) handle(now time.Time) {
	m.closing.stage = stageHandler
	if m.config.Handler == "" {
		m.returned = &wire.Answer{Type: wire.AnswerCompleted}
		m.conclude(now)
		return
	}
	m.root, m.counts, m.busy = &Branch{}, map[string]int{}, 1
	m.log.handlerBegins(m)
	m.emit(Output{Do: DoHandler, Branch: m.root, Entries: m.entries()})
}
