package e2e

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/nelkap/nelkap/e2e/plan"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/id"
)

const (
	// databaseCrashes is how often Postgres is killed under load.
	databaseCrashes = 4
	// followWithin is when nodes work again with the server that is promoted (L1).
	followWithin = 10 * time.Second
	// outage is shorter than an app waits until it carries in its answer what it can't save (C11): two thirds of the lease.
	outage = 2400 * time.Millisecond
	// outageFrom is how long before the first lease ends an outage begins.
	outageFrom = 1500 * time.Millisecond
	// outagesMax is how many outages are tried until one is met as it should be.
	outagesMax = 3
	// outageRuns is how many runs of each app meet an outage.
	outageRuns = 5
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
		c.serveWithin(a, time.Now(), "Postgres answers again")
	}
	pass(t.Context(), loadFor)
	stop()
	all := c.judgeLoad(a)
	c.judgeMarks(func(plan.Mark, plan.Mark) string { return "no app was killed" })
	t.Logf("Postgres killed %d times; %s", databaseCrashes, all)
}

// N3: a person who has changed a run by hand, and left the transaction open, holds up that run alone, on whichever node: the others end
// meanwhile, and it goes on once the lock is gone, with no body twice.
func TestARunThatAPersonHasLockedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t, newPostgres(t), clusterSpec{apps: languages})
	var locked []string
	for _, language := range languages {
		locked = append(locked, c.run(language, gated("lock")))
	}
	for _, id := range locked {
		c.began(id, "two", 1)
	}
	person, err := pgx.Connect(t.Context(), c.postgres.URL(database))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close(context.Background()) })
	execute := func(statement string, arguments ...any) {
		t.Helper()
		if _, err := person.Exec(t.Context(), statement, arguments...); err != nil {
			t.Fatal(err)
		}
	}
	execute("BEGIN")
	for _, id := range locked {
		execute("UPDATE runs SET reason = reason WHERE id = $1", []byte(id))
	}
	c.open("lock")
	for range 2 { // the second time it is known
		var ids []string
		for range manyRuns / 3 {
			for _, language := range languages {
				ids = append(ids, c.run(language, plan.Plan{Repeat: 3}))
			}
		}
		for _, id := range ids {
			c.completed(id, within)
		}
	}
	if said := c.said("another session of the database has locked the row"); len(said) == 0 {
		t.Error("no log says what holds the runs up")
	}
	execute("ROLLBACK")
	for _, id := range locked {
		c.completed(id, within)
		c.bodies(id, map[string]int{"one": 1, "two": 1, "three": 1})
	}
}

// C2: an app is frozen when its call comes, wakes while Postgres is away, and can tell nobody until that is over. By then the lease has
// ended; the time of the outage does not count, and the body that it has begun is not repeated.
func TestAnOutageOfPostgresCostsNoLease(t *testing.T) {
	t.Parallel()
	c := newCluster(t, newPostgres(t), clusterSpec{apps: languages, flags: []string{"--lease", shortLease.String()}})
	// A call that is five seconds old when its app comes to it waits for the server before it runs a body (C4). On a busy machine some may
	// be, and then they show nothing: it is done again.
	for range outagesMax {
		if c.meetOutage() {
			return
		}
	}
	t.Fatalf("in %d outages never did all bodies begin before the end: the machine is too busy", outagesMax)
}

// meetOutage has calls whose leases end in an outage, and whose bodies begin in it, and checks that each runs once; false where not all
// leases ended, or not all bodies began.
func (c *cluster) meetOutage() (met bool) {
	c.t.Helper()
	ids, first, last := c.calledFrozen()
	pass(c.t.Context(), time.Until(first.Add(shortLease-outageFrom)))
	if err := c.postgres.Crash(); err != nil {
		c.t.Fatal(err)
	}
	c.wakeApps()
	back := time.Now().Add(outage)
	met = holds(c.t.Context(), outage, func() bool { return c.haveBegun(ids) == len(ids) }) && last.Add(shortLease).Before(back)
	pass(c.t.Context(), time.Until(back))
	if err := c.postgres.Recover(); err != nil {
		c.t.Fatal(err)
	}
	for _, id := range ids {
		c.completed(id, goOnWithin)
		c.bodies(id, map[string]int{"one": 1, "two": 1})
		c.results(id)
	}
	return met
}

// haveBegun counts the runs whose first body has begun.
func (c *cluster) haveBegun(ids []string) (n int) {
	for _, m := range c.marks() {
		if m.Kind == plan.MarkBody && m.Step == "one" && slices.Contains(ids, m.Run) {
			n++
		}
	}
	return n
}

// calledFrozen freezes the apps and has runs of them called, none before first, none after last.
func (c *cluster) calledFrozen() (ids []string, first, last time.Time) {
	c.t.Helper()
	for _, language := range languages {
		c.apps[language].signal(syscall.SIGSTOP)
	}
	first = time.Now()
	for range outageRuns {
		for _, language := range languages {
			ids = append(ids, c.run(language, plan.Plan{Steps: []plan.Step{{Name: "one"}, {Name: "two"}}}))
		}
	}
	for _, id := range ids {
		c.holder(id)
	}
	return ids, first, time.Now()
}

func (c *cluster) wakeApps() {
	for _, language := range languages {
		c.apps[language].signal(syscall.SIGCONT)
	}
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

// serveWithin waits until each node has taken a run, and checks how long that took.
func (c *cluster) serveWithin(a *acked, since time.Time, what string) {
	c.t.Helper()
	for _, n := range c.nodes {
		api := c.at(n)
		request := client.StartRun{Workflow: plan.Planned, App: languages[0], ID: id.New(id.Run), Payload: asJSON(c.t, loadPlans[0])}
		eventually(c.t, followWithin+within, n.name+" to take a run", func() bool {
			_, err := api.StartRun(c.t.Context(), request)
			return err == nil
		})
		a.mu.Lock()
		a.runs = append(a.runs, request.ID)
		a.mu.Unlock()
	}
	took := time.Since(since)
	c.t.Logf("all nodes take runs %v after %s", took.Round(10*time.Millisecond), what)
	if took > followWithin {
		c.t.Errorf("all nodes take runs %v after %s, more than %v", took, what, followWithin)
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
	c.serveWithin(a, time.Now(), "the standby was promoted")
	pass(t.Context(), loadFor)
	stop()
	c.open("gate")
	a.runs = append(a.runs, long)
	all := c.judgeLoad(a)
	c.judgeMarks(func(plan.Mark, plan.Mark) string { return "no app was killed" })
	t.Log(all)
}
