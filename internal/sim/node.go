package sim

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/httpapi"
)

// schemas are those of every node of this process: making them takes longer than a simulated second.
var schemas httpapi.Schemas

// node is one process of the server, from its start to its death.
type node struct {
	actor
	engine  *engine.Engine
	handler http.Handler
	disk    *disk
	// world.mu guards what follows.
	ready     bool          // it takes requests
	offset    time.Duration // of its clock
	offsetMax time.Duration

	stop context.CancelFunc
	done chan struct{}
}

// startNode starts a node on the shared store. It has a share of the work from now on, or all of it.
func (w *world) startNode() {
	w.mu.Lock()
	w.nodes++
	n := &node{actor: newActor(w, fmt.Sprintf("node%d", w.nodes)), done: make(chan struct{})}
	w.all = append(w.all, n)
	w.working = append(w.working, n)
	w.mu.Unlock()
	n.disk = &disk{node: n, known: map[string]bool{}}
	n.engine = engine.New(n.disk, &caller{n}, engine.Options{
		Node: n.engineID(), URL: serverURL, Logger: slog.New(logHandler{node: n}), Concurrency: w.plan.concurrency, Lease: w.plan.lease, DescribeEvery: 7 * time.Second,
		RunsFor: w.plan.runsFor, SweepEvery: w.plan.sweepEvery, ForgetAfter: w.plan.forgetAfter,
		Jitter: func() float64 { return w.plan.jitter }, Clock: n.wall,
	})
	for _, s := range w.services {
		n.engine.AddApp(s.url)
	}
	n.handler = httpapi.New(httpapi.Options{Engine: n.engine, Reader: n.disk, Keys: w.keys, Schemas: &schemas})
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	w.trace.add(n.name, "starts", "")
	go n.run(ctx)
}

// engineID is the node's among those that share the store; empty where it is alone.
func (n *node) engineID() string {
	if n.world.plan.nodes > 1 {
		return n.name
	}
	return ""
}

// run is the node's life. One that can't read its store at the start ends, and whoever watches over it starts another.
func (n *node) run(ctx context.Context) {
	defer close(n.done)
	err := n.engine.Run(ctx, func() {
		n.world.disturb()
		n.world.mu.Lock()
		defer n.world.mu.Unlock()
		n.ready = true
	})
	if err != nil && n.runs() && !n.world.isOver() {
		n.world.crash(n, false, 200*time.Millisecond)
	}
}

// wall is the node's clock on the wall.
func (n *node) wall() time.Time {
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	return time.Now().Add(n.offset)
}

// step steps the node's clock.
func (n *node) step(by time.Duration) {
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	n.offset += by
	n.world.stepped = true
	n.offsetMax = max(n.offsetMax, n.offset)
	n.world.offsetMax = max(n.world.offsetMax, n.offset)
}

// latest is the latest that the node's clock may have said until now.
func (n *node) latest() time.Time {
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	return time.Now().Add(n.offsetMax)
}
