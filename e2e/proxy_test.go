package e2e

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// way is what a proxy does with a request, and with the answer to one that it has passed on.
type way int

const (
	through  way = iota // passes requests and answers on
	refusing            // closes connections at once
	holding             // takes everything and gives nothing, as a network that drops packets: when that is over, what was held goes on
)

// proxy stands between the server and an app, in one of the two directions. It may be told what to do at any moment; what is
// under way follows. It never sends a request twice.
type proxy struct {
	t      *testing.T
	addr   string
	server *http.Server
	client *http.Transport

	mu       sync.Mutex
	way      way
	target   string        // host:port
	standIn  http.Handler  // answers in the target's place; nil for none
	changed  chan struct{} // closed when any of these changes
	cuts     chan struct{} // closed to cut what is under way
	lost     chan struct{} // closed to have what is under way never answered
	calls    atomic.Int64  // calls that were passed on
	timedOut time.Duration // answers 504 when the target takes longer; zero for never
}

// describeBytesMax is more than a request takes that asks an app what it is, and less than any call.
const describeBytesMax = 100

// newProxy makes a proxy to a target, at an address of its own.
func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{
		t: t, addr: listener.Addr().String(), target: target, changed: make(chan struct{}), cuts: make(chan struct{}), lost: make(chan struct{}),
		client: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		p.server.Serve(listener) // ends with Close
	}()
	t.Cleanup(func() {
		p.set(func() { p.way = refusing })
		p.cut()
		p.server.Close()
		<-served
	})
	return p
}

func (p *proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// take tells the proxy its way from now on.
func (p *proxy) take(w way) { p.set(func() { p.way = w }) }

// to has requests go to another target from now on.
func (p *proxy) to(target string) { p.set(func() { p.target = target }) }

// gateway has the proxy answer 504 when the target takes longer.
func (p *proxy) gateway(limit time.Duration) { p.set(func() { p.timedOut = limit }) }

// answer has a handler answer in the target's place; nil ends that.
func (p *proxy) answer(h http.Handler) { p.set(func() { p.standIn = h }) }

// cut closes the connections of all that is under way, on both sides.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.cuts)
	p.cuts = make(chan struct{})
}

// lose has what is under way never answered, while its connections stay open.
func (p *proxy) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.lost)
	p.lost = make(chan struct{})
}

// state is what a request finds.
type state struct {
	way      way
	target   string
	standIn  http.Handler
	changed  chan struct{}
	cuts     chan struct{}
	lost     chan struct{}
	timedOut time.Duration
}

func (p *proxy) state() state {
	p.mu.Lock()
	defer p.mu.Unlock()
	return state{p.way, p.target, p.standIn, p.changed, p.cuts, p.lost, p.timedOut}
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := p.state()
	if now.way == refusing {
		panic(http.ErrAbortHandler)
	}
	if now.way == holding {
		p.hold(r, now.cuts, func() bool { return p.state().way != holding })
		now = p.state()
	}
	if now.standIn != nil {
		now.standIn.ServeHTTP(w, r)
		return
	}
	answer, err := p.pass(r, now)
	switch {
	case errors.Is(err, errTimedOut):
		http.Error(w, "the gateway waited too long", http.StatusGatewayTimeout)
		return
	case err != nil:
		panic(http.ErrAbortHandler)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	p.hold(r, now.cuts, func() bool { return p.state().way != holding && !isClosed(now.lost) })
	if p.state().way == refusing {
		panic(http.ErrAbortHandler)
	}
	for name, values := range answer.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.StatusCode)
	w.Write(body)
}

// hold keeps a request back until it may go on. A cut, or a client that is gone, ends it.
func (p *proxy) hold(r *http.Request, cuts chan struct{}, mayGo func() bool) {
	for {
		changed := p.state().changed
		if mayGo() {
			return
		}
		select {
		case <-changed:
		case <-cuts:
			panic(http.ErrAbortHandler)
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

var errTimedOut = errors.New("the target took too long")

// pass passes a request on, and waits for its answer, for a cut, or for a refusal.
func (p *proxy) pass(r *http.Request, now state) (*http.Response, error) {
	type result struct {
		answer *http.Response
		err    error
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", now.target, ""
	if r.ContentLength > describeBytesMax {
		p.calls.Add(1)
	}
	results := make(chan result, 1)
	go func() {
		answer, err := p.client.RoundTrip(out)
		results <- result{answer, err}
	}()
	var late <-chan time.Time
	if now.timedOut > 0 {
		timer := time.NewTimer(now.timedOut)
		defer timer.Stop()
		late = timer.C
	}
	for {
		changed := p.state().changed
		select {
		case got := <-results:
			return got.answer, got.err
		case <-late:
			return nil, errTimedOut
		case <-now.cuts:
			return nil, http.ErrAbortHandler
		case <-changed:
			if p.state().way == refusing {
				return nil, http.ErrAbortHandler
			}
		}
	}
}
