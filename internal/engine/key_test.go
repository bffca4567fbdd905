package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// Rules W8, K4.
func TestARunKeyHasOneRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startApp(t, a, engine.Options{})
		first := n.startWith(t, engine.StartRequest{Key: "k", Payload: jsontext.Value(`{"a":1,"b":2}`)})
		same := n.startWith(t, engine.StartRequest{Key: "k", Payload: jsontext.Value(`{"b":2, "a":1}`)})
		other := n.startWith(t, engine.StartRequest{Key: "k", Payload: jsontext.Value(`3`)})
		want(t, "created", fmt.Sprint(first.Created, same.Created, other.Created), "true false false")
		want(t, "differs", fmt.Sprint(first.PayloadDiffers, same.PayloadDiffers, other.PayloadDiffers), "false false true")
		want(t, "the second's run", same.Run.ID, first.Run.ID)
		want(t, "the third's run", other.Run.ID, first.Run.ID)
		want(t, "runs", len(allRuns(t, s)), 1)
	})
}

func TestARunKeyIsOfItsApp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		a.mu.Lock()
		a.manifest.App = "other"
		a.mu.Unlock()
		if _, err := n.PutApp(context.Background(), engine.DefaultEnv, engine.AppRequest{URL: "http://127.0.0.1:3001"}, true); err != nil {
			t.Fatal(err)
		}
		one, two := n.startWith(t, engine.StartRequest{App: "app", Key: "k"}), n.startWith(t, engine.StartRequest{App: "other", Key: "k"})
		want(t, "K3: created", fmt.Sprint(one.Created, two.Created), "true true")
	})
}

// Rule K3.
func TestARunKeyWithATimeIsFreeAfterIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _ := startApp(t, newApp(wire.Workflow{Name: "w"}), engine.Options{})
		first := n.startWith(t, engine.StartRequest{Key: "k", KeyFor: time.Hour})
		time.Sleep(59 * time.Minute)
		want(t, "within", n.startWith(t, engine.StartRequest{Key: "k", KeyFor: time.Hour}).Run.ID, first.Run.ID)
		time.Sleep(2 * time.Minute)
		want(t, "created after", n.startWith(t, engine.StartRequest{Key: "k", KeyFor: time.Hour}).Created, true)
	})
}

func TestExpiredKeysAreSweptAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, s := startApp(t, newApp(wire.Workflow{Name: "w"}), engine.Options{})
		n.startWith(t, engine.StartRequest{Key: "short", KeyFor: time.Minute})
		n.startWith(t, engine.StartRequest{Key: "long", KeyFor: time.Hour})
		created := time.Now()
		time.Sleep(30 * time.Minute)
		// Seen from before its end, the short key would still be there.
		keys, err := s.Keys(context.Background(), store.KeyQuery{Env: engine.DefaultEnv, Kind: store.KeyRun, Scope: "app\x00w", Now: created})
		if err != nil || len(keys) != 1 || keys[0].Key != "long" {
			t.Fatalf("%+v, %v", keys, err)
		}
	})
}

// Rule K6.
func TestAStartTriedAgainFindsItsRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, s := startApp(t, newApp(wire.Workflow{Name: "w"}), engine.Options{})
		for _, r := range []engine.StartRequest{{ID: id.New(id.Run)}, {ID: id.New(id.Run), Key: "k"}} {
			first, second := n.startWith(t, r), n.startWith(t, r)
			want(t, "created", fmt.Sprint(first.Created, second.Created), "true true")
			want(t, "run", second.Run.ID, first.Run.ID)
		}
		want(t, "runs", len(allRuns(t, s)), 2)
	})
}

// Rule K6.
func TestAnIdempotencyKeyAnswersTheSame(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, s := startApp(t, newApp(wire.Workflow{Name: "w"}), engine.Options{})
		request := func(hash string) *engine.RequestKey {
			return &engine.RequestKey{Scope: "POST /v1/runs", Key: "k", Hash: hash}
		}
		first, second := n.startWith(t, engine.StartRequest{Request: request("h")}), n.startWith(t, engine.StartRequest{Request: request("h")})
		want(t, "run", second.Run.ID, first.Run.ID)
		want(t, "answers", fmt.Sprint(first.Created, first.Replayed, second.Created, second.Replayed), "true false true true")
		_, err := n.StartRun(context.Background(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: "w", Request: request("other")})
		if !errors.Is(err, engine.ErrRequestDiffers) {
			t.Errorf("another body: %v", err)
		}
		// With a run key that is taken, the request made nothing; again it makes nothing.
		n.startWith(t, engine.StartRequest{Key: "taken"})
		for range 2 {
			again := n.startWith(t, engine.StartRequest{Key: "taken", Request: &engine.RequestKey{Scope: "POST /v1/runs", Key: "k2", Hash: "h"}})
			want(t, "created", again.Created, false)
		}
		want(t, "runs", len(allRuns(t, s)), 2)
		events, _, err := n.Emit(context.Background(), engine.DefaultEnv, []engine.NewEvent{{Name: "e"}, {Name: "f"}}, request("events"))
		if !errors.Is(err, engine.ErrRequestDiffers) {
			t.Fatalf("%v, %v", events, err)
		}
		key := &engine.RequestKey{Scope: "POST /v1/events", Key: "k", Hash: "h"}
		one, _, err := n.Emit(context.Background(), engine.DefaultEnv, []engine.NewEvent{{Name: "e"}, {Name: "f"}}, key)
		if err != nil {
			t.Fatal(err)
		}
		two, replayed, err := n.Emit(context.Background(), engine.DefaultEnv, []engine.NewEvent{{Name: "e"}, {Name: "f"}}, key)
		if err != nil || !replayed || two[0].Event.ID != one[0].Event.ID || two[1].Event.ID != one[1].Event.ID {
			t.Errorf("%+v, %v, %v", two, replayed, err)
		}
	})
}

// Rules K3, K4, K6: what was started is found again by its id, its key and its request where the workflow has gone meanwhile.
func TestAStartTriedAgainFindsItsRunThoughItsWorkflowIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, kept := newApp(wire.Workflow{Name: "w"}), memory.New()
		n := startNode(t, kept, a, engine.Options{})
		n.sync(t)
		drawn := engine.StartRequest{ID: id.New(id.Run)}
		keyed := engine.StartRequest{App: a.manifest.App, Key: "k", Payload: jsontext.Value(`1`)}
		request := engine.RequestKey{Scope: "POST /v1/runs", Key: "r", Hash: "h"}
		second := engine.RequestKey{Scope: request.Scope, Key: "s", Hash: "h"}
		first := map[string]engine.Started{"drawn": n.startWith(t, drawn), "keyed": n.startWith(t, keyed), "request": n.startWith(t, engine.StartRequest{Request: &request})}
		for range first {
			a.next(t, time.Second).end(t, wire.End{Type: wire.Completed})
		}
		n.startWith(t, engine.StartRequest{App: a.manifest.App, Key: "k", Request: &second})
		time.Sleep(time.Second)
		want(t, "removed", n.RemoveApp(t.Context(), engine.DefaultEnv, a.manifest.App), nil)

		s := n.startWith(t, drawn)
		want(t, "by its id", s.Run.ID, first["drawn"].Run.ID)
		want(t, "created by it", s.Created, true)
		s = n.startWith(t, keyed)
		want(t, "by its key", s.Run.ID, first["keyed"].Run.ID)
		want(t, "created by the key", s.Created, false)
		s = n.startWith(t, engine.StartRequest{Request: &request})
		want(t, "by its request", s.Run.ID, first["request"].Run.ID)
		want(t, "the same answer", s.Created && s.Replayed, true)

		s = n.startWith(t, engine.StartRequest{Key: "k", Request: &second})
		want(t, "by a request that made nothing", s.Run.ID, first["keyed"].Run.ID)
		want(t, "the same answer", !s.Created && s.Replayed, true)

		differs := engine.RequestKey{Scope: request.Scope, Key: request.Key, Hash: "another"}
		for why, c := range map[string]struct {
			r   engine.StartRequest
			err error
		}{
			"another request":         {engine.StartRequest{Workflow: "w", Request: &differs}, engine.ErrRequestDiffers},
			"another workflow's id":   {engine.StartRequest{Workflow: "v", ID: drawn.ID}, engine.ErrIDUsed},
			"an id of nothing":        {engine.StartRequest{Workflow: "w", ID: id.New(id.Run)}, engine.ErrUnknownWorkflow},
			"a key of nothing":        {engine.StartRequest{Workflow: "w", App: a.manifest.App, Key: "l"}, engine.ErrUnknownWorkflow},
			"a key of who knows what": {engine.StartRequest{Workflow: "w", Key: "k"}, engine.ErrUnknownWorkflow},
		} {
			c.r.Env = engine.DefaultEnv
			if _, err := n.StartRun(t.Context(), c.r); !errors.Is(err, c.err) {
				t.Errorf("%s: %v", why, err)
			}
		}
		want(t, "runs", len(allRuns(t, kept)), 3)
	})
}

// Rule K6: a request's Idempotency-Key is stored with its effect, also where one of its events was stored by another request just before.
func TestAnIdempotencyKeyIsKeptBesideAnEventOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, s := startFaulty(t, newApp())
		events := []engine.NewEvent{{Name: "e", ID: id.New(id.Event)}, {Name: "f"}}
		var once sync.Once
		s.set(func([]store.Change) error {
			once.Do(func() {
				other := store.InsertEvent{Event: store.Event{Env: engine.DefaultEnv, Name: "e", ID: events[0].ID}}
				if _, err := s.Store.Commit(t.Context(), []store.Change{{other}}); err != nil {
					t.Error(err)
				}
			})
			return nil
		})
		for range 2 {
			again := []engine.NewEvent{events[0], {Name: "f"}}
			if _, _, err := n.Emit(t.Context(), engine.DefaultEnv, again, &engine.RequestKey{Scope: "POST /v1/events", Key: "k", Hash: "h"}); err != nil {
				t.Fatal(err)
			}
		}
		list, err := s.Events(t.Context(), store.EventQuery{Env: engine.DefaultEnv, Name: "f", Limit: 10})
		if err != nil || len(list) != 1 {
			t.Errorf("the same request twice emitted %+v, %v", list, err)
		}
	})
}

// One rule for all who start: what owns a key owns it when it has failed, too.
func TestAFailedRunKeepsItsKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startApp(t, a, engine.Options{})
		first := n.startWith(t, engine.StartRequest{Key: "k"})
		a.next(t, time.Second).end(t, wire.End{Type: wire.Failed, Error: &wire.Error{Name: "Error", Message: "no"}})
		synctest.Wait()
		want(t, "status", n.run(t, first.Run.ID).Status, workflow.Failed)
		again := n.startWith(t, engine.StartRequest{Key: "k"})
		want(t, "K4: the second start", fmt.Sprint(again.Created, again.Run.ID), fmt.Sprint(false, first.Run.ID))
		want(t, "runs", len(allRuns(t, s)), 1)
	})
}
