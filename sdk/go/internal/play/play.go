// Package play is the shell around internal/core: it plays one call with real goroutines, contexts and requests.
//
// The machine of internal/core decides; this package does what it says. The workflow's function runs in a goroutine of its
// own, and so does each branch and each body. A step asks the machine and blocks until the machine releases it. When the call is over
// the function's goroutine unwinds by runtime.Goexit (H7), after those of its branches, one at a time, so that no recover and no error
// check takes the end of the call for a failure; whatever code of an ended call returns or panics is ignored.
//
// Locks are taken in the order Playing.mu, then those of internal/contact. No user code runs under a lock.
package play

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/contact"
	"github.com/nelkap/nelkap/sdk/go/internal/core"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// Host is what an app gives to its playings.
type Host struct {
	Client any // the app, for FromContext
	Logger *slog.Logger
	// Failure is err as it is saved. It must not panic.
	Failure func(err error) core.Settled
	// StepError is what a failed entry is for the code.
	StepError func(*wire.Entry) error
	// Done is called once, when nothing of the playing is left. It may be called with locks held, and must not call back.
	Done func(*Playing)
}

// Config is one call to play.
type Config struct {
	Call        *wire.Call
	Destination *contact.Destination
	URL, APIKey string // where sends go, and with which key
	Manifest    string
	Retries     int // the workflow's
	Bind        bool
	YieldAt     time.Time
	Once        *string // the key that only one run of the workflow may own (K4); nil: none
	Stage       Stage   // nil in production
	// Code is the workflow's function: it encodes its own output.
	Code func(ctx context.Context) (json.RawMessage, error)
	// Handler is what is called last in a closing, with the steps that were saved before it; nil: nothing. Prefix is what the names of
	// its steps begin with.
	Handler func(ctx context.Context, entries []*wire.Entry) error
	Prefix  string
	// Verify is how long code has that is only played against its history (D3), without a destination; 0: it is a call.
	Verify time.Duration
}

// Answer is what the call is to be answered with; Body is nil where the SDK itself failed.
type Answer struct{ Body []byte }

// Playing is one playing of a call.
type Playing struct {
	host   *Host
	config Config
	call   *wire.Call
	nonce  string
	named  *contact.Call

	over    atomic.Bool
	answers chan Answer

	mu     sync.Mutex // guards the machine and what follows
	m      *core.Machine
	root   *lane // of the workflow's function, or of the handler once that is started
	live   int   // goroutines of the code, of bodies and of fetches
	urgent bool
	kept   int // bytes of results that the server can't be reached to accept, as the destination knows them
	timer  *time.Timer
	wakeAt time.Time
	spread time.Duration // by which it wakes later; it never changes

	finished atomic.Bool // nothing is left
}

// Start plays a call.
func Start(host *Host, config Config) *Playing {
	now := time.Now()
	p := &Playing{host: host, config: config, call: config.Call, nonce: contact.Nonce(), answers: make(chan Answer, 1)}
	p.spread = spreadOf(p.nonce)
	machine := core.Config{
		Nonce: p.nonce, Manifest: config.Manifest, Retries: config.Retries, Bind: config.Bind, YieldAt: config.YieldAt,
		Once: config.Once, Verify: config.Verify > 0, LateAt: now.Add(config.Verify),
	}
	if config.Handler != nil {
		machine.Handler = config.Prefix
	}
	p.m = core.New(config.Call, machine, now)
	p.root = newRoot(p.m.Root())
	p.root.frozen = config.Verify > 0 || config.Call.Ending != nil
	p.named = &contact.Call{
		ID: p.call.Call.ID, Token: p.call.Call.Token, Nonce: p.nonce,
		Heartbeat: time.Duration(p.call.Call.HeartbeatMs) * time.Millisecond, News: p.news,
	}
	if config.Destination != nil {
		config.Destination.Join(p.named)
	}
	p.input(func(now time.Time) { p.m.Begin(now) })
	return p
}

// Answers gives the call's answer, at most once.
func (p *Playing) Answers() <-chan Answer { return p.answers }

// Client is the app.
func (p *Playing) Client() any { return p.host.Client }

// Run is the run as the call carries it; it must not be changed.
func (p *Playing) Run() *wire.Run { return &p.call.Run }

// SendTo is where sends of this call go, and with which key.
func (p *Playing) SendTo() (url, apiKey string) { return p.config.URL, p.config.APIKey }

// Retries is how many tries beyond the first the workflow gives its steps.
func (p *Playing) Retries() int { return p.config.Retries }

// Over is true once the call has ended for the code.
func (p *Playing) Over() bool { return p.over.Load() }

// Finished is true once nothing of the playing is left.
func (p *Playing) Finished() bool { return p.finished.Load() }

// Closed says that the call's connection is gone. An answer that was given and not written must be said by AnswerFailed.
func (p *Playing) Closed() { p.input(p.m.Closed) }

// AnswerFailed says that the answer could not be written: it goes through the API.
func (p *Playing) AnswerFailed() { p.input(p.m.AnswerFailed) }

// Stop starts no more bodies and has the server call again.
func (p *Playing) Stop() { p.input(p.m.Stop) }

func (p *Playing) news(n *wire.News) {
	p.input(func(now time.Time) { p.m.News(n, now) })
}

// input gives the machine an input and does what it says.
func (p *Playing) input(f func(now time.Time)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	f(now)
	p.act(now)
}

// act does what the machine says. p.mu is held.
func (p *Playing) act(now time.Time) {
	for _, o := range p.m.Take() {
		p.do(o)
	}
	p.named.Saw(p.m.Seen())
	p.wake(now)
	delivering := p.m.Delivering()
	urgent := p.m.Failing() || delivering || !p.m.Connected() && !p.m.Over()
	if urgent != p.urgent {
		p.urgent = urgent
		p.config.Destination.Urge(p.named, urgent)
	}
	if urgent || p.kept > 0 {
		p.keep()
	}
	if p.live == 0 && p.m.Over() && !delivering && !p.finished.Swap(true) {
		p.root.cancel(ErrCallOver)
		p.host.Done(p)
		if p.config.Stage != nil {
			p.config.Stage.Done()
		}
	}
}

// keep tells the destination what is kept for it, which it bounds (C11). p.mu is held.
func (p *Playing) keep() {
	if kept := p.m.Kept(); kept != p.kept {
		p.kept = kept
		p.config.Destination.Keep(p.named, kept)
	}
}

func (p *Playing) do(o core.Output) {
	switch o.Do {
	case core.DoRunCode:
		p.startCode(p.root, func(ctx context.Context) (json.RawMessage, error) { return p.config.Code(ctx) })
	case core.DoHandler:
		p.startHandler(o)
	case core.DoBranch:
		p.startBranch(o.Branch)
	case core.DoJoin:
		close(o.Fork.Shell.(*Branches).joined)
	case core.DoCheck, core.DoBody:
		p.startAttempt(o.Step, o.Do == core.DoCheck)
	case core.DoRelease:
		close(o.Step.Shell.(*Request).released)
	case core.DoAbort:
		p.abort(o)
	case core.DoSave:
		p.save(o.Save)
	case core.DoFetch:
		p.live++
		go p.fetch(o.After)
	case core.DoAnswer:
		p.answers <- Answer{o.Answer.AppendJSON(nil)}
	case core.DoVerified:
		p.answers <- Answer{o.Verified.AppendJSON(nil)}
	case core.DoFail:
		p.answers <- Answer{}
	case core.DoEnd:
		p.deliver(o.Answer)
	case core.DoUnwind:
		p.over.Store(true)
		close(p.root.leave)
	case core.DoForget:
		p.config.Destination.Leave(p.named)
	}
}

func (p *Playing) abort(o core.Output) {
	if o.Step != nil {
		request := o.Step.Shell.(*Request)
		request.cancel(cause(o.Reason))
		if o.Reason != core.Cancelled && o.Reason != core.TimedOut {
			request.attempt.close(attemptAbandoned)
		}
		return
	}
	if o.Reason == core.Superseded || o.Reason == core.Ended {
		p.over.Store(true)
	}
	p.root.cancel(cause(o.Reason))
}

func (p *Playing) save(s *wire.Save) {
	p.config.Destination.Save(s, p.config.Manifest, func(o *wire.Outcome) {
		p.input(func(now time.Time) {
			if o == nil {
				p.m.SaveFailed(s, now)
				p.m.Silent(p.config.Destination.SilentSince(), now)
			} else {
				p.m.Saved(s, o, now)
			}
		})
	})
}

func (p *Playing) deliver(a *wire.Answer) {
	p.config.Destination.Join(p.named) // which it may have left with its answer: until the end is accepted it is named
	end := &wire.End{Call: p.call.Call.ID, Token: p.call.Call.Token, Nonce: p.nonce, End: a}
	p.config.Destination.End(end, func(o *wire.EndOutcome) {
		status := ""
		if o != nil {
			status = o.Status
		}
		p.input(func(now time.Time) { p.m.EndOutcome(status, now) })
	})
}

func (p *Playing) fetch(after int64) {
	page, err := p.config.Destination.Page(context.Background(), p.named, after)
	p.input(func(now time.Time) {
		p.live--
		var gone *contact.GoneError
		switch {
		case err == nil:
			p.m.Page(page, now)
		case errors.As(err, &gone):
			p.m.PageFailed(gone.Status, now)
		default:
			p.m.PageFailed("", now)
		}
	})
}

// wake sets the timer for the machine. p.mu is held.
func (p *Playing) wake(now time.Time) {
	at := p.m.Wake(now)
	if at.Equal(p.wakeAt) {
		return
	}
	p.wakeAt = at
	if p.timer != nil {
		p.timer.Stop()
	}
	if !at.IsZero() {
		p.timer = time.AfterFunc(at.Sub(now)+p.spread, p.tick)
	}
}

// spreadOf is less than 66 µs. Calls whose saves failed in one request wake one after the other, in an order of their own, and not
// at one instant, where the order would be nobody's.
func spreadOf(nonce string) time.Duration {
	n, _ := strconv.ParseUint(nonce[:4], 16, 16) // a nonce is hex
	return time.Duration(n)
}

func (p *Playing) tick() {
	p.input(func(now time.Time) {
		p.wakeAt = time.Time{}
		p.m.Tick(now)
	})
}
