package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
)

// D1: a rolling deploy may take longer than a workflow's ten minutes. Each look finds another replica, and what either has stays.
func TestOldAndNewReplicasThatAnswerInTurnLoseNoEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		listens := func(name string) []wire.Workflow {
			return []wire.Workflow{{Name: name, Triggers: []wire.Trigger{{Event: "e"}}}}
		}
		a := newApp(listens("old")...)
		n, _ := startApp(t, a, engine.Options{ForgetAfter: 10 * time.Minute})
		a.deploy("new", listens("new")...)
		time.Sleep(11 * time.Second)
		for i := range 90 { // each 20 s, which is two looks
			if i%2 == 0 {
				a.deploy("old", listens("old")...)
			} else {
				a.deploy("new", listens("new")...)
			}
			time.Sleep(20 * time.Second)
			synctest.Wait() // what was found is taken over
			if runs := n.emit(t, engine.NewEvent{Name: "e"})[0].Event.Runs; runs != 2 {
				t.Fatalf("after %d turns an event starts %d runs, want one of each version", i+1, runs)
			}
		}
		a.deploy("new", listens("new")...)
		time.Sleep(11 * time.Minute)
		want(t, "once the deploy is over: runs", n.emit(t, engine.NewEvent{Name: "e"})[0].Event.Runs, 1)
	})
}

func TestADeployIsNoticedByTheNextAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{DescribeEvery: time.Hour})
		n.start(t, "w")
		c := a.next(t, time.Second)
		a.deploy("h2", wire.Workflow{Name: "w"}, wire.Workflow{Name: "new"})
		c.end(t, wire.End{Type: wire.Completed, Manifest: "h2"})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, err := n.StartRun(context.Background(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: "new"}); err != nil {
			t.Errorf("D1: %v", err)
		}
	})
}

// D1, N2: nodes that take an app's word at once keep what each was told of it.
func TestANodeThatDescribesAnAppKeepsWhatAnotherWasToldOfIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, 2, engine.Options{})
		var once sync.Once
		told := func(changes []store.Change) {
			if _, puts := changes[0][0].(store.PutApp); puts {
				once.Do(func() { // the other node commits first
					request := engine.AppRequest{URL: "http://127.0.0.1:3000", Concurrency: 7}
					if _, err := c.nodes[1].PutApp(context.Background(), engine.DefaultEnv, request, true); err != nil {
						t.Error(err)
					}
				})
			}
		}
		c.ways[0].before.Store(&told)
		c.app.deploy("h2", wire.Workflow{Name: "w"}, wire.Workflow{Name: "new"})
		if _, err := c.nodes[0].PutApp(context.Background(), engine.DefaultEnv, engine.AppRequest{URL: "http://127.0.0.1:3000"}, true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		for i, n := range c.nodes {
			app := n.Apps(engine.DefaultEnv)[0]
			if app.Concurrency != 7 || len(app.Workflows) != 2 || app.Reason != "" {
				t.Errorf("node %d has %+v", i, app)
			}
		}
	})
}
