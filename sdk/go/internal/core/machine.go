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
	// ErrBusy says that the branch has a step open already, or waits for branches of its own.
	ErrBusy = errors.New("a step of this branch is in flight")
	// ErrEnded says that the branch's function has returned.
	ErrEnded = errors.New("the branch has ended")
	// ErrStepsMax says that the run has as many steps as the server allows.
	ErrStepsMax = errors.New("the run has as many steps as it may have")
)

// Do is what an Output asks for.
type Do int

// The outputs.
const (
	DoRunCode Do = iota // start the workflow's function
	DoBranch            // start the function of Branch
	DoJoin              // let Branch go on, whose Fork is over; the goroutines of the fork's branches that have not ended must end first
	DoCheck             // start Step's check (S4)
	DoBody              // start Step's body
	DoRelease           // show Step's entry to the code that waits for it
	DoAbort             // end the context of Step's body or check, and of the code where Step is nil, because of Reason
	DoSave              // send Save
	DoFetch             // fetch the page of steps after After
	DoAnswer            // answer the call with Answer
	DoFail              // answer the call with 500: the SDK itself failed, which is a cut
	DoEnd               // deliver Answer through the API
	DoUnwind            // the call is over for the code: end its goroutines (H7)
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
	Branch *Branch
	Fork   *Fork
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
	Once     *string   // the key that only one run of the workflow may own (K4); nil: none
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
	spare     []Output

	// The history: ends maps a step to its entry; seen is the highest number taken in.
	ends map[stepKey]*wire.Entry
	seen int64

	// The code: counts numbers the steps by name, asked has the steps that are not done, in the order of asking. ready are turns that
	// come before anything else. busy is the number of branches that run; the code rests when it is 0 and nothing is ready. It is
	// kept from going on while holding, the number of orphans that must settle first, is above 0. returned is the function's end,
	// once it has come.
	root     Branch
	counts   map[string]int
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

	saves saves
	end   delivery

	retrying  map[stepKey]retry
	waiting   map[stepKey]string // the kinds of the waits that were open when the call came
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
	for _, w := range call.Steps.Waiting {
		if m.waiting == nil {
			m.waiting = map[stepKey]string{}
		}
		m.waiting[stepKey{w.Name, w.Number}] = w.Kind
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

// load fetches the page after next, or starts the code when there is none; before that the run's own key is claimed.
func (m *Machine) load(next *int64) {
	if next != nil {
		m.phase = phaseLoading
		m.fetchFrom = *next
		m.emit(Output{Do: DoFetch, After: *next})
		return
	}
	if m.config.Once != nil && m.ends[onceKey] == nil {
		m.phase = phaseClaiming
		terms := &wire.Terms{Op: wire.OpClaim, Kind: wire.KindClaim, Key: *m.config.Once, Once: true}
		own := &Step{Name: onceKey.name, Number: onceKey.number, terms: terms, state: stepSaving}
		m.saves.add(own, own.request())
		return
	}
	m.runCode()
}

// onceKey is the claim of the run's own key.
var onceKey = stepKey{"", 1}

func (m *Machine) runCode() {
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
	Terms   *wire.Terms // what it asks of the server; nil: it has a body
	Was     string      // its name before it was renamed (S7); empty: none
	Retries int
	Check   bool // it has a check (S4)
	Once    bool // it runs at most once (S5)
}

// Ask is the code of branch asking for a step. The branch rests until DoRelease of that step. It fails with ErrOver, ErrBusy,
// ErrEnded or ErrStepsMax; then the branch goes on.
func (m *Machine) Ask(branch *Branch, name string, opts AskOptions, shell any, now time.Time) (*Step, error) {
	if err := m.mayAsk(branch); err != nil {
		return nil, err
	}
	s := &Step{
		Name: name, Number: m.number(branch, name), Retries: opts.Retries, Shell: shell,
		branch: branch, terms: opts.Terms, check: opts.Check, once: opts.Once,
	}
	m.identify(s, opts.Was)
	s.Entry = m.ends[s.key()]
	if s.Entry == nil && m.full() {
		return nil, ErrStepsMax
	}
	if kind := m.knownKind(s); kind != s.kind() {
		m.fail("StepKindError", "step "+s.Name+" was saved as "+kindWords[kind]+", and the code asks for "+kindWords[s.kind()]+
			" under that name: give the new step a name of its own", now)
		return nil, ErrOver
	}
	if s.Entry != nil {
		s.state = stepSaved
	} else if r, ok := m.retrying[s.key()]; ok {
		s.state, s.Attempt, s.dueAt = stepRetrying, r.attempt, r.dueAt
	} else if m.waiting[s.key()] != "" {
		s.state = stepWaiting
	}
	branch.open = s
	m.asked = append(m.asked, s)
	m.busy--
	m.advance(now)
	return s, nil
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
	}
	return nil
}

// identify gives s its old name where the run knows it under that, and not under the new one (S7).
func (m *Machine) identify(s *Step, was string) {
	if was == "" || m.knows(s.key()) {
		return
	}
	if old := (stepKey{was, s.Number}); m.knows(old) {
		s.Name = was
		m.counts[was] = max(m.counts[was], s.Number) // a step that kept the name comes after it
	}
}

func (m *Machine) knows(key stepKey) bool {
	_, retrying := m.retrying[key]
	return retrying || m.ends[key] != nil || m.waiting[key] != ""
}

// knownKind is the kind under which the run knows s; that of s where it does not know it.
func (m *Machine) knownKind(s *Step) string {
	_, retrying := m.retrying[s.key()]
	switch {
	case s.Entry != nil:
		return s.Entry.Kind
	case retrying:
		return wire.KindRun
	case m.waiting[s.key()] != "":
		return m.waiting[s.key()]
	}
	return s.kind()
}

// kindWords say in a sentence what a step of a kind is.
var kindWords = map[string]string{
	wire.KindRun: "a step with a body", wire.KindSleep: "a sleep", wire.KindEvent: "a wait for an event",
	wire.KindInvoke: "a child run", wire.KindCallback: "a callback", wire.KindClaim: "a claim",
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
