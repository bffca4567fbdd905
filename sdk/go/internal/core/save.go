package core

import (
	"slices"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// saves are the items of this playing that the server has not decided.
type saves struct {
	bind    bool      // a save without items is wanted (C4)
	waiting []pending // not sent yet
	sent    []pending // in the save that is in flight or failed
	flight  *wire.Save
	flying  bool // false while flight waits for its next try
	sentAt  time.Time
	tries   tries
}

type pending struct {
	step *Step
	item *wire.Item
}

func (s *saves) add(step *Step, item *wire.Item) {
	s.waiting = append(s.waiting, pending{step, item})
}

// any is true while something is not decided. A save that has nothing but lines of the log keeps nobody waiting.
func (s *saves) any() bool {
	return s.flight != nil && (len(s.flight.Items) > 0 || len(s.flight.Logs) == 0) || s.bind || len(s.waiting) > 0
}

// unsaved are the ends of bodies that are not decided, in order: as many as a has room for, beside its lines. What else is not decided is
// asked for again in the next call.
func (m *Machine) unsaved(a *wire.Answer) (items []*wire.Item) {
	left := wire.MessageBytesMax - lineBytesMax - (&wire.End{End: a}).Size()
	for _, list := range [][]pending{m.saves.sent, m.saves.waiting} {
		for _, p := range list {
			if p.item.Op != wire.OpCompleted && p.item.Op != wire.OpFailed {
				continue
			}
			if left -= len(p.item.AppendJSON(nil)) + 1; left < 0 {
				return items
			}
			items = append(items, p.item)
		}
	}
	return items
}

// next takes what goes into the next save, in the room of the last one: items in order, a big one alone, and no more than saveBytesMax.
func (s *saves) next() []pending {
	n, size := 0, 0
	for n < len(s.waiting) {
		item := s.waiting[n].item.Size()
		if n > 0 && (item > wire.BesideBytes || size+item > saveBytesMax) {
			break
		}
		n, size = n+1, size+item
		if item > wire.BesideBytes {
			break
		}
	}
	taken := s.sent[:0]
	taken = append(taken, s.waiting[:n]...)
	s.waiting = slices.Delete(s.waiting, 0, n)
	return taken
}

// tries paces what failed. since is from when on every try has failed: for saves the moment when the first of them was sent, since
// nothing has come from the server after it. again is when to try again.
type tries struct {
	since time.Time
	again time.Time
	pause time.Duration
}

func (t *tries) fail(sentAt, now time.Time, most time.Duration) {
	if t.since.IsZero() {
		t.since = sentAt
	}
	t.pause = min(max(firstPause, 2*t.pause), most)
	t.again = now.Add(t.pause)
}

// due is true once when the time to try again has come.
func (t *tries) due(now time.Time) bool {
	if t.again.IsZero() || now.Before(t.again) {
		return false
	}
	t.again = time.Time{}
	return true
}

// pauseMax is half a heartbeat interval: a server that asks whether the call is played waits two of them (C1).
func (m *Machine) pauseMax() time.Duration {
	return max(firstPause, m.heartbeat()/2)
}

// What a call that says nothing has: the server's defaults.
const (
	defaultHeartbeat = 5 * time.Second
	defaultLease     = 5 * time.Minute
)

func (m *Machine) heartbeat() time.Duration {
	if n := m.call.Call.HeartbeatMs; n > 0 {
		return ms(n)
	}
	return defaultHeartbeat
}

// contactLimit is how long every try may fail before the results travel in the answer (C11).
func (m *Machine) contactLimit() time.Duration {
	lease := defaultLease
	if n := m.call.Call.LeaseMs; n > 0 {
		lease = ms(n)
	}
	return max(lease/5, 2*m.heartbeat())
}

// contactEnds is when the answer to the call becomes the only way left (C11); zero while it is not known to. Bodies that run are waited
// for (C12), and lines of the log are no reason to end a call. One that hurries to its end has no time for another try.
func (m *Machine) contactEnds() time.Time {
	since := m.saves.tries.since
	if !m.connected || m.running > 0 || since.IsZero() || !m.saves.any() {
		return time.Time{}
	}
	if m.stopping {
		return since
	}
	return soonest(since.Add(m.contactLimit()), m.config.YieldAt)
}

func (m *Machine) outOfContact(now time.Time) bool {
	at := m.contactEnds()
	return !at.IsZero() && !now.Before(at)
}

// send sends the next save, or the one that failed again and unchanged.
func (m *Machine) send(now time.Time) {
	if m.saves.flight != nil {
		if !m.saves.flying && m.saves.tries.due(now) {
			m.fly(now)
		}
		return
	}
	if !m.saves.bind && len(m.saves.waiting) == 0 && (m.log.due.IsZero() || now.Before(m.log.due)) {
		return
	}
	save := &wire.Save{Call: m.call.Call.ID, Token: m.call.Call.Token, Nonce: m.config.Nonce, Seen: m.seen}
	switch {
	case m.saves.bind:
		m.saves.bind = false
	case len(m.saves.waiting) > 0:
		m.saves.sent = m.saves.next()
		save.Items = make([]*wire.Item, len(m.saves.sent))
		for i, p := range m.saves.sent {
			save.Items[i] = p.item
		}
	}
	if save.Size()+lineBytesMax < wire.RequestBytesMax { // else they wait for the next one
		save.Logs = m.log.take(nil)
	}
	m.saves.flight = save
	m.fly(now)
}

func (m *Machine) fly(now time.Time) {
	m.saves.flying, m.saves.sentAt = true, now
	m.emit(Output{Do: DoSave, Save: m.saves.flight})
}

// SaveFailed says that the save in flight was not answered, or not by a server that understood it.
func (m *Machine) SaveFailed(save *wire.Save, now time.Time) {
	if m.saves.flight != save || !m.saves.flying {
		return
	}
	m.saves.flying = false
	m.saves.tries.fail(m.saves.sentAt, now, m.pauseMax())
	m.advance(now)
}

// Silent says from when on nothing has come from the server, whatever was sent to it: earlier than a save that failed, where other
// requests failed before it (C11). Zero says that something has come.
func (m *Machine) Silent(since, now time.Time) {
	t := &m.saves.tries
	if since.IsZero() || t.since.IsZero() || !since.Before(t.since) {
		return
	}
	t.since = since
	m.advance(now)
}

// Failing is true while the last try of a save or an end failed: the call must be named (C1).
func (m *Machine) Failing() bool {
	return !m.saves.tries.since.IsZero() || m.end.waiting()
}

// Saved is the outcome of a save.
func (m *Machine) Saved(save *wire.Save, o *wire.Outcome, now time.Time) {
	if m.saves.flight != save || !m.saves.flying {
		return
	}
	switch o.Status {
	case wire.StatusAccepted:
		if len(o.Items) != len(save.Items) {
			m.SaveFailed(save, now)
			return
		}
		m.accepted(o, now)
	case wire.StatusSuperseded:
		m.lose(Superseded)
	case wire.StatusEnded:
		m.lose(Ended)
	case wire.StatusInvalid:
		m.invalid(o.Detail, now)
	default: // later, and what a newer server may say: unchanged, again
		m.SaveFailed(save, now)
		return
	}
	m.advance(now)
}

// accepted takes in a save that the server has decided.
func (m *Machine) accepted(o *wire.Outcome, now time.Time) {
	sent := m.saves.sent
	m.saves.sent, m.saves.flight, m.saves.flying = sent[:0], nil, false
	m.saves.tries = tries{}
	m.beginEnding(o.Ending)
	m.learn(o.Entries)
	for i, p := range sent {
		m.decided(p, &o.Items[i], now)
	}
	clear(sent)
	m.endWaits()
	switch {
	case m.phase == phaseBinding:
		m.load(m.call.Steps.Next, now)
	case m.phase == phaseClaiming && m.ends[onceKey] != nil:
		m.runCode(now)
	case m.phase == phaseClaiming && m.ending != nil:
		m.finish(&wire.Answer{Type: wire.AnswerYielded}, now)
	}
}

// decided takes in the outcome of one item.
func (m *Machine) decided(p pending, o *wire.ItemOutcome, now time.Time) {
	s := p.step
	if o.Status == wire.ItemSaved {
		m.learn([]wire.Entry{entryOf(p.item, o)})
	}
	if s.state == stepDropped {
		return
	}
	switch o.Status {
	case wire.ItemStarted:
		s.state, s.recorded = stepAsked, true
		if s.check && (o.Again || m.call.Run.ReplayOf != "") {
			s.again, s.dueAt = true, now.Add(ms(o.CheckInMs))
		}
	case wire.ItemWaiting:
		s.state = stepWaiting
	case wire.ItemSaved, wire.ItemStands:
		m.hasEntry(s, now)
	case wire.ItemRetrying:
		s.state, s.Attempt, s.dueAt = stepRetrying, o.Attempt, now.Add(ms(o.RetryInMs))
		s.recorded = false
		m.settled(s)
	case wire.ItemRefused:
		m.itemRefused(p, o, now)
	default:
		m.invalid("the server answered the item with the unknown status "+o.Status, now)
	}
}

// hasEntry gives s the end that the history has.
func (m *Machine) hasEntry(s *Step, now time.Time) {
	s.Entry = m.ends[s.key()]
	if s.Entry == nil {
		m.invalid("the server says that step "+s.Name+" has a saved result, and sent none", now)
		return
	}
	s.state = stepSaved
	m.savedOne = true
	m.settled(s)
}

// itemRefused saves the step as failed with the server's reason (S3); what is refused because the run is ending, and is no end of a
// body, just does not happen.
func (m *Machine) itemRefused(p pending, o *wire.ItemOutcome, now time.Time) {
	s := p.step
	if m.ending != nil && p.item.Op != wire.OpCompleted && p.item.Op != wire.OpFailed {
		s.state = stepDropped
		return
	}
	reason := o.Error
	if reason == nil {
		reason = &wire.Error{Name: "Error", Message: "the server refused to save the step and gave no reason"}
	}
	if m.phase == phaseClaiming {
		m.fail(reason.Name, reason.Message, now)
		return
	}
	if s.refused {
		m.invalid("step "+s.Name+" can't be saved: "+reason.Message, now)
		return
	}
	s.refused = true
	if s.state != stepSaving || s.terms != nil { // no attempt was made
		s.Attempt++
	}
	s.state = stepSaving
	m.saves.add(s, s.item(Settled{Err: wire.Fit(reason)}, now))
}

// invalid fails the run: the SDK and the server don't understand each other, and trying again would not change that.
func (m *Machine) invalid(detail string, now time.Time) {
	m.fail("ProtocolError", "a save broke a rule of the protocol: "+detail, now)
}

// fail ends the call with a failure of the run that no further try would mend.
func (m *Machine) fail(name, message string, now time.Time) {
	if m.phase != phaseOver {
		m.finish(m.failure(name, message), now)
	}
}

// failure is a failure of the run that no further try would mend.
func (m *Machine) failure(name, message string) *wire.Answer {
	return &wire.Answer{Type: wire.AnswerFailed, Retries: m.config.Retries, Error: &wire.Error{Name: name, Message: message}}
}
