package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nelkap/nelkap/e2e/plan"
	"github.com/nelkap/nelkap/internal/id"
)

const (
	// databaseCrashes is how often Postgres is killed under load.
	databaseCrashes = 4
	// followWithin is when nodes work again with the server that is promoted (L1).
	followWithin = 10 * time.Second
	// loadFor is how long a load goes on between faults, and after the last one.
	loadFor = 3 * time.Second
)

// B3, L1: Postgres is killed under load and recovers. What was acknowledged is there, bodies of apps that live run once, all runs end.
func TestPostgresIsKilledUnderLoadAndNothingIsLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t, newPostgres(t), clusterSpec{apps: languages})
	a, stop := c.loadAll()
	for range databaseCrashes {
		pass(t.Context(), loadFor)
		if err := c.postgres.Crash(); err != nil {
			t.Fatal(err)
		}
		pass(t.Context(), loadFor)
		c.saysUnavailable()
		if err := c.postgres.Recover(); err != nil {
			t.Fatal(err)
		}
		c.serveWithin(time.Now(), "Postgres answers again")
	}
	pass(t.Context(), loadFor)
	stop()
	all := c.judgeLoad(a)
	c.judgeMarks(func(plan.Mark, plan.Mark) string { return "no app was killed" })
	t.Logf("Postgres killed %d times; %s", databaseCrashes, all)
}

// saysUnavailable checks that each node refuses to read with a sentence that tells when to come again, and nothing of the database.
func (c *cluster) saysUnavailable() {
	c.t.Helper()
	for _, n := range c.nodes {
		asked := time.Now()
		status, text := ask(c.t, http.MethodGet, "http://"+n.addr+"/v1/runs/"+id.New(id.Run), nil, http.Header{"Authorization": {"Bearer " + c.key}})
		if status != http.StatusServiceUnavailable || !strings.Contains(text, `"store_unavailable"`) || strings.Contains(text, "127.0.0.1") {
			c.t.Errorf("while Postgres is away, %s answers %d: %s", n.name, status, text)
		}
		if took := time.Since(asked); took > followWithin {
			c.t.Errorf("while Postgres is away, %s answers after %v", n.name, took)
		}
	}
}

// serveWithin waits until each node takes a run, and checks how long that took.
func (c *cluster) serveWithin(since time.Time, what string) {
	c.t.Helper()
	for _, n := range c.nodes {
		eventually(c.t, followWithin+within, n.name+" to be ready", func() bool { return healthy(c.t.Context(), n.health) })
	}
	took := time.Since(since)
	c.t.Logf("all nodes are ready %v after %s", took.Round(10*time.Millisecond), what)
	if took > followWithin {
		c.t.Errorf("all nodes are ready %v after %s, more than %v", took, what, followWithin)
	}
}

// L1: the primary dies and its synchronous standby is promoted. The nodes find it by themselves, and nothing acknowledged is lost.
func TestNodesFollowAFailoverUnderLoad(t *testing.T) {
	t.Parallel()
	primary := newPostgres(t)
	standby, err := primary.Standby()
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, standby)
	primary.Synchronous(t, "*")
	c := newCluster(t, primary, clusterSpec{apps: languages, urls: []string{primary.URLWith(standby, database)}})
	long := c.run("go", gated("gate"))
	c.began(long, "two", 1)
	a, stop := c.loadAll()
	pass(t.Context(), loadFor)
	if err := primary.Crash(); err != nil {
		t.Fatal(err)
	}
	pass(t.Context(), time.Second) // whoever promotes takes a moment to be sure
	for _, n := range c.nodes {
		if status, _ := ask(t, http.MethodGet, n.health, nil, nil); status == http.StatusOK {
			t.Errorf("%s says that it is ready while no database writes", n.name)
		}
	}
	standby.Promote(t)
	c.serveWithin(time.Now(), "the standby was promoted")
	pass(t.Context(), loadFor)
	stop()
	c.open("gate")
	a.runs = append(a.runs, long)
	all := c.judgeLoad(a)
	c.judgeMarks(func(plan.Mark, plan.Mark) string { return "no app was killed" })
	t.Log(all)
}
