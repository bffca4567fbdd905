package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"io"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
)

// app is a scripted app: every call waits until the test says what becomes of it.
type app struct {
	manifest wire.Manifest
	calls    chan *sentCall

	mu      sync.Mutex
	failing *call.Outcome // what every request gets instead
	looked  int
	sent    map[string]int
	verify  func(wire.Verify) *wire.Verified
	slow    func() // called when it has said what it is, before that arrives; nil: nothing is
}

// sentCall is a call that reached the app.
type sentCall struct {
	wire.Call
	nonce  string // that the test saved with last
	ctx    context.Context
	answer chan call.Outcome
}

func newApp(workflows ...wire.Workflow) *app {
	return &app{manifest: wire.Manifest{App: "app", Protocol: 1, Hash: "h1", Workflows: workflows}, calls: make(chan *sentCall, 1000), sent: map[string]int{}}
}

func (a *app) Describe(context.Context, call.Target) (*wire.Manifest, call.Outcome) {
	a.mu.Lock()
	m, failing, slow := a.manifest, a.failing, a.slow
	a.looked++
	a.mu.Unlock()
	if failing != nil {
		return nil, *failing
	}
	if slow != nil {
		slow()
	}
	return &m, call.Outcome{Kind: call.Answered}
}

// Verify plays what the test has set.
func (a *app) Verify(_ context.Context, _ call.Target, m wire.Verify) (*wire.Verified, call.Outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.verify == nil {
		return nil, call.Outcome{Kind: call.Unusable, Reason: "it can't verify"}
	}
	return a.verify(m), call.Outcome{Kind: call.Answered}
}

func (a *app) Do(ctx context.Context, r call.Request) call.Outcome {
	a.mu.Lock()
	failing := a.failing
	a.sent[r.ID]++
	a.mu.Unlock()
	if failing != nil {
		return *failing
	}
	r.Sent()
	c := &sentCall{ctx: ctx, answer: make(chan call.Outcome, 1)}
	if err := wire.Decode(r.Body, &c.Call); err != nil {
		return call.Outcome{Kind: call.Unusable, Reason: err.Error()}
	}
	a.calls <- c
	select {
	case o := <-c.answer:
		return o
	case <-ctx.Done():
		return call.Outcome{Kind: call.Ended, Err: ctx.Err()}
	}
}

// looks is how often the app was described.
func (a *app) looks() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.looked
}

func (a *app) fail(o *call.Outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failing = o
}

// end answers the call.
func (c *sentCall) end(t testing.TB, end wire.End) {
	t.Helper()
	end.Nonce = c.nonce
	body, err := wire.Encode(end)
	if err != nil {
		t.Fatal(err)
	}
	c.answer <- call.Outcome{Kind: call.Answered, Body: body}
}

// lose breaks the call's connection.
func (c *sentCall) lose() { c.answer <- call.Outcome{Kind: call.Lost, Err: io.EOF} }

func (c *sentCall) fence(nonce string) wire.Fence {
	return wire.Fence{Call: c.Call.Call.ID, Token: c.Call.Call.Token, Nonce: nonce}
}

// node is an engine that runs.
type node struct {
	*engine.Engine
	stop func()
}

func startNode(t testing.TB, s store.Store, a engine.Caller, o engine.Options) *node {
	t.Helper()
	if o.Jitter == nil {
		o.Jitter = func() float64 { return 0.5 }
	}
	o.URL = "http://127.0.0.1:6355"
	e := engine.New(s, a, o)
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- e.Run(ctx, func() { close(ready) }) }()
	<-ready
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the engine ended: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return &node{Engine: e, stop: stop}
}

// startApp is a node on an empty model store that knows the app.
func startApp(t testing.TB, a *app, o engine.Options) (*node, store.Store) {
	t.Helper()
	s := memory.New()
	n := startNode(t, s, a, o)
	n.know(t)
	return n, s
}

func (n *node) know(t testing.TB) {
	t.Helper()
	if _, err := n.PutApp(context.Background(), engine.DefaultEnv, engine.AppRequest{URL: "http://127.0.0.1:3000"}, true); err != nil {
		t.Fatal(err)
	}
}

func (n *node) start(t testing.TB, workflow string) engine.Started {
	t.Helper()
	s, err := n.StartRun(context.Background(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: workflow, Payload: jsontext.Value(`null`)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (n *node) run(t testing.TB, id string) store.RunRecord {
	t.Helper()
	r, err := n.RunRecord(context.Background(), engine.DefaultEnv, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// next waits for the app's next call, at most d.
func (a *app) next(t testing.TB, d time.Duration) *sentCall {
	t.Helper()
	select {
	case c := <-a.calls:
		return c
	case <-time.After(d):
		t.Fatalf("no call within %v", d)
		return nil
	}
}

// none checks that no call comes within d.
func (a *app) none(t testing.TB, d time.Duration) {
	t.Helper()
	select {
	case c := <-a.calls:
		t.Fatalf("a call of run %s, epoch %d, that should not be", c.Run.ID, c.Call.Call.Epoch)
	case <-time.After(d):
	}
}

func completed(name string, output string) wire.Item {
	return wire.Item{Op: wire.OpCompleted, Kind: "run", Name: name, Number: 1, Attempt: 1, Output: jsontext.Value(output)}
}

func (n *node) save(c *sentCall, nonce string, seen int64, items ...wire.Item) wire.SaveOutcome {
	c.nonce = nonce
	return n.Save(context.Background(), wire.Saves{Process: "process", Saves: []wire.Save{{Fence: c.fence(nonce), Seen: seen, Items: items}}}).Saves[0]
}

func want(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}
