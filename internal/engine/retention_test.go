package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// What naps until afterTwoDays is called shortly after two days have passed, and swept.
const (
	twoDays      = 48 * time.Hour
	afterTwoDays = twoDays + 15*time.Minute
)

// completes plays the app's next call to its end.
func (a *app) completes(t *testing.T) {
	t.Helper()
	a.next(t, time.Second).end(t, wire.End{Type: wire.Completed})
	synctest.Wait()
}

// isGone checks that a run is not kept any more.
func isGone(t *testing.T, s store.Store, runID string) {
	t.Helper()
	if _, err := s.Record(context.Background(), engine.DefaultEnv, runID); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("run %s is kept: %v", runID, err)
	}
}

func TestEndedRunsAreKeptAsLongAsTheyAreToBe(t *testing.T) {
	for _, c := range []struct {
		kept        time.Duration
		after, left int
	}{{twoDays, 47, 121}, {twoDays, 48, 1}, {0, 5_000, 121}} {
		t.Run(fmt.Sprintf("for %v, after %d hours", c.kept, c.after), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				clock, pass := stepping()
				a := newApp(wire.Workflow{Name: "w"})
				n, s := startApp(t, a, engine.Options{RunsFor: c.kept, Clock: clock})
				live := n.start(t, "w").Run.ID
				a.next(t, time.Second).suspend(t, "n", 0, sleep("nap", 365*24*time.Hour))
				for range 120 { // more than are dropped in one commit
					n.start(t, "w")
					a.completes(t)
				}
				pass(time.Duration(c.after) * time.Hour)
				want(t, "runs", len(allRuns(t, s)), c.left)
				want(t, "the one that lives", n.run(t, live).Status, workflow.Waiting)
			})
		})
	}
}

// K3: keys outlive the retention of runs: what they name is not started again, and who asks is told so.
func TestARunThatIsGoneIsNotStartedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		clock, pass := stepping()
		a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "listens", Triggers: []wire.Trigger{{Event: "paid"}}})
		n, s := startApp(t, a, engine.Options{RunsFor: twoDays, Clock: clock})
		keyed := engine.StartRequest{Key: "k", Payload: jsontext.Value(`1`)}
		first := n.startWith(t, keyed)
		a.completes(t)
		event := engine.NewEvent{Name: "paid", ID: "pay_1"}
		n.emit(t, event)
		a.completes(t)
		pass(twoDays)
		want(t, "runs", len(allRuns(t, s)), 0)

		again := n.startWith(t, keyed)
		want(t, "the key again", again, engine.Started{Gone: true, Run: store.RunRecord{Run: workflow.Run{ID: first.Run.ID, Env: engine.DefaultEnv, App: first.Run.App, Workflow: "w", Key: "k"}}})
		keyed.Payload = jsontext.Value(`2`)
		want(t, "with another payload", n.startWith(t, keyed).PayloadDiffers, true)
		keyed.Request = &engine.RequestKey{Scope: "POST /v1/runs", Key: "r", Hash: "h"}
		want(t, "with an Idempotency-Key", n.startWith(t, keyed).Gone, true)
		once := n.startWith(t, keyed)
		want(t, "that request again", []any{once.Gone, once.Replayed, once.Run.ID}, []any{true, true, first.Run.ID})
		want(t, "the event's id again", n.emit(t, event)[0].Created, false)
		if _, err := n.Replay(context.Background(), engine.ReplayRequest{Env: engine.DefaultEnv, RunID: first.Run.ID}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a replay of what is gone: %v", err)
		}
		a.none(t, time.Minute)
		want(t, "runs", len(allRuns(t, s)), 0)
	})
}

// What a run has started it goes on with, however long that is gone.
func TestARunOutlivesWhatItStarted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		clock, pass := stepping()
		a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "child"})
		n, s := startApp(t, a, engine.Options{RunsFor: twoDays, Clock: clock})
		parent := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		send := func(c *sentCall, nonce string) engine.Started {
			t.Helper()
			return n.startWith(t, engine.StartRequest{Payload: jsontext.Value(`1`), Send: &wire.Send{Fence: c.fence(nonce), Step: wire.StepRef{Name: "start", Number: 1}, Place: 1}})
		}
		sent := send(c, "n").Run.ID
		a.completes(t)
		c.suspend(t, "n", 0, invoke("child", "child"))
		child := a.next(t, time.Second)
		child.end(t, wire.End{Type: wire.Completed, Output: jsontext.Value(`7`)})
		synctest.Wait()
		c = a.next(t, time.Second)
		want(t, "the child's output", string(c.Steps.Entries[0].Output), `7`)
		c.suspend(t, "m", 1, sleep("nap", afterTwoDays))
		pass(twoDays)
		isGone(t, s, sent)
		isGone(t, s, child.Run.ID)
		c = a.next(t, 10*time.Minute)
		want(t, "the run", c.Run.ID, parent)
		again := send(c, "o")
		want(t, "the send once more", []any{again.Gone, again.Created, again.Run.ID}, []any{true, false, sent})
	})
}

// K3, K5: whose owner is gone, a claim is held as long as its owner said, and counts from when that ended.
func TestAClaimOutlivesItsOwner(t *testing.T) {
	claim := wire.Item{Op: wire.OpClaim, Kind: "claim", Name: "order", Number: 1, Key: "o_1"}
	failed, short, long := claim, claim, claim
	failed.Until, short.ForMs, long.ForMs = wire.UntilFailed, time.Hour.Milliseconds(), (72 * time.Hour).Milliseconds()
	for _, c := range []struct {
		outcome string
		claim   wire.Item
		ends    string // how the owner does
		replay  bool
		owned   []string // by runs that ask when the owner is gone, and a day later
	}{
		{"for ever", claim, wire.Failed, false, []string{"false", "false"}},
		{"for ever, but a replay asks", claim, wire.Failed, true, []string{"true"}},
		{"until it failed", failed, wire.Failed, false, []string{"true"}},
		{"until it failed, and it completed", failed, wire.Completed, false, []string{"false", "false"}},
		{"for an hour", short, wire.Failed, false, []string{"true"}},
		{"for three days", long, wire.Failed, false, []string{"false", "true"}},
	} {
		t.Run(c.outcome, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				clock, pass := stepping()
				a := newApp(wire.Workflow{Name: "w"})
				n, s := startApp(t, a, engine.Options{RunsFor: twoDays, Clock: clock})
				owner := n.start(t, "w").Run.ID
				first := a.next(t, time.Second)
				n.save(first, "n", 0, c.claim)
				end := wire.End{Type: c.ends}
				if c.ends == wire.Failed {
					end.Error = &wire.Error{Name: "Error", Message: "no"}
				}
				first.end(t, end)
				synctest.Wait()
				if c.replay {
					r, err := n.Replay(context.Background(), engine.ReplayRequest{Env: engine.DefaultEnv, RunID: owner})
					if err != nil {
						t.Fatal(err)
					}
					replayed := a.next(t, time.Second)
					want(t, "the replay", replayed.Run.ID, r.Run.ID)
					replayed.suspend(t, "r", 0, sleep("nap", afterTwoDays))
				}
				pass(twoDays)
				isGone(t, s, owner)
				for i, owned := range c.owned {
					if i > 0 {
						pass(24 * time.Hour)
					}
					if !c.replay {
						n.start(t, "w")
					}
					asks, seen := a.next(t, 10*time.Minute), int64(0)
					if c.replay {
						seen = 1
					}
					want(t, fmt.Sprintf("who asks %d days later owns it", i), string(n.save(asks, "m", seen, c.claim).Items[0].Output), owned)
					asks.end(t, wire.End{Type: wire.Completed})
					synctest.Wait()
				}
			})
		})
	}
}

// K3: what is free, and nobody's, is kept no longer.
func TestAClaimThatIsFreeGoesAfterItsOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		clock, pass := stepping()
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startApp(t, a, engine.Options{RunsFor: twoDays, Clock: clock})
		n.start(t, "w")
		first := a.next(t, time.Second)
		n.save(first, "n", 0, wire.Item{Op: wire.OpClaim, Kind: "claim", Name: "order", Number: 1, Key: "o_1", ForMs: (72 * time.Hour).Milliseconds()})
		first.end(t, wire.End{Type: wire.Completed})
		synctest.Wait()
		pass(twoDays)
		for _, left := range []int{1, 0} {
			claims, err := s.Keys(context.Background(), store.KeyQuery{Env: engine.DefaultEnv, Kind: store.KeyClaim, Scope: "app\x00w\x00order"})
			if err != nil {
				t.Fatal(err)
			}
			want(t, "claims", len(claims), left)
			pass(24 * time.Hour)
		}
	})
}

// However many keys expire, those of ten minutes are gone with one sweep.
func TestAllKeysThatHaveExpiredAreDropped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startApp(t, a, engine.Options{})
		const scope, keys = "POST /v1/events", 2_500
		for i := range keys {
			request := &engine.RequestKey{Scope: scope, Key: fmt.Sprint(i), Hash: "h"}
			if _, _, err := n.Emit(context.Background(), engine.DefaultEnv, []engine.NewEvent{{Name: "e"}}, request); err != nil {
				t.Fatal(err)
			}
		}
		left := func() int {
			list, err := s.Keys(context.Background(), store.KeyQuery{Env: engine.DefaultEnv, Kind: store.KeyRequest, Scope: scope, Now: time.Unix(0, 0)})
			if err != nil {
				t.Fatal(err)
			}
			return len(list)
		}
		want(t, "keys", left(), keys)
		time.Sleep(24*time.Hour + 11*time.Minute)
		want(t, "keys a day later", left(), 0)
	})
}

// Events may be kept for less time than an Idempotency-Key: the same request again emits nothing then, too (K6).
func TestARequestWhoseEventIsGoneEmitsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		clock, pass := stepping()
		a := newApp(wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Event: "paid"}}})
		n, s := startApp(t, a, engine.Options{EventsFor: time.Hour, Clock: clock})
		emit := func() (engine.Emitted, bool) {
			request := &engine.RequestKey{Scope: "POST /v1/events", Key: "k", Hash: "h"}
			list, replayed, err := n.Emit(context.Background(), engine.DefaultEnv, []engine.NewEvent{{Name: "paid", Payload: jsontext.Value(`1`)}}, request)
			if err != nil {
				t.Fatal(err)
			}
			return list[0], replayed
		}
		first, _ := emit()
		a.completes(t)
		n.emit(t, engine.NewEvent{Name: "newest"}) // which is always kept
		pass(2 * time.Hour)
		if _, err := s.Event(context.Background(), engine.DefaultEnv, "paid", first.Event.ID); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("the event is kept: %v", err)
		}
		again, replayed := emit()
		synctest.Wait()
		if want(t, "runs", len(allRuns(t, s)), 1); !replayed || again.Event.ID != first.Event.ID || !again.Created || again.PayloadDiffers {
			t.Errorf("%+v, %v", again, replayed)
		}
	})
}

// Rules K4, K6: a request that was answered with the run that had its key is answered so when that key's time is over, and starts nothing.
func TestARequestIsAnsweredTheSameAfterTheTimeOfItsRunKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, s := startApp(t, newApp(wire.Workflow{Name: "w"}), engine.Options{})
		first := n.startWith(t, engine.StartRequest{Key: "k", KeyFor: time.Hour})
		request := engine.StartRequest{Key: "k", KeyFor: time.Hour, Request: &engine.RequestKey{Scope: "POST /v1/runs", Key: "r", Hash: "h"}}
		for range 3 {
			got := n.startWith(t, request)
			want(t, "run", got.Run.ID, first.Run.ID)
			want(t, "created", got.Created, false)
			time.Sleep(2 * time.Hour)
		}
		want(t, "runs", len(allRuns(t, s)), 1)
	})
}
