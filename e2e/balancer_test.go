package e2e

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	// balanceEvery is the pause between looks at the nodes.
	balanceEvery = 250 * time.Millisecond
	// balanceWithin is how long a node may take to say that it is ready.
	balanceWithin = 500 * time.Millisecond
)

// balancer stands before the nodes as a load balancer does: each request goes to the next of those that are ready. It never sends a request
// twice; only where a node takes no connection, so that nothing was sent, the next one gets it. An answer that does not come ends the
// client's connection.
type balancer struct {
	addr  string
	nodes []string // host:port
	http  *http.Transport

	mu    sync.Mutex
	ready []string // guarded by mu
	turn  int      // guarded by mu
}

// newBalancer makes and starts a balancer; it goes with the test.
func newBalancer(t *testing.T, addr string, nodes []string) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	// Each request has a connection of its own: on a kept one, a transport sends what may be sent twice a second time by itself.
	b := &balancer{addr: addr, nodes: nodes, http: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: &httputil.ReverseProxy{
		Transport: b,
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.Host = "http", r.In.Host },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if errors.Is(err, errNoNode) {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			panic(http.ErrAbortHandler)
		},
	}}
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { server.Serve(listener) }) // ends with Close
	for _, node := range nodes {
		group.Go(func() { b.watch(ctx, node) })
	}
	t.Cleanup(func() {
		stop()
		server.Close()
		group.Wait()
	})
	return b
}

// watch looks whether a node is ready.
func (b *balancer) watch(ctx context.Context, node string) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, balanceWithin)
		ready := healthy(limited, "http://"+node+"/readyz")
		cancel()
		b.mark(node, ready)
		pass(ctx, balanceEvery)
	}
}

func (b *balancer) mark(node string, ready bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	others := slices.DeleteFunc(slices.Clone(b.ready), func(n string) bool { return n == node })
	if ready {
		others = append(others, node)
		slices.Sort(others)
	}
	b.ready = others
}

// order is the nodes that are ready, beginning with the one whose turn it is.
func (b *balancer) order() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ready) == 0 {
		return nil
	}
	b.turn++
	first := b.turn % len(b.ready)
	return slices.Concat(b.ready[first:], b.ready[:first])
}

var errNoNode = errors.New("no node is ready")

// RoundTrip implements http.RoundTripper.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	for _, node := range b.order() {
		r.URL.Host = node
		answer, err := b.http.RoundTrip(r)
		var op *net.OpError
		if err == nil || !errors.As(err, &op) || op.Op != "dial" || r.Context().Err() != nil {
			return answer, err
		}
		b.mark(node, false)
	}
	return nil, errNoNode
}
