package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

func allRuns(t testing.TB, s store.Reader) []string {
	t.Helper()
	list, err := s.Runs(context.Background(), store.RunQuery{Env: engine.DefaultEnv, Limit: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range list {
		ids = append(ids, r.ID)
	}
	return ids
}

func (a *app) sends() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.sent)
}

func (n *node) startWith(t testing.TB, r engine.StartRequest) engine.Started {
	t.Helper()
	r.Env, r.Workflow = engine.DefaultEnv, "w"
	s, err := n.StartRun(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (n *node) emit(t testing.TB, events ...engine.NewEvent) []engine.Emitted {
	t.Helper()
	list, _, err := n.Emit(context.Background(), engine.DefaultEnv, events, nil)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Rules W7, E1.
func TestAnEventStartsEveryWorkflowThatListensOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		listen := []wire.Trigger{{Event: "order.paid"}, {Event: "order.paid"}}
		a := newApp(wire.Workflow{Name: "w", Triggers: listen}, wire.Workflow{Name: "v", Triggers: listen[:1]}, wire.Workflow{Name: "hook", Triggers: []wire.Trigger{{Webhook: "shop"}}})
		n, s := startApp(t, a, engine.Options{})
		e := n.emit(t, engine.NewEvent{Name: "order.paid", Payload: jsontext.Value(`"o_1"`)})[0]
		want(t, "runs of the event", e.Event.Runs, 2)
		started := map[string]bool{}
		for range 2 {
			c := a.next(t, time.Second)
			started[c.Run.Workflow] = true
			want(t, "payload", string(c.Run.Payload), `"o_1"`)
			want(t, "event", c.Run.Event.ID, e.Event.ID)
		}
		want(t, "started", fmt.Sprint(started), "map[v:true w:true]")
		want(t, "a webhook's runs", n.emit(t, engine.NewEvent{Name: "webhook.shop"})[0].Event.Runs, 1)
		want(t, "an event that nobody hears", n.emit(t, engine.NewEvent{Name: "nobody"})[0].Event.Runs, 0)
		want(t, "runs", len(allRuns(t, s)), 3)
	})
}

// Rules W7, W8, K4.
func TestAnEventEmittedTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Event: "e"}}})
		n, s := startApp(t, a, engine.Options{})
		n.emit(t, engine.NewEvent{Name: "e"})
		n.emit(t, engine.NewEvent{Name: "e"})
		want(t, "without an id: runs", len(allRuns(t, s)), 2)
		first := n.emit(t, engine.NewEvent{Name: "e", ID: "pay_1", Payload: jsontext.Value(`1`)})[0]
		second := n.emit(t, engine.NewEvent{Name: "e", ID: "pay_1", Payload: jsontext.Value(`2`)})[0]
		want(t, "with an id: created", fmt.Sprint(first.Created, second.Created, second.PayloadDiffers), "true false true")
		want(t, "with an id: runs", len(allRuns(t, s)), 3)
		want(t, "under another name: created", n.emit(t, engine.NewEvent{Name: "f", ID: "pay_1"})[0].Created, true)
		tried := engine.NewEvent{Name: "e", ID: id.New(id.Event)}
		want(t, "tried again: created", fmt.Sprint(n.emit(t, tried)[0].Created, n.emit(t, tried)[0].Created), "true true")
		want(t, "tried again: runs", len(allRuns(t, s)), 4)
		mixed := n.emit(t, engine.NewEvent{Name: "e", ID: "pay_1"}, engine.NewEvent{Name: "e", ID: "pay_2"})
		want(t, "in an array: created", fmt.Sprint(mixed[0].Created, mixed[1].Created), "false true")
		want(t, "in an array: runs", len(allRuns(t, s)), 5)
	})
}

// E2: events are kept for thirty days, and their ids are known for longer.
func TestEventsAreKeptForThirtyDays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp()
		n, s := startApp(t, a, engine.Options{})
		// The server is away for all of that time but the last minutes, in which it sweeps: a clock that it follows costs.
		later := func(days int) {
			n.stop()
			time.Sleep(time.Duration(days) * 24 * time.Hour)
			n = startNode(t, s, a, engine.Options{})
			time.Sleep(11 * time.Minute)
		}
		names := func() (list []string) {
			events, err := s.Events(context.Background(), store.EventQuery{Env: engine.DefaultEnv, Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				list = append(list, e.ID)
			}
			return list
		}
		emit := func(id string) engine.Emitted {
			return n.emit(t, engine.NewEvent{Name: "paid", Payload: jsontext.Value(`1`), ID: id})[0]
		}
		emit("old")
		later(29)
		emit("new")
		want(t, "before thirty days", names(), []string{"new", "old"})
		later(2)
		want(t, "after thirty days", names(), []string{"new"})
		if again := emit("old"); again.Created || again.Event.ID != "old" {
			t.Errorf("the same id again: %+v", again)
		}
		later(40)
		want(t, "the newest of all", names(), []string{"new"})
	})
}

func TestAnEventsIDIsKnownForNinetyDays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, s := startApp(t, newApp(), engine.Options{})
		n.emit(t, engine.NewEvent{Name: "e", ID: "pay_1"})
		for _, c := range []struct {
			after time.Duration
			want  int
		}{{90*24*time.Hour - time.Second, 1}, {90 * 24 * time.Hour, 0}} {
			keys, err := s.Keys(context.Background(), store.KeyQuery{Env: engine.DefaultEnv, Kind: store.KeyEvent, Scope: "e", Now: time.Now().Add(c.after)})
			if err != nil {
				t.Fatal(err)
			}
			want(t, "K3: keys after "+c.after.String(), len(keys), c.want)
		}
	})
}

// Rule K3: the id of an event for later is known until 90 days after that. Else it would be free before, and what is emitted under it, for later
// too, would be acknowledged and lost to the one that is kept.
func TestTheIDOfAnEventForLaterIsKnownForNinetyDaysAfterIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		clock, pass := stepping()
		n, s := startApp(t, newApp(), engine.Options{Clock: clock})
		const day = 24 * time.Hour
		n.emit(t, engine.NewEvent{Name: "e", ID: "pay_1", Payload: jsontext.Value(`1`), At: clock().Add(200 * day)})
		pass(100 * day)
		again := n.emit(t, engine.NewEvent{Name: "e", ID: "pay_1", Payload: jsontext.Value(`2`), At: clock().Add(10 * day)})[0]
		if again.Created || !again.PayloadDiffers {
			t.Errorf("emitted again it is %+v", again)
		}
		pass(101 * day)
		events, err := s.Events(t.Context(), store.EventQuery{Env: engine.DefaultEnv, Limit: 10})
		if err != nil || len(events) != 1 || string(events[0].Payload) != "1" {
			t.Errorf("the events are %+v, %v", events, err)
		}
		pass(88 * day)
		want(t, "within 90 days", n.emit(t, engine.NewEvent{Name: "e", ID: "pay_1"})[0].Created, false)
		n.emit(t, engine.NewEvent{Name: "newest"}) // which is always kept
		pass(2 * day)
		want(t, "after 90 days", n.emit(t, engine.NewEvent{Name: "e", ID: "pay_1"})[0].Created, true)
	})
}

func TestASendInAStepHappensOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "child"})
		n, s := startApp(t, a, engine.Options{})
		n.start(t, "w")
		c := a.next(t, time.Second)
		send := func(c *sentCall, nonce string, place int, payload string) (engine.Started, error) {
			return n.StartRun(context.Background(), engine.StartRequest{
				Env: engine.DefaultEnv, Workflow: "child", ID: id.New(id.Run), Payload: jsontext.Value(payload),
				Send: &wire.Send{Fence: c.fence(nonce), Step: wire.StepRef{Name: "start", Number: 1}, Place: place},
			})
		}
		one, err := send(c, "n", 1, `1`)
		if err != nil || !one.Created {
			t.Fatal(one, err)
		}
		two, err := send(c, "n", 2, `2`)
		if err != nil || !two.Created {
			t.Fatal(two, err)
		}
		n.poll(t, 0, c.fence("n"))
		c.lose()
		a.next(t, time.Second) // the children
		a.next(t, time.Second)
		c2 := a.next(t, time.Minute)
		want(t, "run", c2.Run.ID, c.Run.ID)
		if _, err := send(c, "n", 3, `3`); !errors.Is(err, engine.ErrSuperseded) {
			t.Errorf("K3: a send of a superseded call: %v", err)
		}
		again, err := send(c2, "m", 1, `1`)
		if err != nil || again.Created || again.Run.ID != one.Run.ID {
			t.Errorf("K1: the repeat made %+v, %v", again, err)
		}
		if _, err := send(c2, "m", 1, `2`); !errors.Is(err, engine.ErrAmbiguousSend) {
			t.Errorf("K1: sends that changed places: %v", err)
		}
		lone, err := send(c2, "m", 2, `"now"`)
		if err != nil || lone.Created || !lone.PayloadDiffers || lone.Run.ID != two.Run.ID {
			t.Errorf("K1: a repeat that only differs: %+v, %v", lone, err)
		}
		c2.nonce = "m"
		c2.end(t, wire.End{Type: wire.Completed})
		synctest.Wait()
		if _, err := send(c2, "m", 4, `4`); !errors.Is(err, engine.ErrEnded) {
			t.Errorf("K3: a send after the run's end: %v", err)
		}
		want(t, "runs", len(allRuns(t, s)), 3)
	})
}

// Rule K1.
func TestAnEventOfAStepIsEmittedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "child", Triggers: []wire.Trigger{{Event: "e"}}})
		n, s := startApp(t, a, engine.Options{})
		n.start(t, "w")
		c := a.next(t, time.Second)
		send := &wire.Send{Fence: c.fence("n"), Step: wire.StepRef{Name: "emit", Number: 1}, Place: 1}
		first := n.emit(t, engine.NewEvent{Name: "e", ID: id.New(id.Event), Send: send})[0]
		second := n.emit(t, engine.NewEvent{Name: "e", ID: id.New(id.Event), Send: send})[0]
		want(t, "created", fmt.Sprint(first.Created, second.Created), "true false")
		want(t, "event", second.Event.ID, first.Event.ID)
		want(t, "runs", len(allRuns(t, s)), 2)
	})
}

func TestNothingIsStartedInSilence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		_, err := n.StartRun(context.Background(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: "none"})
		if !errors.Is(err, engine.ErrUnknownWorkflow) {
			t.Errorf("an unknown workflow: %v", err)
		}
		_, err = n.StartRun(context.Background(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: "w", App: "none"})
		if !errors.Is(err, engine.ErrUnknownWorkflow) {
			t.Errorf("an unknown app: %v", err)
		}
	})
}

// Rule D1.
func TestAWorkflowGoesTenMinutesAfterItsAppLacksIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "old", Triggers: []wire.Trigger{{Event: "e"}}})
		n, _ := startApp(t, a, engine.Options{ForgetAfter: 10 * time.Minute})
		a.deploy("h2", wire.Workflow{Name: "w"}, wire.Workflow{Name: "new", Triggers: []wire.Trigger{{Event: "e"}}})
		time.Sleep(11 * time.Second)
		want(t, "added at once, old kept: runs", n.emit(t, engine.NewEvent{Name: "e"})[0].Event.Runs, 2)
		time.Sleep(10 * time.Minute)
		want(t, "old forgotten: runs", n.emit(t, engine.NewEvent{Name: "e"})[0].Event.Runs, 1)
	})
}

func TestADeployIsNoticedByTheNextSave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{DescribeEvery: time.Hour})
		n.start(t, "w")
		c := a.next(t, time.Second)
		a.deploy("h2", wire.Workflow{Name: "w"}, wire.Workflow{Name: "new"})
		n.Save(context.Background(), wire.Saves{Process: "p", Manifest: "h2", Saves: []wire.Save{{Fence: c.fence("n"), Items: []wire.Item{completed("a", `1`)}}}})
		time.Sleep(2 * time.Second)
		if _, err := n.StartRun(context.Background(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: "new"}); err != nil {
			t.Errorf("D1: %v", err)
		}
	})
}

func (a *app) deploy(hash string, workflows ...wire.Workflow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.manifest.Hash, a.manifest.Workflows = hash, workflows
}

// Rule D1.
func TestAnAppThatStartsAfterTheServerIsFound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		a.fail(&call.Outcome{Kind: call.NotSent, Reason: "connection refused"})
		n := startNode(t, memory.New(), a, engine.Options{})
		n.AddApp("http://127.0.0.1:3000")
		time.Sleep(5 * time.Minute)
		apps := n.Apps(engine.DefaultEnv)
		if len(apps) != 1 || apps[0].Reason != "connection refused" {
			t.Fatalf("%+v", apps)
		}
		a.fail(nil)
		time.Sleep(2 * time.Second)
		want(t, "apps", n.Apps(engine.DefaultEnv)[0].Name, "app")
		n.start(t, "w")
		a.next(t, time.Second)
	})
}

func TestTwoManifestsUnderOneNameAreReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n := startNode(t, memory.New(), a, engine.Options{})
		n.AddApp("http://127.0.0.1:3000")
		time.Sleep(2 * time.Second)
		a.deploy("h2", wire.Workflow{Name: "v"})
		n.AddApp("http://127.0.0.1:3001")
		time.Sleep(2 * time.Second)
		found := false
		for _, app := range n.Apps(engine.DefaultEnv) {
			found = found || app.URL == "http://127.0.0.1:3001" && app.Reason != ""
		}
		if !found {
			t.Fatalf("%+v", n.Apps(engine.DefaultEnv))
		}
	})
}

func TestWaitingForARunAnswersWhenItEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		runID := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		began := time.Now()
		go func() {
			time.Sleep(3 * time.Second)
			c.end(t, wire.End{Type: wire.Completed, Output: jsontext.Value(`7`)})
		}()
		r, err := n.RunRecord(context.Background(), engine.DefaultEnv, runID, 20*time.Second)
		if err != nil || r.Status != workflow.Completed || string(r.Output) != `7` || time.Since(began) != 3*time.Second {
			t.Fatalf("%+v, %v, %v", r, err, time.Since(began))
		}
	})
}

// W5: a run for tomorrow stands in the line before those that only the store knows.
func TestARunForLaterHoldsUpNoneThatIsDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, s := newApp(wire.Workflow{Name: "w"}), memory.New()
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		a.fail(&call.Outcome{Kind: call.NotSent, Reason: "connection refused"})
		due := n.start(t, "w").Run.ID
		time.Sleep(time.Second)
		n.stop()
		n = startNode(t, s, a, engine.Options{})
		n.startWith(t, engine.StartRequest{Delay: 24 * time.Hour})
		a.fail(nil)
		c := a.next(t, 2*time.Minute)
		want(t, "the run that is called", c.Run.ID, due)
	})
}

// W5: nor those that one look at the store does not show.
func TestARunForLaterHoldsUpNoneOfManyThatAreDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const many = 2_500
		a, s := newApp(wire.Workflow{Name: "w"}), memory.New()
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		a.fail(&call.Outcome{Kind: call.NotSent, Reason: "connection refused"})
		for range many {
			n.start(t, "w")
		}
		time.Sleep(time.Second)
		n.stop()
		n = startNode(t, s, a, engine.Options{Concurrency: 2 * many})
		n.startWith(t, engine.StartRequest{Delay: 24 * time.Hour})
		a.fail(nil)
		a.next(t, 2*time.Minute)
		began := time.Now()
		for range many - 1 {
			a.next(t, time.Minute)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the last of them was called %v after the first", took)
		}
	})
}

// W5: what an earlier process left in line comes before what came later, also where no slot is free for a while and somebody always waits.
func TestRunsThatWaitInTheStoreComeBeforeLaterOnes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, s, options := newApp(wire.Workflow{Name: "w"}), memory.New(), engine.Options{Concurrency: 1}
		n := startNode(t, s, a, options)
		n.know(t)
		n.start(t, "w")
		c := a.next(t, time.Second)
		left := n.start(t, "w").Run.ID
		time.Sleep(time.Second)
		n.stop()
		n = startNode(t, s, a, options)
		for range 3 {
			n.start(t, "w")
			time.Sleep(3 * time.Second)
			n.poll(t, 0, c.fence("n"))
		}
		n.End(context.Background(), wire.Ends{Ends: []wire.SentEnd{{Fence: c.fence("n"), End: wire.End{Type: wire.Completed}}}})
		want(t, "the run that is called", a.next(t, 5*time.Second).Run.ID, left)
	})
}

// So many for later that no more fit into the line.
func TestALineFullOfRunsForLaterHoldsUpNoneThatIsDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, s := newApp(wire.Workflow{Name: "w"}), memory.New()
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		for range 10_000 {
			n.startWith(t, engine.StartRequest{Delay: 24 * time.Hour})
		}
		due := n.start(t, "w").Run.ID
		c := a.next(t, 10*time.Second)
		want(t, "the run that is called", c.Run.ID, due)
		later := n.startWith(t, engine.StartRequest{Delay: time.Minute}).Run.ID
		a.none(t, time.Minute-time.Millisecond)
		want(t, "the run that is called", a.next(t, 3*time.Second).Run.ID, later)
	})
}

// overtaken is a store in which an event is not there yet when it is looked for, and can't be read when its key has turned out to be taken.
type overtaken struct {
	store.Store
	name  string // the event's
	reads int
}

func (o *overtaken) Event(ctx context.Context, env, name, id string) (store.Event, error) {
	if name != o.name {
		return o.Store.Event(ctx, env, name, id)
	}
	if o.reads++; o.reads <= 2 { // one for each emit, before its commit
		return store.Event{}, store.ErrNotFound
	}
	return store.Event{}, errors.New("the store can't be read")
}

// Rule E1: of a list that is stored in part, since some of it was there, no failure is told: those without an id would be emitted again.
func TestEventsThatAreStoredAreAnsweredWhateverCanBeReadThen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &overtaken{Store: memory.New(), name: "paid"}
		a := newApp(wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Event: "sent"}}})
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		want(t, "created", n.emit(t, engine.NewEvent{Name: "paid", ID: "o_1"})[0].Created, true)
		list := n.emit(t, engine.NewEvent{Name: "paid", ID: "o_1", Payload: jsontext.Value(`2`)}, engine.NewEvent{Name: "sent"})
		want(t, "created", fmt.Sprint(list[0].Created, list[1].Created), "false true")
		want(t, "the first one's id", list[0].Event.ID, "o_1")
		want(t, "differs", list[0].PayloadDiffers, true)
		want(t, "the run of the second", a.next(t, time.Second).Run.Workflow, "w")
	})
}
