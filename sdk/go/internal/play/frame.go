package play

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"sync"

	"github.com/nelkap/nelkap/sdk/go/internal/core"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// Frame is what a context of a run carries: one for each branch of the code, one for each attempt of a step.
type Frame struct {
	Playing *Playing
	Attempt *Attempt   // nil outside a step
	check   bool       // it is the check of the attempt, which looks and leaves no mark (S4)
	lane    *lane      // nil in a step
	step    *core.Step // nil outside a step
}

type frameKey struct{}

func with(ctx context.Context, f *Frame) context.Context {
	return context.WithValue(ctx, frameKey{}, f)
}

// From is the frame that ctx carries, or nil outside a run.
func From(ctx context.Context) *Frame {
	f, _ := ctx.Value(frameKey{}).(*Frame)
	return f
}

// Over is true once the call has ended, and once the branch of the code is one that nobody waits for.
func (f *Frame) Over() bool { return f.Playing.Over() || f.lane != nil && f.lane.unwound.Load() }

// Frozen is true for code outside steps that is played without acting: nothing that it sends goes out.
func (f *Frame) Frozen() bool { return f.lane != nil && f.lane.frozen }

// Where an attempt's context stands (K2).
type attemptState int

const (
	attemptOpen      attemptState = iota
	attemptSettled                // sends through its context act as outside any run
	attemptAbandoned              // its body goes on though nobody waits for it: its sends are refused
)

// Attempt is one attempt of a step.
type Attempt struct {
	Name    string
	Number  int
	Attempt int
	run     *wire.Run

	mu        sync.Mutex
	state     attemptState
	places    map[sendKey]int
	unkeyed   map[sendKey]int // sends in flight that have no key of the user's
	ambiguous bool            // two of them overlapped: the step fails (K1)
}

type sendKey struct{ kind, name string }

// IdempotencyKey is the same for every attempt of the step in its run (S8).
func (a *Attempt) IdempotencyKey() string {
	return IdempotencyKey(a.run.Root, a.run.Restart, a.Name, a.Number)
}

// IdempotencyKey is made from the root run, the restart number, the step's name and its count.
func IdempotencyKey(root string, restart int, name string, number int) string {
	b := wire.AppendString([]byte{'['}, root)
	b = strconv.AppendInt(append(b, ','), int64(restart), 10)
	b = wire.AppendString(append(b, ','), name)
	b = append(strconv.AppendInt(append(b, ','), int64(number), 10), ']')
	sum := sha256.Sum256(b)
	return "nelkap_" + hex.EncodeToString(sum[:16])
}

func (a *Attempt) close(state attemptState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == attemptOpen {
		a.state = state
	}
}

// Send is what a send in a step carries, so that a step that repeats sends nothing twice (K1).
type Send struct {
	Call  string       `json:"call"`
	Token string       `json:"token"`
	Nonce string       `json:"nonce"`
	Step  wire.StepRef `json:"step"`
	Place int          `json:"place"`
}

// SendName is one send that is about to be made.
type SendName struct {
	Kind, Name string // "run" and the workflow, or "emit" and the event
	Keyed      bool   // the user gave a key or an id
}

// Sends says where sends of this frame stand.
type Sends int

// The places of a send.
const (
	SendsInStep    Sends = iota
	SendsInCode          // in the workflow, outside steps: they act each time the code runs
	SendsAfterStep       // the step has settled: they act as outside any run
	SendsNowhere         // the code is played without acting: nothing is sent
)

// BeginSends gives each of names its place in the step. done must be called when the request has ended. It fails with
// ErrAmbiguousSend where two sends can't be told apart, with ErrCheckSends in a check, and with ErrCallOver or ErrAbandoned where
// nothing may be sent any more.
func (f *Frame) BeginSends(names []SendName) (where Sends, sends []Send, done func(), err error) {
	nothing := func() {}
	if f.Frozen() {
		return SendsNowhere, nil, nothing, nil
	}
	if f.Attempt == nil {
		return SendsInCode, nil, nothing, nil
	}
	a := f.Attempt
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == attemptAbandoned {
		return SendsInStep, nil, nothing, ErrAbandoned
	}
	if a.state == attemptSettled {
		return SendsAfterStep, nil, nothing, nil
	}
	if f.Playing.Over() {
		return SendsInStep, nil, nothing, ErrCallOver
	}
	if f.check {
		return SendsInStep, nil, nothing, ErrCheckSends
	}
	for _, n := range names {
		if key := (sendKey{n.Kind, n.Name}); !n.Keyed && a.unkeyed[key] > 0 {
			a.ambiguous = true
			return SendsInStep, nil, nothing, ErrAmbiguousSend
		}
	}
	return SendsInStep, f.place(names), func() { a.endSends(names) }, nil
}

// place counts names in. a.mu is held.
func (f *Frame) place(names []SendName) []Send {
	a := f.Attempt
	if a.places == nil {
		a.places, a.unkeyed = map[sendKey]int{}, map[sendKey]int{}
	}
	sends := make([]Send, len(names))
	for i, n := range names {
		key := sendKey{n.Kind, n.Name}
		a.places[key]++
		if !n.Keyed {
			a.unkeyed[key]++
		}
		sends[i] = Send{
			Call: f.Playing.call.Call.ID, Token: f.Playing.call.Call.Token, Nonce: f.Playing.nonce,
			Step: wire.StepRef{Name: a.Name, Number: a.Number}, Place: a.places[key],
		}
	}
	return sends
}

func (a *Attempt) endSends(names []SendName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range names {
		if !n.Keyed {
			a.unkeyed[sendKey{n.Kind, n.Name}]--
		}
	}
}

// Ambiguous makes the step fail because of sends that can't be told apart.
func (a *Attempt) Ambiguous() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ambiguous = true
}

func (a *Attempt) isAmbiguous() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ambiguous
}
