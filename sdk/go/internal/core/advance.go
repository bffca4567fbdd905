package core

import (
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// advance does what the state allows now. It is called after every input, and calling it again changes nothing.
func (m *Machine) advance(now time.Time) {
	if m.phase == phaseOver {
		m.retryEnd(now)
		return
	}
	if m.over != nil {
		m.leave()
		return
	}
	m.retryFetch(now)
	if m.phase == phaseOver {
		return
	}
	m.send(now)
	if m.outOfContact(now) {
		m.finishUnsaved(now)
		return
	}
	if m.phase != phasePlaying {
		return
	}
	if m.frozen() {
		m.playFrozen(now)
		return
	}
	if m.returned != nil || m.ending != nil {
		m.conclude(now)
		return
	}
	if m.closing != nil && m.closing.stage == stageUndo {
		m.undo(now)
		return
	}
	if m.busy > 0 || m.holding > 0 || m.takeTurn() {
		return
	}
	held := m.start(now)
	m.send(now)
	m.rest(held, now)
}

// leave ends a playing that may save nothing more, once its bodies have settled.
func (m *Machine) leave() {
	if m.running > 0 {
		return
	}
	m.phase = phaseOver
	if m.connected {
		m.emit(Output{Do: DoAnswer, Answer: m.stamp(&wire.Answer{Type: wire.AnswerOver})})
	}
	m.emit(Output{Do: DoUnwind})
}

// conclude ends the call of a function that has ended, or of a run that is ending, once nothing runs and all is saved.
func (m *Machine) conclude(now time.Time) {
	abandoned := m.returned != nil && !m.abandonAt.IsZero() && !now.Before(m.abandonAt)
	if !abandoned && (m.running > 0 || m.saves.any()) {
		return
	}
	a := m.returned
	if m.ending != nil {
		if m.busy > 0 && a == nil {
			return
		}
		a = &wire.Answer{Type: wire.AnswerYielded}
	}
	a.Unsaved = m.unsaved(a)
	m.finish(a, now)
}

// start starts what may start, in the order of asking: bodies, claims and callbacks, and where a body runs the registration of waits
// (H3). It is true where a step was held back for the next call.
func (m *Machine) start(now time.Time) (held bool) {
	for _, s := range m.asked {
		switch {
		case s.orphan || s.state != stepAsked && s.state != stepRetrying || now.Before(s.dueAt) || s.waits():
		case m.holdsBack(s, now):
			held = true
		case s.terms != nil:
			s.state = stepSaving
			m.saves.add(s, s.request())
		case m.call.Call.Cuts < oneAtATimeCuts || m.running == 0 && !m.saves.any():
			m.startBody(s, now)
		}
	}
	if m.running > 0 {
		m.register()
	}
	return held
}

// holdsBack is true where s may not start in this call any more. The body of a step that runs at most once does start when that is
// recorded: the next call would take it for cut off.
func (m *Machine) holdsBack(s *Step, now time.Time) bool {
	if s.once && s.recorded {
		return false
	}
	return m.stopping || m.savedOne && !m.config.YieldAt.IsZero() && !now.Before(m.config.YieldAt)
}

// register has a save open the waits that are not open.
func (m *Machine) register() {
	for _, s := range m.asked {
		if s.state == stepAsked && s.waits() {
			s.state = stepRegistering
			m.saves.add(s, s.request())
		}
	}
}

// startBody starts the next attempt of s, by its check where it has to look first (S4). Before that the start is recorded, where it
// must be.
func (m *Machine) startBody(s *Step, now time.Time) {
	if !s.recorded && (s.check || s.once || m.call.Call.Cuts > 0 && !m.savedOne) {
		s.state = stepStarting
		m.saves.add(s, &wire.Item{
			Op: wire.OpStart, Kind: wire.KindRun, Name: s.Name, Number: s.Number, Attempt: s.Attempt + 1, Once: s.once,
		})
		return
	}
	if !s.checked {
		s.Attempt++
		s.started = now
	}
	m.running++
	if s.again {
		s.state = stepChecking
		m.emit(Output{Do: DoCheck, Step: s})
		return
	}
	s.state, s.checked = stepRunning, false
	m.emit(Output{Do: DoBody, Step: s})
}

// release shows the code the entry with the lowest number that it waits for (H1).
func (m *Machine) release() bool {
	var first *Step
	for _, s := range m.asked {
		if s.state == stepSaved && (first == nil || s.Entry.Entry < first.Entry.Entry) {
			first = s
		}
	}
	if first == nil {
		return false
	}
	first.state = stepDone
	first.branch.open = nil
	m.log.shown(first.Entry.Entry)
	m.drop(first)
	m.busy++
	m.emit(Output{Do: DoRelease, Step: first})
	return true
}

// drop takes s out of asked, and keeps the order.
func (m *Machine) drop(s *Step) {
	for i, other := range m.asked {
		if other == s {
			m.asked = append(m.asked[:i], m.asked[i+1:]...)
			return
		}
	}
}

// rest ends the call where every way on waits: suspended for what is due later, yielded for what was held back.
func (m *Machine) rest(held bool, now time.Time) {
	if m.running > 0 || m.saves.any() {
		return
	}
	if held {
		m.finish(&wire.Answer{Type: wire.AnswerYielded, Excused: m.stopping}, now)
		return
	}
	answer := &wire.Answer{Type: wire.AnswerSuspended, Waits: m.root.trees()}
	if m.closing != nil && m.closing.undoing != nil {
		answer.Waits = []wire.Wait{m.closing.undoing.leaf()}
	}
	for _, s := range m.asked {
		switch {
		case s.waits() && s.state == stepAsked:
			answer.Register = append(answer.Register, s.request())
		case s.waits() || s.state == stepRetrying:
		default: // its check waits for its time, in this call
			m.register()
			m.send(now)
			return
		}
	}
	m.finish(answer, now)
}

// finish decides the call's end.
func (m *Machine) finish(a *wire.Answer, now time.Time) {
	m.phase = phaseOver
	m.stamp(a)
	m.nameUnasked(a)
	a.Logs = m.log.take(m.saves.flight)
	m.saves = saves{}
	if m.running > 0 {
		m.abort(Abandoned)
	}
	m.emit(Output{Do: DoUnwind})
	m.end.answer = a
	if !m.connected {
		m.end.sending = true
		m.emit(Output{Do: DoEnd, Answer: a})
		return
	}
	m.emit(Output{Do: DoAnswer, Answer: a})
	if len(a.Unsaved) == 0 {
		m.emit(Output{Do: DoForget})
		return
	}
	m.end.again = now.Add(m.pauseMax()) // the answer should do; the API makes sure of it (C10)
}

// finishUnsaved ends the call with the results that could not be saved in its answer (C11).
func (m *Machine) finishUnsaved(now time.Time) {
	a := &wire.Answer{Type: wire.AnswerYielded, Excused: true}
	if m.returned != nil && m.ending == nil {
		a = m.returned
	}
	a.Unsaved = m.unsaved(a)
	m.finish(a, now)
}

// cut gives the call up in a way that the server takes for a cut: what is saved stands, and the run is picked up.
func (m *Machine) cut() {
	m.phase = phaseOver
	m.emit(Output{Do: DoUnwind})
	m.emit(Output{Do: DoFail})
	m.emit(Output{Do: DoForget})
}

func (m *Machine) stamp(a *wire.Answer) *wire.Answer {
	a.Nonce, a.Manifest, a.Seen = m.config.Nonce, m.config.Manifest, m.seen
	return a
}

// Wake is when Tick is wanted, later than now; zero: not at all.
func (m *Machine) Wake(now time.Time) time.Time {
	if m.phase == phaseOver {
		return m.end.again
	}
	if m.over != nil { // bodies end when they end, and lines that were not sent are lost
		return time.Time{}
	}
	if m.config.Verify {
		return m.config.LateAt
	}
	at := soonest(m.saves.tries.again, m.fetchTry.again)
	if m.saves.flight == nil {
		at = soonest(at, m.log.due)
	}
	at = soonest(at, m.contactEnds())
	if m.returned != nil {
		return soonest(at, m.abandonAt)
	}
	for _, s := range m.asked {
		if (s.state == stepRetrying || s.state == stepAsked) && s.dueAt.After(now) {
			at = soonest(at, s.dueAt)
		}
	}
	return at
}

func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
