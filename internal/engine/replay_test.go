package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// Rules K5, S8: a replay from a step keeps what was saved before it, with its idempotency keys; and the plan says so first.
func TestAReplayFromAStepKeepsWhatWasBefore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		ctx := context.Background()
		original := n.start(t, "w").Run
		c := a.next(t, time.Second)
		n.save(c, "n", 0, completed("charge", `1`), completed("email", `2`), completed("row", `3`))
		c.end(t, wire.End{Type: wire.Completed, Seen: 3})
		synctest.Wait()
		plan, err := n.PlanReplay(ctx, engine.DefaultEnv, original.ID, "email")
		if err != nil || len(plan.Kept) != 1 || len(plan.Acts) != 2 || plan.Acts[0].Name != "email" {
			t.Fatalf("%+v, %v", plan, err)
		}
		for _, r := range []struct {
			outcome string
			request engine.ReplayRequest
			history string
			root    bool // the original's
			payload string
		}{
			{"a whole one", engine.ReplayRequest{}, "", false, "null"},
			{"from a step", engine.ReplayRequest{From: "email"}, "charge=1", true, "null"},
			{"from a step with keys of its own and another payload", engine.ReplayRequest{From: "row", KeepKeys: new(false), Payload: jsontext.Value(`{"b":1}`)}, "charge=1 email=2", false, `{"b":1}`},
			{"a whole one with the original's keys", engine.ReplayRequest{KeepKeys: new(true)}, "", true, "null"},
		} {
			r.request.Env, r.request.RunID = engine.DefaultEnv, original.ID
			started, err := n.Replay(ctx, r.request)
			if err != nil {
				t.Fatalf("%s: %v", r.outcome, err)
			}
			c := a.next(t, time.Second)
			want(t, r.outcome+": its history", c.history(), r.history)
			want(t, r.outcome+": its keys are the original's", c.Run.Root == original.ID, r.root)
			want(t, r.outcome+": its payload", string(c.Run.Payload), r.payload)
			want(t, r.outcome+": it is a replay of", *c.Run.ReplayOf, original.ID)
			want(t, r.outcome+": the next entry", n.save(c, "n", int64(len(c.Steps.Entries)), completed("next", `4`)).Items[0].Entry, int64(len(c.Steps.Entries)+1))
			c.end(t, wire.End{Type: wire.Completed})
			want(t, r.outcome+": the run", started.Created, true)
		}
		if _, err := n.Replay(ctx, engine.ReplayRequest{Env: engine.DefaultEnv, RunID: original.ID, From: "chrage"}); !errors.Is(err, engine.ErrUnknownStep) || !strings.Contains(err.Error(), "chrage") {
			t.Errorf("from a step that is not there: %v", err)
		}
	})
}

// K5, W7: a replay's waits find the original's events, but for those that what it took over has used; or only new ones.
func TestAReplaysWaitsLookBackAsAsked(t *testing.T) {
	for _, c := range []struct {
		request engine.ReplayRequest
		gets    string
	}{
		{engine.ReplayRequest{}, `"payload":1`},
		{engine.ReplayRequest{From: "second"}, `"payload":2`},
		{engine.ReplayRequest{NewEvents: true}, ""},
	} {
		t.Run(fmt.Sprintf("from %q, new events %v", c.request.From, c.request.NewEvents), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"})
				n, _ := startApp(t, a, engine.Options{})
				original := n.start(t, "w").Run
				a.next(t, time.Second).suspend(t, "n1", 0, forEvent("first", "paid"))
				n.emit(t, engine.NewEvent{Name: "paid", Payload: jsontext.Value(`1`)})
				a.next(t, time.Second).suspend(t, "n2", 1, forEvent("second", "paid"))
				n.emit(t, engine.NewEvent{Name: "paid", Payload: jsontext.Value(`2`)})
				last := a.next(t, time.Second)
				last.nonce = "n3"
				last.end(t, wire.End{Type: wire.Completed, Seen: 2})
				synctest.Wait()
				c.request.Env, c.request.RunID = engine.DefaultEnv, original.ID
				if _, err := n.Replay(context.Background(), c.request); err != nil {
					t.Fatal(err)
				}
				call := a.next(t, time.Second)
				call.suspend(t, "r", int64(len(call.Steps.Entries)), forEvent("next", "paid"))
				if c.gets == "" {
					a.none(t, time.Minute)
					return
				}
				entries := a.next(t, time.Second).Steps.Entries
				if got := string(entries[len(entries)-1].Output); !strings.Contains(got, c.gets) {
					t.Errorf("it was given %s", got)
				}
			})
		})
	}
}

// A replay that keeps the claim of its workflow's once is cancelled by its cancelOn like any run (K5, Z1).
func TestAReplayIsCancelledByItsEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", CancelOn: []wire.Trigger{{Event: "off"}}})
		n, _ := startApp(t, a, engine.Options{})
		original := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		once := wire.Item{Op: wire.OpClaim, Kind: "claim", Number: 1, Key: "o_1", Once: true}
		n.save(c, "n", 0, once)
		n.save(c, "n", 1, completed("charge", `1`))
		c.end(t, wire.End{Type: wire.Completed, Seen: 2})
		synctest.Wait()
		replay, err := n.Replay(context.Background(), engine.ReplayRequest{Env: engine.DefaultEnv, RunID: original, From: "charge"})
		if err != nil {
			t.Fatal(err)
		}
		c = a.next(t, time.Second)
		c.suspend(t, "n", 1, sleep("nap", time.Hour))
		n.emit(t, engine.NewEvent{Name: "off"})
		synctest.Wait()
		want(t, "its status", n.run(t, replay.Run.ID).Status, workflow.Cancelled)
	})
}

// A replay has entries and payload of one chapter, also where its original begins again while it is planned (K5, Z2).
func TestAReplayIsOfOneChapter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		original := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		n.save(c, "n", 0, completed("page", `1`))
		n.save(c, "n", 1, completed("row", `2`))
		var meanwhile sync.Once
		s.set(func(changes []store.Change) error {
			if insert, ok := changes[0][0].(store.InsertRun); ok && insert.Replay != nil {
				meanwhile.Do(func() { restartIn(t, s.Store, original) })
			}
			return nil
		})
		_, err := n.Replay(context.Background(), engine.ReplayRequest{Env: engine.DefaultEnv, RunID: original, From: "row"})
		if !errors.Is(err, engine.ErrUnknownStep) {
			t.Errorf("a replay from a step that the chapter does not have: %v", err)
		}
	})
}

// What a closing does is not its run's: no replay keeps it, also where the closing begins while the history is read.
func TestAReplayKeepsNothingOfAClosingThatBegins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		original := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		n.save(c, "n", 0, undo("take"))
		n.save(c, "n", 1, wire.Item{Op: wire.OpStart, Kind: "run", Name: "send", Number: 1, Attempt: 1})
		var meanwhile sync.Once
		s.mu.Lock()
		s.reads = func() {
			meanwhile.Do(func() {
				c.end(t, wire.End{Type: wire.Failed, Nonce: "n", Error: &wire.Error{Name: "Error", Message: "no"}})
				n.save(a.next(t, time.Second), "m", 1, completed("give back", `1`))
			})
		}
		s.mu.Unlock()
		if _, err := n.Replay(context.Background(), engine.ReplayRequest{Env: engine.DefaultEnv, RunID: original, From: "send"}); err != nil {
			t.Fatal(err)
		}
		replay := a.next(t, time.Second)
		want(t, "the replay's history", replay.history(), "take=")
	})
}

// restartIn begins a run again as another node would.
func restartIn(t *testing.T, s store.Store, id string) {
	t.Helper()
	run, history, err := s.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	d, err := workflow.Apply(run, workflow.End{CallID: run.Call.ID, Kind: workflow.EndRestarted, Entries: history.Entries}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), []store.Change{{store.UpdateRun{Run: d.Run, CloseWaits: d.CloseWaits, Chapter: d.Chapter}}}); err != nil {
		t.Fatal(err)
	}
}

// approving is a run that has made a callback, sent its address, and waits for it.
type approving struct {
	t     *testing.T
	app   *app
	node  *node
	first *sentCall
	token string
}

func startApproving(t *testing.T) *approving {
	t.Helper()
	a := newApp(wire.Workflow{Name: "w"})
	n, _ := startApp(t, a, engine.Options{})
	n.start(t, "w")
	p := &approving{t: t, app: a, node: n, first: a.next(t, time.Second)}
	_, p.token, _ = strings.Cut(string(n.save(p.first, "n", 0, wire.Item{Op: wire.OpCallback, Kind: "callback", Name: "approval", Number: 1}).Items[0].Output), `"token":"`)
	p.token, _, _ = strings.Cut(p.token, `"`)
	n.save(p.first, "n", 1, completed("send it", `1`))
	p.first.nonce = "n"
	return p
}

func (p *approving) post() {
	p.t.Helper()
	if err := p.node.EndCallback(context.Background(), p.token, jsontext.Value(`"yes"`)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *approving) fail(c *sentCall) {
	p.t.Helper()
	c.end(p.t, wire.End{Type: wire.Failed, Error: &wire.Error{Name: "E"}})
	synctest.Wait()
}

// replay replays the run from when the address was sent, until it waits.
func (p *approving) replay() {
	p.t.Helper()
	if _, err := p.node.Replay(context.Background(), engine.ReplayRequest{Env: engine.DefaultEnv, RunID: p.first.Run.ID, From: "send it"}); err != nil {
		p.t.Fatal(err)
	}
	c := p.app.next(p.t, time.Second)
	p.node.save(c, "n", 1, completed("send it", `2`))
	c.suspend(p.t, "n", 2, wire.Item{Op: wire.OpWait, Kind: "callback", Name: "approval", Number: 2, Of: 1})
}

// gets tells what the last wait has come to.
func (p *approving) gets(what, want string) *sentCall {
	p.t.Helper()
	c := p.app.next(p.t, 3*time.Second)
	if got := c.history(); !strings.Contains(got, "approval"+want) {
		p.t.Errorf("%s gets %s, want %s", what, got, want)
	}
	c.nonce = "n"
	return c
}

// K5: what a replay keeps of a callback is its address, which somebody has. Once the run that made it has ended, what is posted there, or
// was, is the replay's; but a callback is one run's at a time.
func TestAReplayHasTheCallbacksThatItKeeps(t *testing.T) {
	const yes, lacking = `={"payload":"yes"}`, `!{"name":"WaitError","message":"the step \"approval\" waits for callback 1 of its name, which this replay does not have`
	for _, posted := range []string{"before the original's end", "while the replay waits"} {
		t.Run("posted "+posted, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := startApproving(t)
				if posted == "before the original's end" {
					p.post()
				}
				p.fail(p.first)
				p.replay()
				if posted == "while the replay waits" {
					p.post()
				}
				c := p.gets("the replay", yes)
				p.replay()
				p.gets("a second one", lacking)
				p.fail(c)
				p.replay()
				p.gets("one after the first has ended", yes)
			})
		})
	}
	t.Run("of a run that lives", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			p := startApproving(t)
			p.replay()
			p.gets("the replay", lacking)
			p.post()
			p.first.suspend(t, "n", 2, wire.Item{Op: wire.OpWait, Kind: "callback", Name: "approval", Number: 2, Of: 1})
			p.gets("the run itself", yes)
		})
	})
}
