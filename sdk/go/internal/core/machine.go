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
//     time, each only when the code rests.
//   - H5: no code runs before the playing is bound (C4) and every page of saved steps is in.
//   - H6: a call ends only when every body that it started has settled and been saved, or was aborted.
//   - C12: a yield comes with no body running; because of the time limit only after progress.
//   - C13: after a cut a body starts only once its start is recorded, until one step is saved.
//   - N3: an item is sent until the server has decided it; one save of a call is in flight at a time.
//
// A Machine has one owner at a time: whoever calls it holds a lock.
package core

import (
	"encoding/json"
	"errors"
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

// What Ask may answer beside a step.
var (
	// ErrOver says that the call is over: the goroutine that asked must end without the code noticing (H7).
	ErrOver = errors.New("the call is over")
	// ErrBusy says that the branch has a step open already.
	ErrBusy = errors.New("a step of this branch is in flight")
	// ErrStepsMax says that the run has as many steps as the server allows.
	ErrStepsMax = errors.New("the run has as many steps as it may have")
)

// Do is what an Output asks for.
type Do int

// The outputs.
const (
	DoRunCode Do = iota // start the workflow's function
	DoBody              // start Step's body
	DoRelease           // show Step's entry to the code that waits for it
	DoAbort             // end the context of Step's body, and of the code where Step is nil, because of Reason
	DoSave              // send Save
	DoFetch             // fetch the page of steps after After
	DoAnswer            // answer the call with Answer
	DoFail              // answer the call with 500: the SDK itself failed, which is a cut
	DoEnd               // deliver Answer through the API
	DoUnwind            // the call is over for the code: end its goroutine (H7)
	DoForget            // nothing more comes: stop naming the call
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
	Save   *wire.Save
	After  int64
	Answer *wire.Answer
	Reason Reason
}

// Config is what a playing is given beside its call.
type Config struct {
	Nonce    string
	Manifest string
	Retries  int       // of code outside steps
	Bind     bool      // the call is old or its connection closed: bind before anything runs (C4)
	YieldAt  time.Time // from here on no body starts (the host's time limit); zero: none
}

type phase int

const (
	phaseBinding phase = iota
	phaseLoading
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
	spare     []Output

	// The history: ends maps a step to its entry; seen is the highest number taken in.
	ends map[stepKey]*wire.Entry
	seen int64

	// The code: counts numbers the steps by name, asked has the steps that are not done, in the order of asking. busy is the
	// number of branches that run; the code rests when it is 0. returned is the function's end, once it has come.
	root     Branch
	counts   map[string]int
	asked    []*Step
	busy     int
	returned *wire.Answer

	running  int  // bodies
	savedOne bool // a step was saved in this call: progress (C12), and no more starts to record (C13)
	stopping bool // the process stops
	ending   *Reason
	over     *Reason // superseded or ended: nothing may be saved any more

	saves saves
	end   delivery

	retrying  map[stepKey]retry
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
	}
	for _, r := range call.Steps.Retrying {
		if m.retrying == nil {
			m.retrying = map[stepKey]retry{}
		}
		m.retrying[stepKey{r.Name, r.Number}] = retry{r.Attempt, now.Add(ms(r.RetryInMs))}
	}
	m.learn(call.Steps.Entries)
	return m
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// Take hands over the outputs since the last Take, in order. The slice is the caller's until the Take after.
func (m *Machine) Take() []Output {
	out := m.out
	m.out, m.spare = m.spare[:0], out
	return out
}

func (m *Machine) emit(o Output) { m.out = append(m.out, o) }

// Root is the branch of the workflow's function.
func (m *Machine) Root() *Branch { return &m.root }

// Over is true once the call's end is decided: what the code does from then on is ignored.
func (m *Machine) Over() bool { return m.phase == phaseOver }

// Begin starts the playing.
func (m *Machine) Begin(now time.Time) {
	if m.config.Bind {
		m.saves.bind = true
		m.advance(now)
		return
	}
	m.load(m.call.Steps.Next)
	m.advance(now)
}

// load fetches the page after next, or starts the code when there is none.
func (m *Machine) load(next *int64) {
	if next != nil {
		m.phase = phaseLoading
		m.fetchFrom = *next
		m.emit(Output{Do: DoFetch, After: *next})
		return
	}
	m.phase = phasePlaying
	m.busy = 1
	m.emit(Output{Do: DoRunCode})
}

// Page is a page that was asked for.
func (m *Machine) Page(page *wire.Page, now time.Time) {
	if m.phase != phaseLoading {
		return
	}
	m.fetchTry = tries{}
	m.learn(page.Entries)
	if page.Next != nil && *page.Next <= m.fetchFrom {
		m.cut() // a page that leads back to itself would be read for ever
		return
	}
	m.load(page.Next)
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

// AskOptions are a step's own.
type AskOptions struct {
	Retries int
}

// Ask is the code of branch asking for a step. The branch rests until DoRelease of that step. It fails with ErrOver, ErrBusy
// or ErrStepsMax; then the branch goes on.
func (m *Machine) Ask(branch *Branch, name string, opts AskOptions, shell any, now time.Time) (*Step, error) {
	if m.phase != phasePlaying || m.over != nil || m.returned != nil {
		return nil, ErrOver
	}
	if branch.open != nil {
		return nil, ErrBusy
	}
	number := m.counts[name] + 1
	s := &Step{Name: name, Number: number, Retries: opts.Retries, Shell: shell, branch: branch}
	s.Entry = m.ends[s.key()]
	if s.Entry == nil && m.call.Limits.Steps > 0 && len(m.ends) >= m.call.Limits.Steps {
		return nil, ErrStepsMax
	}
	if s.Entry != nil && s.Entry.Kind != wire.KindRun {
		m.fail("StepKindError", "the saved step "+name+" is a "+s.Entry.Kind+", and the code runs one with a body under that name: "+
			"give the new step a name of its own", now)
		return nil, ErrOver
	}
	m.counts[name] = number
	if s.Entry != nil {
		s.state = stepSaved
	} else if r, ok := m.retrying[s.key()]; ok {
		s.state, s.Attempt, s.dueAt = stepRetrying, r.attempt, r.dueAt
	}
	branch.open = s
	m.asked = append(m.asked, s)
	m.busy--
	m.advance(now)
	return s, nil
}

// BodyEnded says how the body of s ended, in the given attempt. What an aborted body threw is no failure (H7), and what comes
// of an attempt that is no longer the current one is ignored (S6).
func (m *Machine) BodyEnded(s *Step, attempt int, end Settled, now time.Time) {
	if s.state != stepRunning || s.Attempt != attempt {
		return
	}
	m.running--
	if m.over != nil || m.phase == phaseOver || s.aborted && end.Err != nil {
		s.state = stepDropped
	} else {
		s.state = stepSaving
		m.saves.add(s, s.item(end, now))
	}
	m.advance(now)
}

// Current is true while attempt of s is the one that runs: its result would be taken.
func (m *Machine) Current(s *Step, attempt int) bool {
	return s.state == stepRunning && s.Attempt == attempt
}

// Completed says that the workflow's function returned; output nil is undefined.
func (m *Machine) Completed(output json.RawMessage, now time.Time) {
	m.functionEnded(&wire.Answer{Type: wire.AnswerCompleted, Output: output}, now)
}

// Failed says that the workflow's function threw.
func (m *Machine) Failed(end Settled, now time.Time) {
	a := &wire.Answer{Type: wire.AnswerFailed, Error: end.Err, Retriable: end.Retriable, Retries: m.config.Retries}
	if end.Retriable {
		a.RetryAfterMs = retryAfterMs(end.RetryAfter)
	}
	m.functionEnded(a, now)
}

// functionEnded keeps the function's end and aborts the bodies that it did not wait for (H6).
func (m *Machine) functionEnded(a *wire.Answer, now time.Time) {
	if m.phase != phasePlaying || m.returned != nil {
		return
	}
	m.returned = a
	if m.running > 0 {
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
	}
	m.advance(now)
}

// beginEnding aborts signals and starts no further body (Z1).
func (m *Machine) beginEnding(e *wire.Ending) {
	if e == nil || m.ending != nil || m.phase == phaseOver {
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
		if s.state == stepRunning && !s.aborted {
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

// Connected is false once the call's connection is known to be gone.
func (m *Machine) Connected() bool { return m.connected }
