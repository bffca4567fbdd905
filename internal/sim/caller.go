package sim

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/wire"
)

// describeTime is how long a describe may take, as in internal/call.
const describeTime = 10 * time.Second

// caller carries a node's calls to apps. It gives the outcomes that internal/call would: whether a request was provably never sent,
// and what an answer is, are told apart as there.
type caller struct{ node *node }

var _ interface {
	Do(ctx context.Context, request call.Request) call.Outcome
	Describe(ctx context.Context, target call.Target) (*wire.Manifest, call.Outcome)
	Verify(ctx context.Context, target call.Target, message wire.Verify) (*wire.Verified, call.Outcome)
} = (*caller)(nil)

// Do implements engine.Caller.
func (c *caller) Do(ctx context.Context, r call.Request) call.Outcome {
	w := c.node.world
	m := &message{from: &c.node.actor, kind: "call", call: r.ID, method: http.MethodPost, url: r.Target.URL, body: marked(r)}
	m.id, m.dice = w.name(c.node.name + " call " + r.ID)
	w.witness.called(c.node, r.ID, m.body)
	defer w.witness.calling(c.node, r)()
	c.sign(m, r.ID)
	return c.send(ctx, m, r)
}

// Describe implements engine.Caller.
func (c *caller) Describe(ctx context.Context, t call.Target) (*wire.Manifest, call.Outcome) {
	w := c.node.world
	ctx, cancel := context.WithTimeout(ctx, describeTime)
	defer cancel()
	m := &message{from: &c.node.actor, kind: "describe", method: http.MethodPost, url: t.URL, body: []byte(`{"type":"describe"}`)}
	m.id, m.dice = w.name(c.node.name + " describe " + t.URL)
	c.sign(m, m.id)
	o := c.send(ctx, m, call.Request{SendBefore: time.Now().Add(call.SendWithin)})
	if o.Kind == call.Ended && ctx.Err() != nil {
		o.Kind = call.Silent
	}
	if o.Kind != call.Answered {
		return nil, o
	}
	manifest := &wire.Manifest{}
	if err := wire.Decode(o.Body, manifest); err != nil {
		return nil, call.Outcome{Kind: call.Unusable, Reason: err.Error()}
	}
	return manifest, o
}

// Verify implements engine.Caller. No simulated client asks for it.
func (c *caller) Verify(context.Context, call.Target, wire.Verify) (*wire.Verified, call.Outcome) {
	return nil, call.Outcome{Kind: call.NotSent}
}

func (c *caller) sign(m *message, id string) {
	m.header = http.Header{"Content-Type": {wire.ContentType}, wire.HeaderProtocol: {strconv.Itoa(wire.Version)}}
	c.node.world.signing.Sign(m.header, id, c.node.wall(), m.body)
}

// marked is the request's body with the call's id in the run's payload, which is an object here: by it the code knows which call
// plays it.
func marked(r call.Request) []byte {
	const at = `"payload":{`
	before, after, found := bytes.Cut(r.Body, []byte(at))
	if !found {
		return r.Body
	}
	comma := ","
	if after[0] == '}' {
		comma = ""
	}
	return bytes.Join([][]byte{before, []byte(at + `"call":"` + r.ID + `"` + comma), after}, nil)
}

// send carries m to the app's process, and tells what came of it.
func (c *caller) send(ctx context.Context, m *message, r call.Request) call.Outcome {
	w, n := c.node.world, c.node
	if !n.pass(m.dice.between(1, 20_000)) {
		return call.Outcome{Kind: call.Ended, Err: errReset}
	}
	p := w.processAt(m.url)
	connects := n.pass(m.dice.between(20*time.Microsecond, time.Millisecond))
	switch {
	case !connects:
		return call.Outcome{Kind: call.Ended, Err: errReset}
	case ctx.Err() != nil:
		return call.Outcome{Kind: call.NotSent, Reason: "the call was stopped before it was sent", Err: ctx.Err()}
	case p == nil || p.isDead() || w.parted(&p.actor) && m.dice.odds(500):
		return call.Outcome{Kind: call.NotSent, Reason: "nothing listens there", Err: errRefused}
	case time.Now().After(r.SendBefore):
		return call.Outcome{Kind: call.NotSent, Reason: "it is too late to send", Err: errRefused}
	}
	if r.Sent != nil {
		r.Sent()
	}
	f := w.fateOf(m)
	if w.parted(&p.actor) {
		f = lostRequest
	}
	w.trace.add(n.name, "sends "+m.id, fateNames[f])
	x := newExchange(m.dice.split())
	enter(&n.sends, &n.actor, x)
	defer leave(&n.sends, &n.actor, x)
	enter(&p.takes, &p.actor, x)
	defer leave(&p.takes, &p.actor, x)
	o := c.await(ctx, x, w.carryCall(m, x, f, p))
	if !n.pass(m.dice.between(1, 20_000)) {
		return call.Outcome{Kind: call.Ended, Err: errReset}
	}
	w.trace.add(n.name, "gets for "+m.id, o.Kind.String()+" "+o.Code)
	return o
}

func (c *caller) await(ctx context.Context, x *exchange, hangs time.Duration) call.Outcome {
	select {
	case r := <-x.out:
		if r.err != nil {
			return call.Outcome{Kind: call.Lost, Reason: "the connection closed before the app answered", Err: r.err}
		}
		c.node.world.witness.hasUnsaved(r.answer)
		return outcomeOf(r.answer)
	case <-ctx.Done():
		time.AfterFunc(hangs, x.hangUp)
		return call.Outcome{Kind: call.Ended, Err: ctx.Err()}
	case <-c.node.died:
		<-c.node.world.over
		return call.Outcome{Kind: call.Ended, Err: errReset}
	}
}

// carryCall sends m on its way to a process. It gives how long a hang-up takes to get there.
func (w *world) carryCall(m *message, x *exchange, f fate, p *process) time.Duration {
	breaks := m.dice.between(100*time.Microsecond, 40*time.Millisecond)
	if m.dice.odds(300) {
		breaks = m.dice.between(time.Millisecond, 8*time.Second)
	}
	silent := m.dice.odds(300)
	trip := delivery{m: m, x: x, dice: m.dice.split(), fate: f}
	trip.after = latency(trip.dice, f)
	trip.answered = f == fine || f == slow || f == twice
	if f == late {
		trip.after = breaks + trip.dice.between(time.Millisecond, 12*time.Second)
	}
	if f != lostRequest && f != proxyBefore {
		go p.take(trip)
	}
	if f == twice {
		again := *m
		again.id += " again"
		second := delivery{m: &again, x: newExchange(m.dice.split()), dice: m.dice.split()}
		second.after = second.dice.between(time.Millisecond, 9*time.Second)
		go w.takeLater(second)
	}
	if f == cut && m.dice.odds(800) { // else the app is not told
		time.AfterFunc(breaks+m.dice.between(0, 20*time.Microsecond), x.hangUp)
	}
	switch {
	case f == proxyBefore || f == proxyAfter:
		status := []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusNotFound}[m.dice.below(4)]
		if status == http.StatusNotFound && f == proxyAfter {
			status = http.StatusGatewayTimeout // what answers 404 has not passed it on
		}
		time.AfterFunc(breaks, func() { x.settle(result{answer: proxied(status)}) })
	case f == late || f == cut || (f == lostRequest || f == lostAnswer) && !silent:
		time.AfterFunc(breaks, func() { x.settle(result{err: errReset}) })
	}
	return m.dice.between(time.Microsecond, time.Millisecond)
}

// takeLater delivers a message's double to whichever process is there by then.
func (w *world) takeLater(t delivery) {
	rest(t.after)
	if p := w.processAt(t.m.url); p != nil {
		w.witness.doubles(t.m.call)
		t.after = t.dice.between(1, 1000)
		p.take(t)
	}
}

// outcomeOf sorts an answer as internal/call does.
func outcomeOf(a *answer) call.Outcome {
	o := call.Outcome{Status: a.status, SDK: a.header.Get(wire.HeaderSDK), Reason: fmt.Sprintf("answered %d", a.status)}
	kind := a.header.Get("Content-Type")
	switch {
	case o.SDK != "" && a.status == http.StatusOK && kind == wire.ContentType:
		o.Kind, o.Body, o.Reason = call.Answered, a.body.Bytes(), ""
	case o.SDK != "" && a.status >= 400 && kind == "application/problem+json":
		var p struct {
			Code   string `json:"code"`
			Detail string `json:"detail"`
		}
		if err := wire.Decode(a.body.Bytes(), &p); err != nil {
			o.Kind = call.Unusable
			return o
		}
		o.Kind, o.Code, o.Detail = call.Refused, p.Code, p.Detail
		if a.status >= 500 && p.Code != call.CodeStopping {
			o.Kind, o.Code = call.Silent, ""
		}
	case a.status == http.StatusBadGateway || a.status == http.StatusServiceUnavailable:
		o.Kind = call.Lost
	case a.status >= 500:
		o.Kind = call.Silent
	default:
		o.Kind = call.Unusable
	}
	return o
}
