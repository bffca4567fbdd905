package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/wire"
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
