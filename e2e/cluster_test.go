package e2e

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nelkap/nelkap/e2e/plan"
	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/postgres"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
	"github.com/nelkap/nelkap/internal/workflow"
)

const (
	nodeCount = 3
	// goOnWithin is when what a lost node had begun, or would have done, goes on at another: with the default intervals, however long the
	// lease is (C1, C2).
	goOnWithin = 25 * time.Second
	database   = "postgres"
)

// cluster is a world of several nodes on one Postgres behind a balancer, whose address is the world's.
type cluster struct {
	*world
	postgres *pgtest.Server
	store    store.Reader // of the test's own, beside the nodes
	nodes    []*clusterNode
	spare    []string // runs that a test has begun beside those that it is about
}

// clusterNode is one node.
type clusterNode struct {
	*process
	addr string
}

// clusterSpec says what a cluster is made of.
type clusterSpec struct {
	apps  []string
	flags []string
	// urls are the databases' URLs that the nodes are given, one each or one for all; nil for Postgres's own.
	urls []string
}

// newPostgres starts a Postgres of the test's own.
func newPostgres(t *testing.T) *pgtest.Server {
	t.Helper()
	s, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, s)
	return s
}

func stopAfter(t *testing.T, s *pgtest.Server) {
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// newCluster makes a cluster with apps, and starts everything.
func newCluster(t *testing.T, s *pgtest.Server, spec clusterSpec) *cluster {
	t.Helper()
	c := &cluster{world: newWorld(t), postgres: s}
	if spec.urls == nil {
		spec.urls = []string{s.URL(database)}
	}
	flags := spec.flags
	for _, language := range spec.apps {
		addr := freeAddress(t)
		c.app(language, addr, append(keyed(oldKey, ""), "NELKAP_URL="+c.url)...).start()
		flags = append(flags, "--app", appURL(addr))
	}
	var addrs []string
	for i := range nodeCount {
		n := &clusterNode{addr: freeAddress(t)}
		n.process = &process{
			t: t, name: fmt.Sprintf("node %d", i+1), path: built.server, health: "http://" + n.addr + "/readyz",
			args: append([]string{"serve", "--addr", n.addr, "--store", spec.urls[i%len(spec.urls)]}, flags...),
			env:  []string{"NELKAP_SIGNING_KEY=" + oldKey, "NELKAP_API_KEY=" + apiKey, "NELKAP_URL=" + c.url},
		}
		n.tidy()
		c.nodes, addrs, c.servers = append(c.nodes, n), append(addrs, n.addr), append(c.servers, n.process)
	}
	c.connect(apiKey)
	newBalancer(t, c.addr, addrs)
	for _, n := range c.nodes {
		n.launch()
	}
	for _, n := range c.nodes {
		n.answers()
	}
	s2, err := postgres.Open(t.Context(), spec.urls[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s2.Close() })
	c.store = s2
	for _, language := range spec.apps {
		c.ready(language)
	}
	c.settled()
	return c
}

// settled waits until each node has its share of the work.
func (c *cluster) settled() {
	c.t.Helper()
	eventually(c.t, within, "all nodes to be known", func() bool {
		known, err := c.store.Nodes(c.t.Context())
		return err == nil && len(known) >= nodeCount
	})
	pass(c.t.Context(), settledAfter)
}

// settledAfter is how long a node that joins takes no work.
const settledAfter = 5 * time.Second

var nodeID = regexp.MustCompile(`node_[0-9A-Za-z]+`)

// id is the name that a node gave itself when it was last started.
func (n *clusterNode) id() string {
	found := nodeID.FindAll(n.linesWith("ready"), -1)
	if len(found) == 0 {
		n.t.Fatalf("%s has not said who it is:\n%s", n.name, n.lastWords())
	}
	return string(found[len(found)-1])
}

// named finds a node by its name; nil if none that runs has it.
func (c *cluster) named(id string) *clusterNode {
	i := slices.IndexFunc(c.nodes, func(n *clusterNode) bool { return n.command != nil && n.id() == id })
	if i < 0 {
		return nil
	}
	return c.nodes[i]
}

// record reads a run's own record.
func (c *cluster) record(runID string) workflow.Run {
	c.t.Helper()
	run, _, err := c.store.Load(c.t.Context(), runID)
	if err != nil {
		c.t.Fatalf("reading %s: %v", runID, err)
	}
	return run
}

// holder waits until a run has a call, and finds the node that holds it.
func (c *cluster) holder(runID string) *clusterNode {
	c.t.Helper()
	var n *clusterNode
	eventually(c.t, within, "a node to hold the call of "+runID, func() bool {
		call := c.record(runID).Call
		if call == nil {
			return false
		}
		n = c.named(call.Node)
		return n != nil
	})
	return n
}

// oldest is the node that does what one alone should do.
func (c *cluster) oldest() *clusterNode {
	return slices.MinFunc(c.nodes, func(a, b *clusterNode) int { return strings.Compare(a.id(), b.id()) })
}

// movedFrom waits until a run's call is held by another node, and tells how long that took.
func (c *cluster) movedFrom(runID string, n string, since time.Time) time.Duration {
	c.t.Helper()
	eventually(c.t, goOnWithin-time.Since(since), "another node to hold the call of "+runID, func() bool {
		call := c.record(runID).Call
		return call != nil && call.Node != n
	})
	return time.Since(since)
}

// at is a client of one node, past the balancer.
func (c *cluster) at(n *clusterNode) *client.Client {
	c.t.Helper()
	api, err := client.New(client.Options{URL: "http://" + n.addr, Key: c.key})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(api.Close)
	return api
}

// atEach does something at every node, several times at once, and fails the test when one does.
func (c *cluster) atEach(times int, do func(api *client.Client) error) {
	c.t.Helper()
	apis := map[*clusterNode]*client.Client{}
	for _, n := range c.nodes {
		apis[n] = c.at(n)
	}
	c.atEachNode(times, func(n *clusterNode) error { return do(apis[n]) })
}

// atEachNode is atEach for what the API's client does not do.
func (c *cluster) atEachNode(times int, do func(n *clusterNode) error) {
	c.t.Helper()
	var group sync.WaitGroup
	begin := make(chan struct{})
	for _, n := range c.nodes {
		for range times {
			group.Go(func() {
				<-begin
				if err := do(n); err != nil {
					c.t.Errorf("%s: %v", n.name, err)
				}
			})
		}
	}
	close(begin)
	group.Wait()
}

// runsOf lists the runs that have ended or not and fit.
func (c *cluster) runsOf(fits func(apitype.Run) bool) []apitype.Run {
	c.t.Helper()
	var found []apitype.Run
	query := client.RunQuery{Page: client.Page{Limit: 100}}
	for {
		list, err := c.api.Runs(c.t.Context(), query)
		if err != nil {
			c.t.Fatalf("listing runs: %v", err)
		}
		for _, run := range list.Data {
			if fits(run) {
				found = append(found, run)
			}
		}
		if list.NextCursor == nil {
			return found
		}
		query.Cursor = *list.NextCursor
	}
}

// said are the lines of all servers' logs that have a text.
func (w *world) said(text string) []byte {
	var all []byte
	for _, p := range w.servers {
		if lines := p.linesWith(text); len(lines) > 0 && len(w.servers) > 1 {
			all = fmt.Appendf(all, "%s:\n%s", p.name, lines)
		} else {
			all = append(all, lines...)
		}
	}
	return bytes.TrimRight(all, "\n")
}

// gated is a run of three steps, the second of which waits for a gate of its own.
func gated(gate string) plan.Plan {
	return plan.Plan{Steps: []plan.Step{{Name: "one"}, {Name: "two", Gate: gate}, {Name: "three"}}}
}
