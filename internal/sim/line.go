package sim

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/nelkap/nelkap/internal/wire"
)

// serverURL is where apps and clients reach the server: whichever node has the work now.
const serverURL = "http://server.sim"

// line is how an app's process or a client reaches the server. It must be able to drop the world when that is over: the SDK keeps its
// HTTP clients for ever.
type line struct{ from atomic.Pointer[actor] }

func newLine(w *world, from *actor) *line {
	l := &line{}
	l.from.Store(from)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, l)
	return l
}

func (l *line) close() { l.from.Store(nil) }

// RoundTrip implements http.RoundTripper.
func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	from := l.from.Load()
	if from == nil {
		return nil, errRefused
	}
	w := from.world
	m, err := w.message(from, r)
	if err != nil {
		return nil, err
	}
	if !from.pass(m.dice.between(1, 20_000)) || w.isOver() {
		return w.grave(m).response(r), nil
	}
	x := newExchange(m.dice.split())
	a, err := w.exchange(r.Context(), m, x)
	if !from.pass(m.dice.between(1, 20_000)) {
		return w.grave(m).response(r), nil
	}
	if err != nil {
		w.trace.add(from.name, "gets for "+m.id, err.Error())
		return nil, err
	}
	if from.app != "" {
		w.witness.heard(m, a)
	}
	return a.response(r), nil
}

// message takes in a request.
func (w *world) message(from *actor, r *http.Request) (*message, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
	}
	m := &message{from: from, kind: kindOf(r.Method, r.URL.Path), method: r.Method, url: r.URL.String(), header: r.Header, body: body}
	m.id, m.dice = w.name(from.name + " " + m.kind)
	var ends wire.Ends
	if m.kind == "end" && wire.Decode(body, &ends) == nil {
		for _, e := range ends.Ends {
			w.witness.ends(e.Call)
		}
	}
	return m, nil
}

// exchange carries m to the server, and brings back what its sender gets.
func (w *world) exchange(ctx context.Context, m *message, x *exchange) (*answer, error) {
	enter(&m.from.sends, m.from, x)
	defer leave(&m.from.sends, m.from, x)
	f := w.fateOf(m)
	if w.parted(m.from) {
		f = lostRequest
	}
	w.trace.add(m.from.name, "sends "+m.id, fateNames[f])
	w.carry(m, x, f)
	select {
	case r := <-x.out:
		return r.answer, r.err
	case <-ctx.Done():
		time.AfterFunc(m.dice.between(time.Microsecond, time.Millisecond), x.hangUp)
		return nil, ctx.Err()
	case <-m.from.died: // nobody is there to get it
		<-w.over
		return nil, errReset
	}
}

// carry sends m on its way as its fate is.
func (w *world) carry(m *message, x *exchange, f fate) {
	breaks := m.dice.between(100*time.Microsecond, 40*time.Millisecond)
	silent := m.dice.odds(400) // the sender is told nothing, and gives up by itself
	trip := delivery{m: m, x: x, dice: m.dice.split(), fate: f}
	trip.after = latency(trip.dice, f)
	switch f {
	case fine, slow, twice:
		trip.answered = true
	case late:
		trip.after = breaks + trip.dice.between(time.Millisecond, 12*time.Second)
	case cut:
		time.AfterFunc(breaks+m.dice.between(0, 20*time.Microsecond), x.hangUp)
	case lostRequest, lostAnswer, proxyBefore, proxyAfter:
	}
	if f != lostRequest && f != proxyBefore {
		go w.deliver(trip)
	}
	if f == twice {
		again := *m
		again.id += " again"
		second := delivery{m: &again, x: newExchange(m.dice.split()), dice: m.dice.split()}
		second.after = second.dice.between(time.Millisecond, 4*time.Second)
		go w.deliver(second)
	}
	switch {
	case f == proxyBefore || f == proxyAfter:
		status := []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}[m.dice.below(3)]
		time.AfterFunc(breaks, func() { x.settle(result{answer: proxied(status)}) })
	case f == late || f == cut || (f == lostRequest || f == lostAnswer) && !silent:
		time.AfterFunc(breaks, func() { x.settle(result{err: errReset}) })
	}
}

// delivery is one arrival of a message.
type delivery struct {
	m        *message
	x        *exchange
	dice     *dice
	fate     fate
	after    time.Duration
	answered bool // its sender hears of it
}

// deliver lets the server handle a message after some time.
func (w *world) deliver(t delivery) {
	rest(t.after)
	n := w.taker(t.dice)
	if n == nil {
		t.x.settle(result{err: errRefused})
		return
	}
	enter(&n.takes, &n.actor, t.x)
	defer leave(&n.takes, &n.actor, t.x)
	if !n.pass(t.dice.between(1, 20_000)) {
		return
	}
	m := *t.m
	m.takenAt = time.Now()
	w.trace.add(n.name, "takes "+m.id, "")
	ctx, cancel := t.x.arrive()
	defer cancel()
	a := newAnswer()
	n.handler.ServeHTTP(a, m.request(context.WithValue(ctx, askerKey{}, m.id)))
	if !n.pass(t.dice.between(1, 20_000)) {
		return
	}
	w.trace.add(n.name, "answers "+m.id, fmt.Sprint(a.status))
	w.witness.answered(n, &m, a)
	if !t.answered {
		return
	}
	rest(latency(t.dice, fine))
	t.x.settle(result{answer: a})
}

// taker is the node that a message to the server reaches; nil if there is none.
func (w *world) taker(d *dice) *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	var n *node
	if len(w.working) > 0 {
		n = w.working[0]
	}
	if len(w.working) > 1 {
		n = w.working[d.below(len(w.working))]
	}
	if w.zombie != nil && d.odds(250) {
		n = w.zombie // what lies between has not heard of the change yet
	}
	if n == nil || !n.ready {
		return nil
	}
	return n
}
