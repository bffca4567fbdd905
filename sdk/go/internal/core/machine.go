// Package core decides what one playing of a call does, without doing any of it.
//
// A Machine is given what happened (the call came, the code asked for a step, a body ended, a save was answered, time
// passed) and hands back what to do as Outputs. It has no goroutine, clock, socket or randomness, so that the transcripts of
// protocol/ can be played against it line by line. Package play is the shell that acts on the outputs.
//
// The machine refuses nothing of the user's: it knows names, numbers and bytes of JSON. What it holds to, by the numbers of
// the rules:
//
//   - H1: the code goes past a step only when its end is saved, and is shown the entries in the history's order, one at a
//     time, each only when the code rests. What is saved is shown before anything new starts.
//   - H2, H3: what a wait has come to is taken in from saves and heartbeats; waits are registered by the suspended answer where no
//     body runs, else by a save.
//   - H5: no code runs before the playing is bound (C4) and every page of saved steps is in.
//   - Z1: in a closing the function is played with what was saved before, and starts nothing; then its undos run, the last first, and
//     then the handler (closing.go).
//   - Z2: a restart ends the call as the function's end does.
//   - D3: a verify is the same without a closing: nothing starts, and nothing is saved (verify.go).
//   - H6: a call ends only when every body that it started has settled and been saved, or was aborted.
//   - C12: a yield comes with no body running; because of the time limit only after progress.
//   - C13, S4, S5: after a cut, until one step is saved, and always for steps with a check and those that run at most once, a body
//     starts only once its start is recorded.
//   - N3: an item is sent until the server has decided it; one save of a call is in flight at a time.
//
// A Machine has one owner at a time: whoever calls it holds a lock.
package core

import (
	"encoding/json"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

const (
	// oneAtATimeCuts is the number of cuts from which on bodies run one at a time (C13).
	oneAtATimeCuts = 5
	// abandonAfter is how long the bodies of a completed function may go on after their abort (H6).
	abandonAfter = 10 * time.Second
	// firstPause is the first pause between tries of a save; each next one doubles, up to half a heartbeat interval (C1).
	firstPause = 100 * time.Millisecond
	// saveBytesMax bounds what one call puts into one save, so that a request of it stays below wire.RequestBytesMax.
	saveBytesMax = 4 << 20
)

// Do is what an Output asks for.
type Do int

// The outputs.
const (
	DoRunCode  Do = iota // start the workflow's function
	DoBranch             // start the function of Branch
	DoJoin               // let Branch go on, whose Fork is over; the goroutines of the fork's branches that have not ended must end first
	DoCheck              // start Step's check (S4)
	DoBody               // start Step's body
	DoRelease            // show Step's entry to the code that waits for it
	DoAbort              // end the context of Step's body or check, and of the code where Step is nil, because of Reason
	DoSave               // send Save
	DoFetch              // fetch the page of steps after After
	DoAnswer             // answer the call with Answer
	DoFail               // answer the call with 500: the SDK itself failed, which is a cut
	DoEnd                // deliver Answer through the API
	DoHandler            // start the handler, whose branch is Branch; Entries are the saved steps. The goroutines of the function must end first
	DoVerified           // answer the verify with Verified
	DoUnwind             // the call is over for the code: end its goroutines (H7)
	DoForget             // nothing more comes: stop naming the call
)

// Reason says why a body or the code is aborted.
type Reason int

// The reasons.
const (
	Superseded Reason = iota
	Cancelled
	TimedOut
	Ended
	Abandoned // the function completed without waiting for it
)

// Output is one thing to do. Which fields are set is said at each Do.
type Output struct {
	Do     Do
	Step   *Step
	Branch *Branch
	Fork   *Fork
	Save   *wire.Save
	After  int64
	Answer *wire.Answer
	Reason Reason

	Entries  []*wire.Entry
	Verified *wire.Verified
}

// Config is what a playing is given beside its call.
type Config struct {
	Nonce    string
	Manifest string
	Retries  int       // of code outside steps
	Bind     bool      // the call is old or its connection closed: bind before anything runs (C4)
	YieldAt  time.Time // from here on no body starts (the host's time limit); zero: none
	Once     *string   // the key that only one run of the workflow may own (K4); nil: none
	Handler  string    // in a closing, what the names of the handler's steps begin with; empty: the workflow has none for it
	Verify   bool      // the code is played without acting (D3): nothing is sent, and the end is DoVerified
	LateAt   time.Time // when a verify is answered though the code has not come to rest
}

type phase int

const (
	phaseBinding phase = iota
	phaseLoading
	phaseClaiming // the run's own key
	phasePlaying
	phaseOver // the end is decided
)

// Machine is one playing of a call. Make one with New.
type Machine struct {
	call   *wire.Call
	config Config

	phase     phase
	connected bool
	out       []Output

	// The history: ends maps a step to its entry; seen is the highest number taken in.
	ends map[stepKey]*wire.Entry
	seen int64

	// The code: root is the function's branch, or the handler's. counts numbers the steps by name, met has those that the code asked
	// for, and asked those of them that are not done, in the order of asking. ready are turns that come before anything else. busy is the number of branches that run; the code rests when it is 0 and nothing is ready. It is
	// kept from going on while holding, the number of orphans that must settle first, is above 0. returned is the function's end,
	// once it has come.
	root     *Branch
	counts   map[string]int
	met      map[stepKey]struct{}
	asked    []*Step
	ready    []turn
	busy     int
	holding  int
	returned *wire.Answer

	running  int  // bodies and checks
	savedOne bool // a step was saved in this call: progress (C12), and no more starts to record (C13)
	stopping bool // the process stops
	ending   *Reason
	over     *Reason // superseded or ended: nothing may be saved any more

	saves   saves
	end     delivery
	log     log
	closing *closing // nil unless the run closes

	retrying  map[stepKey]retry
	waiting   map[stepKey]string   // the kinds of the waits that were open when the call came
	begun     map[stepKey]struct{} // the steps whose start was recorded when the call came
	abandonAt time.Time
	fetchTry  tries
	fetchFrom int64
}

type retry struct {
	attempt int
	dueAt   time.Time
}

// New is a playing of call, which arrived at now over an open connection. The machine keeps call and changes nothing in it.
func New(call *wire.Call, config Config, now time.Time) *Machine {
	m := &Machine{
		call: call, config: config, connected: true,
		ends: make(map[stepKey]*wire.Entry, len(call.Steps.Entries)), counts: map[string]int{},
		root: &Branch{}, met: map[stepKey]struct{}{onceKey: {}},
	}
	if call.Ending != nil {
		m.closing = &closing{entries: call.Ending.Entries, bodies: map[stepKey]any{}}
	}
	for _, r := range call.Steps.Retrying {
		if m.retrying == nil {
			m.retrying = map[stepKey]retry{}
		}
		m.retrying[stepKey{r.Name, r.Number}] = retry{r.Attempt, now.Add(ms(r.RetryInMs))}
	}
	for _, w := range call.Steps.Waiting {
		if m.waiting == nil {
			m.waiting = map[stepKey]string{}
		}
		m.waiting[stepKey{w.Name, w.Number}] = w.Kind
	}
	for _, s := range call.Steps.Begun {
		if m.begun == nil {
			m.begun = map[stepKey]struct{}{}
		}
		m.begun[stepKey{s.Name, s.Number}] = struct{}{}
	}
	m.learnPage(call.Steps.Entries)
	return m
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// Take hands over the outputs since the last Take, in order. The slice is the caller's until the next input.
func (m *Machine) Take() []Output {
	out := m.out
	m.out = m.out[:0]
	return out
}

func (m *Machine) emit(o Output) { m.out = append(m.out, o) }

// Root is the branch of the workflow's function, or of the handler once that was started.
func (m *Machine) Root() *Branch { return m.root }

// Over is true once the call's end is decided: what the code does from then on is ignored.
func (m *Machine) Over() bool { return m.phase == phaseOver }

// Begin starts the playing, unless news has ended it before: it is named as soon as there is one.
func (m *Machine) Begin(now time.Time) {
	if m.phase == phaseOver {
		return
	}
	if m.config.Bind {
		m.saves.bind = true
		m.advance(now)
		return
	}
	m.load(m.call.Steps.Next, now)
	m.advance(now)
}

// load fetches the page after next, or starts the code when there is none; before that the run's own key is claimed.
func (m *Machine) load(next *int64, now time.Time) {
	if next != nil {
		m.phase = phaseLoading
		m.fetchFrom = *next
		m.emit(Output{Do: DoFetch, After: *next})
		return
	}
	if m.closing != nil {
		m.beginClosing(now)
		return
	}
	if m.config.Once != nil && m.ends[onceKey] == nil {
		m.phase = phaseClaiming
		terms := &wire.Terms{Op: wire.OpClaim, Kind: wire.KindClaim, Key: *m.config.Once, Once: true}
		own := &Step{Name: onceKey.name, Number: onceKey.number, terms: terms, state: stepSaving}
		m.saves.add(own, own.request())
		return
	}
	m.runCode(now)
}

// onceKey is the claim of the run's own key.
var onceKey = stepKey{"", 1}

// runCode starts the function, unless the run began to end before.
func (m *Machine) runCode(now time.Time) {
	if m.ending != nil {
		m.finish(&wire.Answer{Type: wire.AnswerYielded}, now)
		return
	}
	m.phase = phasePlaying
	m.busy = 1
	if own := m.ends[onceKey]; own != nil {
		m.log.shown(own.Entry) // the code's lines go by the entries that it knows, and its key is one
	}
	m.emit(Output{Do: DoRunCode})
}

// Page is a page that was asked for.
func (m *Machine) Page(page *wire.Page, now time.Time) {
	if m.phase != phaseLoading {
		return
	}
	m.fetchTry = tries{}
	m.learnPage(page.Entries)
	if page.Next != nil && *page.Next <= m.fetchFrom {
		m.cut() // a page that leads back to itself would be read for ever
		return
	}
	m.load(page.Next, now)
	m.advance(now)
}

// PageFailed says that the page could not be had. status is superseded or ended where the server said so.
func (m *Machine) PageFailed(status string, now time.Time) {
	if m.phase != phaseLoading {
		return
	}
	switch status {
	case wire.StatusSuperseded:
		m.lose(Superseded)
	case wire.StatusEnded:
		m.lose(Ended)
	default:
		m.fetchTry.fail(now, now, m.pauseMax())
	}
	m.advance(now)
}

// learnPage takes in entries that the call came with.
func (m *Machine) learnPage(entries []wire.Entry) {
	m.learn(entries)
	m.log.base = m.seen
}

// learn takes entries into the history; one that is there already stands (W1).
func (m *Machine) learn(entries []wire.Entry) {
	for i := range entries {
		e := &entries[i]
		m.seen = max(m.seen, e.Entry)
		key := stepKey{e.Name, e.Number}
		if m.ends[key] == nil {
			m.ends[key] = e
		}
	}
}

// CheckFoundNothing says that the check of s found nothing, in the given attempt: its body may run (S4).
func (m *Machine) CheckFoundNothing(s *Step, attempt int, now time.Time) {
	if s.state != stepChecking || s.Attempt != attempt {
		return
	}
	m.running--
	if m.over != nil || m.phase == phaseOver || s.orphan || s.aborted {
		s.state = stepDropped
		m.settled(s)
	} else {
		s.state, s.again, s.checked = stepAsked, false, true
	}
	m.advance(now)
}

// BodyEnded says how the body of s ended, in the given attempt, or its check, where that found something or failed. What an aborted
// body threw is no failure (H7), and what comes of an attempt that is no longer the current one is ignored (S6).
func (m *Machine) BodyEnded(s *Step, attempt int, end Settled, now time.Time) {
	if !m.Current(s, attempt) {
		return
	}
	m.running--
	if m.over != nil || m.phase == phaseOver || s.aborted && end.Err != nil {
		s.state = stepDropped
		m.settled(s)
	} else {
		s.state = stepSaving
		m.saves.add(s, s.item(end, now))
	}
	m.advance(now)
}

// Current is true while attempt of s is the one that runs: its result would be taken.
func (m *Machine) Current(s *Step, attempt int) bool {
	return s.runs() && s.Attempt == attempt
}

// Completed says that the workflow's function, or the handler, returned; output nil is undefined.
func (m *Machine) Completed(output json.RawMessage, now time.Time) {
	m.codeEnded(&wire.Answer{Type: wire.AnswerCompleted, Output: output}, now)
}

// Failed says that the workflow's function, or the handler, threw.
func (m *Machine) Failed(end Settled, now time.Time) {
	a := &wire.Answer{Type: wire.AnswerFailed, Error: end.Err, Retriable: end.Retriable, Retries: m.config.Retries}
	if end.Retriable {
		a.RetryAfterMs = retryAfterMs(end.RetryAfter)
	}
	m.codeEnded(a, now)
}

// Restart says that the code of branch asks for the run to begin again with payload (Z2). The branch rests from then on, and the call
// ends as if the function had returned. It fails as Ask does.
func (m *Machine) Restart(branch *Branch, payload json.RawMessage, now time.Time) error {
	if err := m.mayAsk(branch); err != nil {
		return err
	}
	m.codeEnded(&wire.Answer{Type: wire.AnswerRestarted, Payload: payload}, now)
	return nil
}

// codeEnded keeps the end of the function or the handler, and aborts the bodies that it did not wait for, unless it is tried again and
// needs them (H6).
func (m *Machine) codeEnded(a *wire.Answer, now time.Time) {
	switch {
	case m.phase != phasePlaying || m.returned != nil:
		return
	case m.frozen():
		m.functionRested(a, now)
		m.advance(now)
		return
	case m.closing != nil:
		a.Output = nil // the run has its end: that the handler is done is all there is to say
	}
	m.returned = a
	again := a.Retriable && m.call.Run.Attempt <= m.config.Retries
	if m.running > 0 && !again {
		m.abandonAt = now.Add(abandonAfter)
		m.abort(Abandoned)
	}
	m.advance(now)
}

// News is what a heartbeat's answer says of this call.
func (m *Machine) News(n *wire.News, now time.Time) {
	switch n.Status {
	case wire.StatusSuperseded:
		m.lose(Superseded)
	case wire.StatusEnded:
		m.lose(Ended)
	case wire.StatusEnding:
		m.beginEnding(n.Ending)
	case wire.StatusEntries:
		m.newEntries(n.Entries)
	}
	m.advance(now)
}

// newEntries takes in what a heartbeat's answer tells (H2). While a save is under way its answer is waited for instead: entries that
// the save made may come between these, and it carries them all, in their order.
func (m *Machine) newEntries(entries []wire.Entry) {
	if m.phase != phasePlaying || m.saves.flight != nil {
		return
	}
	m.learn(entries)
	m.endWaits()
}

// endWaits gives the waits that the code asked for the ends that the history has.
func (m *Machine) endWaits() {
	for _, s := range m.asked {
		if !s.waits() || s.Entry != nil {
			continue
		}
		if s.Entry = m.ends[s.key()]; s.Entry != nil {
			s.state = stepSaved
		}
	}
}

// beginEnding aborts signals and starts no further body (Z1).
func (m *Machine) beginEnding(e *wire.Ending) {
	if e == nil || m.ending != nil || m.phase == phaseOver || m.closing != nil {
		return
	}
	reason := Cancelled
	if e.Reason == wire.ReasonTimedOut {
		reason = TimedOut
	}
	m.ending = &reason
	m.abort(reason)
}

// lose is the end of this playing's right to save: a newer call or playing has it, or the run has ended (W2).
func (m *Machine) lose(reason Reason) {
	if m.phase == phaseOver {
		if m.end.waiting() {
			m.end = delivery{}
			m.emit(Output{Do: DoForget})
		}
		return
	}
	if m.over != nil {
		return
	}
	m.over = &reason
	m.saves = saves{}
	m.abort(reason)
	m.emit(Output{Do: DoForget})
}

func (m *Machine) abort(reason Reason) {
	for _, s := range m.asked {
		if s.runs() && !s.aborted {
			s.aborted = true
			m.emit(Output{Do: DoAbort, Step: s, Reason: reason})
		}
	}
	if reason != Abandoned {
		m.emit(Output{Do: DoAbort, Reason: reason})
	}
}

// Closed says that the call's connection is gone.
func (m *Machine) Closed(now time.Time) {
	m.connected = false
	m.advance(now)
}

// Stop says that the process stops: no body starts from now on.
func (m *Machine) Stop(now time.Time) {
	m.stopping = true
	m.advance(now)
}

// Tick says that time has passed, at the latest when Wake said.
func (m *Machine) Tick(now time.Time) { m.advance(now) }

// Seen is the number of the last entry that was taken in.
func (m *Machine) Seen() int64 { return m.seen }

// Connected is false once the call's connection is known to be gone.
func (m *Machine) Connected() bool { return m.connected }
