package engine_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
)

// rename has the app say another name.
func (a *app) rename(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.manifest.App = name
}

// D1: what an address served under the name before goes like a workflow that its app lacks, after ten minutes or by a sync. Runs of it that
// live are played on.
func TestARenamedAppStartsAnEventsWorkflowOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Event: "e"}, {Schedule: "0 0 1 1 *"}}})
		n, s := startApp(t, a, engine.Options{ForgetAfter: 10 * time.Minute})
		before := n.start(t, "w")
		a.next(t, time.Second).lose()
		runs := func() int { return n.emit(t, engine.NewEvent{Name: "e"})[0].Event.Runs }
		apps := func() (names []string) {
			list, err := s.Schedules(context.Background(), store.ScheduleQuery{Env: engine.DefaultEnv, Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range list {
				names = append(names, one.App)
			}
			return names
		}
		a.rename("shop")
		want(t, "the run of the name before", a.next(t, time.Minute).Run.ID, before.Run.ID)
		time.Sleep(9 * time.Minute)
		want(t, "while the deploy may still go on", runs(), 2)
		time.Sleep(2 * time.Minute)
		want(t, "when it is over", runs(), 1)
		want(t, "schedules", apps(), []string{"shop"})

		a.rename("store")
		n.know(t) // a sync
		want(t, "after a sync", runs(), 1)
		want(t, "schedules", apps(), []string{"store"})
	})
}

// D1: whichever node is asked after a sync starts nothing under the name before, and the nodes agree from then on.
func TestANameBeforeIsForgottenByEveryNodeWhenASyncIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, 3, engine.Options{})
		c.app.deploy("h2", wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Event: "e"}}})
		c.nodes[0].know(t)
		c.app.rename("shop")
		c.nodes[0].know(t)
		for _, n := range c.nodes {
			want(t, "runs that the event starts", n.emit(t, engine.NewEvent{Name: "e"})[0].Event.Runs, 1)
		}
		versions := func() map[string]int64 {
			list, err := c.store.Apps(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			at := map[string]int64{}
			for _, one := range list {
				at[one.Name] = one.Version
			}
			return at
		}
		before := versions()
		time.Sleep(time.Hour)
		want(t, "what is stored an hour later", versions(), before)
	})
}

// D1: the report says to give one of two apps another name. Whichever it is, the other has its own then.
func TestANameThatIsGivenUpIsFreeForAnotherApp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, second := newApp(wire.Workflow{Name: "one"}), newApp(wire.Workflow{Name: "two"})
		second.deploy("h2", wire.Workflow{Name: "two"})
		said := make(chan string, 100)
		n := startNode(t, memory.New(), street{named: first, public: second}, engine.Options{
			DescribeEvery: time.Second, Logger: slog.New(slog.NewTextHandler(lines(said), nil)),
		})
		n.AddApp(named)
		time.Sleep(2 * time.Second)
		n.AddApp(public)
		time.Sleep(time.Minute)
		synctest.Wait()
		want(t, "what was said in a minute", len(said), 2) // the one is ready, the other can't be used
		first.rename("shop")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		at := map[string]string{}
		for _, one := range n.Apps(engine.DefaultEnv) {
			at[one.Name] = one.URL + one.Reason
		}
		want(t, "apps", at, map[string]string{"shop": named, "app": public})
	})
}

// D1: two apps of one name are reported, also where the one that has lost it had it before.
func TestAnAppWhoseNameAnotherHasTakenIsListed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, second := newApp(wire.Workflow{Name: "one"}), newApp(wire.Workflow{Name: "two"})
		second.deploy("h2", wire.Workflow{Name: "two"})
		n := startNode(t, memory.New(), street{named: first, public: second}, engine.Options{DescribeEvery: time.Second})
		n.AddApp(named)
		time.Sleep(2 * time.Second)
		if _, err := n.PutApp(t.Context(), engine.DefaultEnv, engine.AppRequest{URL: public}, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		list := n.Apps(engine.DefaultEnv)
		if len(list) != 2 || list[0].URL != public || list[0].Reason != "" || list[1].URL != named {
			t.Fatalf("apps: %+v", list)
		}
		want(t, "why", list[1].Reason, `two apps are named "app": `+public+" and "+named+" serve different workflows; give one of them another name")
	})
}
