package sim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Errors of the network, as a client sees them.
var (
	// errRefused: nobody listens. Nothing was sent.
	errRefused = errors.New("connection refused")
	// errReset: the connection broke; what was sent may have arrived.
	errReset = errors.New("connection reset by peer")
)

// message is one request, as it travels.
type message struct {
	from   *actor
	kind   string // what it asks for: save, poll, end, steps, run, …
	call   string // of a call: its id
	id     string // from whom to whom and which; unique
	method string
	url    string
	header http.Header
	body   []byte
	dice   *dice

	takenAt time.Time // when a node took it
}

// exchange is a request and its answer on their way. The first result counts.
type exchange struct {
	out chan result

	mu     sync.Mutex
	dice   *dice
	gone   bool               // the sender hung up
	cancel context.CancelFunc // of the request where it is handled; nil: it is not
}

// result is what the sender gets.
type result struct {
	answer *answer
	err    error
}

func newExchange(d *dice) *exchange { return &exchange{dice: d, out: make(chan result, 1)} }

// between draws a duration of this exchange's own.
func (x *exchange) between(least, most time.Duration) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.dice.between(least, most)
}

func (x *exchange) settle(r result) {
	select {
	case x.out <- r:
	default:
	}
}

// hangUp ends the request where it is handled, and where it will be.
func (x *exchange) hangUp() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.gone = true
	if x.cancel != nil {
		x.cancel()
	}
}

// arrive gives the context of the request where it is handled.
func (x *exchange) arrive() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cancel = cancel
	if x.gone {
		cancel()
	}
	return ctx, cancel
}

// enter and leave keep the exchanges that end with an actor.
func enter(set *map[*exchange]struct{}, a *actor, x *exchange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	(*set)[x] = struct{}{}
}

func leave(set *map[*exchange]struct{}, a *actor, x *exchange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(*set, x)
}

// answer is an http.ResponseWriter that keeps what is written.
type answer struct {
	status int
	header http.Header
	body   bytes.Buffer
}

func newAnswer() *answer { return &answer{header: http.Header{}} }

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// SetReadDeadline is for http.ResponseController: what is sent has arrived.
func (*answer) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is for http.ResponseController: what is written has left.
func (*answer) SetWriteDeadline(time.Time) error { return nil }

// Flush implements http.Flusher: what is written has left.
func (*answer) Flush() {}

// response is a as an HTTP client gets it.
func (a *answer) response(r *http.Request) *http.Response {
	return &http.Response{
		StatusCode: a.status, Status: http.StatusText(a.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body.Bytes())), ContentLength: int64(a.body.Len()), Request: r,
	}
}

// proxied is what a proxy answers in the place of whom it can't reach.
func proxied(status int) *answer {
	a := newAnswer()
	a.header.Set("Content-Type", "text/html")
	a.WriteHeader(status)
	a.body.WriteString("<html>" + http.StatusText(status) + "</html>")
	return a
}

// request is m for an http.Handler.
func (m *message) request(ctx context.Context) *http.Request {
	r, err := http.NewRequestWithContext(ctx, m.method, m.url, bytes.NewReader(m.body))
	if err != nil {
		panic("sim: a request that was sent can't be made again: " + err.Error())
	}
	r.Header = m.header.Clone()
	r.RemoteAddr = "10.0.0.1:40000"
	r.RequestURI = r.URL.RequestURI()
	return r
}

// kindOf says what a request to the server asks for.
func kindOf(method, path string) string {
	switch {
	case path == "/v1/saves":
		return "save"
	case path == "/v1/heartbeats":
		return "poll"
	case path == "/v1/ends":
		return "end"
	case strings.HasPrefix(path, "/v1/calls/"):
		return "steps"
	case path == "/v1/events":
		return "emit"
	case path == "/v1/runs":
		return "run"
	case strings.HasSuffix(path, "/cancel"):
		return "cancel"
	case strings.HasSuffix(path, "/replay"):
		return "replay"
	case strings.HasPrefix(path, "/callbacks/"):
		return "post"
	case strings.HasPrefix(path, "/hooks/"):
		return "hook"
	case method == http.MethodGet:
		return "read"
	}
	return "other"
}

// fate is what befalls a message.
type fate int

// The fates. Those of a kind that the report counts have a name there.
const (
	fine        fate = iota
	lostRequest      // it never arrives
	lostAnswer       // it arrives, and its answer does not
	twice            // it arrives twice
	late             // its sender is told that the connection broke; it arrives afterwards
	slow             // it takes seconds, and others overtake it
	cut              // the connection breaks while it is handled
	proxyBefore      // a proxy answers 502, 503 or 504, and it never arrives
	proxyAfter       // a proxy answers so, and it arrives
)

var fateNames = []string{"", "request lost", "answer lost", "delivered twice", "delivered late", "slow", "cut", "proxy, not delivered", "proxy, delivered"}

// fateOf draws what befalls m.
func (w *world) fateOf(m *message) fate {
	if f, is := w.chosen(messages); is {
		return f.fate
	}
	if !w.isFaulty() || !m.dice.odds(w.plan.messageOdds) {
		return fine
	}
	f := fate(1 + m.dice.pick(2, 2, 2, 1, 2, 2, 1, 1))
	if f == twice && m.kind == "hook" {
		f = slow // a webhook has no id: twice is two events
	}
	w.report.fault("message: " + fateNames[f])
	return f
}

// latency draws how long a message takes one way.
func latency(d *dice, f fate) time.Duration {
	if f == slow {
		return d.between(50*time.Millisecond, 9*time.Second)
	}
	return d.between(50*time.Microsecond, 3*time.Millisecond)
}
