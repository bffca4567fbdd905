package core

import (
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// delivery brings the end of a call to the server where its answer can't, or might not (C10).
type delivery struct {
	answer  *wire.Answer
	sending bool      // a request with it is in flight
	again   time.Time // when to send it next; zero: not at all
	pause   time.Duration
}

// waiting is true while the end is still to be delivered through the API.
func (d *delivery) waiting() bool { return d.sending || !d.again.IsZero() }

// AnswerFailed says that the answer could not be written: the connection is gone.
func (m *Machine) AnswerFailed(now time.Time) {
	m.connected = false
	if m.phase != phaseOver || m.end.answer == nil || m.end.sending {
		return
	}
	m.end.again = now
	m.retryEnd(now)
}

// retryEnd sends the end when its time has come, at once where the connection is gone.
func (m *Machine) retryEnd(now time.Time) {
	if m.end.sending || m.end.again.IsZero() || now.Before(m.end.again) {
		return
	}
	m.end.sending, m.end.again = true, time.Time{}
	m.emit(Output{Do: DoEnd, Answer: m.end.answer})
}

// EndOutcome is the server's word on the end; an empty status says that the request failed.
func (m *Machine) EndOutcome(status string, now time.Time) {
	if !m.end.sending {
		return
	}
	m.end.sending = false
	switch status {
	case wire.StatusAccepted, wire.StatusSuperseded, wire.StatusEnded, wire.StatusInvalid:
		m.end = delivery{}
		m.emit(Output{Do: DoForget})
	default:
		m.end.pause = min(max(firstPause, 2*m.end.pause), m.pauseMax())
		m.end.again = now.Add(m.end.pause)
	}
}

// retryFetch asks for the page again, and gives the call up when every try has failed for too long: a failed fetch is a cut.
func (m *Machine) retryFetch(now time.Time) {
	if m.phase != phaseLoading || m.fetchTry.since.IsZero() {
		return
	}
	if now.Sub(m.fetchTry.since) >= m.contactLimit() {
		m.cut()
		return
	}
	if m.fetchTry.due(now) {
		m.emit(Output{Do: DoFetch, After: m.fetchFrom})
	}
}

// Delivering is true from the moment the end is decided until nothing more is to be sent for it.
func (m *Machine) Delivering() bool { return m.phase == phaseOver && m.end.waiting() }

// Kept is about how many bytes of results are kept because the server can't be reached to accept them (C11).
func (m *Machine) Kept() int {
	if m.phase == phaseOver {
		if !m.end.waiting() {
			return 0
		}
		return (&wire.End{End: m.end.answer}).Size()
	}
	if m.saves.tries.since.IsZero() {
		return 0
	}
	size := m.log.bytes
	if m.saves.flight != nil {
		for _, l := range m.saves.flight.Logs {
			size += l.Size()
		}
	}
	for _, list := range [][]pending{m.saves.sent, m.saves.waiting} {
		for _, p := range list {
			size += p.item.Size()
		}
	}
	return size
}
