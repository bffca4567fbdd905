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

// W8, K3, K4: a claim has one owner, which may ask again.
func TestAClaimHasOneOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		claim := wire.Item{Op: wire.OpClaim, Kind: "claim", Name: "order", Number: 1, Key: "o_1"}
		again := claim
		again.Number = 2
		n.start(t, "w")
		first := a.next(t, time.Second)
		want(t, "the first", string(n.save(first, "n", 0, claim).Items[0].Output), "true")
		want(t, "the same item once more", n.save(first, "n", 0, claim).Items[0], wire.ItemOutcome{Status: wire.ItemSaved, Entry: 1, Output: jsontext.Value("true")})
		want(t, "the first once more", string(n.save(first, "n", 1, again).Items[0].Output), "true")
		n.start(t, "w")
		second := a.next(t, time.Second)
		want(t, "the second", string(n.save(second, "m", 0, claim).Items[0].Output), "false")
	})
}

// K3, K5: what frees a claim: nothing, its owner's failure, a time after its end, a replay of its owner.
func TestAClaimIsFreedAsItsOwnerSaid(t *testing.T) {
	claim := wire.Item{Op: wire.OpClaim, Kind: "claim", Name: "order", Number: 1, Key: "o_1"}
	failed, timed := claim, claim
	failed.Until, timed.ForMs = wire.UntilFailed, time.Hour.Milliseconds()
	no := wire.End{Type: wire.Failed, Error: &wire.Error{Name: "Error", Message: "no"}}
	for _, c := range []struct {
		outcome string
		claim   wire.Item
		end     wire.End
		later   time.Duration
		replay  bool
		owned   string
	}{
		{"for ever", claim, no, 10 * time.Hour, false, "false"},
		{"until failed, and it failed", failed, no, 0, false, "true"},
		{"until failed, and it completed", failed, wire.End{Type: wire.Completed}, 0, false, "false"},
		{"for an hour, too early", timed, wire.End{Type: wire.Completed}, time.Hour - 2*time.Second, false, "false"},
		{"for an hour, later", timed, wire.End{Type: wire.Completed}, time.Hour, false, "true"},
		{"for ever, but a replay asks", claim, wire.End{Type: wire.Completed}, 0, true, "true"},
	} {
		t.Run(c.outcome, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"})
				n, _ := startApp(t, a, engine.Options{})
				owner := n.start(t, "w").Run.ID
				first := a.next(t, time.Second)
				n.save(first, "n", 0, c.claim)
				first.end(t, c.end)
				synctest.Wait()
				time.Sleep(c.later)
				if c.replay {
					if _, err := n.Replay(context.Background(), engine.ReplayRequest{Env: engine.DefaultEnv, RunID: owner}); err != nil {
						t.Fatal(err)
					}
				} else {
					n.start(t, "w")
				}
				second := a.next(t, time.Second)
				want(t, "the second owns it", string(n.save(second, "m", 0, c.claim).Items[0].Output), c.owned)
			})
		})
	}
}

// K4: once ends the others as skipped, and says who owns their key.
func TestOnceSkipsTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		once := wire.Item{Op: wire.OpClaim, Kind: "claim", Number: 1, Key: "o_1", Once: true}
		owner := n.start(t, "w").Run.ID
		want(t, "the owner", n.save(a.next(t, time.Second), "n", 0, once).Items[0].Status, wire.ItemSaved)
		other := n.start(t, "w").Run.ID
		out := n.save(a.next(t, time.Second), "m", 0, once)
		want(t, "the other's save", out.Status, wire.Ended)
		run := n.run(t, other)
		want(t, "the other's status", run.Status, workflow.Skipped)
		if !strings.Contains(string(run.Error), owner) || !strings.Contains(string(run.Error), "RunSkippedError") {
			t.Errorf("its error is %s", run.Error)
		}
	})
}

// A run that begins to end while it asks for its key is not skipped: its call goes on until it is over (C3, Z1).
func TestARunThatIsEndingIsNotSkipped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		once := wire.Item{Op: wire.OpClaim, Kind: "claim", Number: 1, Key: "o_1", Once: true}
		n.start(t, "w")
		want(t, "the owner", n.save(a.next(t, time.Second), "n", 0, once).Items[0].Status, wire.ItemSaved)
		other := n.start(t, "w").Run.ID
		call := a.next(t, time.Second)
		n.save(call, "m", 0)
		var meanwhile sync.Once
		s.set(func(changes []store.Change) error {
			if u, ok := changes[0][0].(store.UpdateRun); ok && u.Run.Status == workflow.Skipped {
				meanwhile.Do(func() { cancelIn(t, s.Store, other) })
			}
			return nil
		})
		out := n.save(call, "m", 0, once)
		if out.Status != wire.Accepted || len(out.Items) != 1 || out.Items[0].Status != wire.ItemRefused || out.Ending == nil {
			t.Errorf("C3: the save of the call that is current was answered %+v", out)
		}
		call.end(t, wire.End{Type: wire.Yielded, Nonce: "m"})
		synctest.Wait()
		want(t, "its status", n.run(t, other).Status, workflow.Cancelled)
	})
}

// cancelIn cancels a run as another node would.
func cancelIn(t *testing.T, s store.Store, id string) {
	t.Helper()
	run, history, err := s.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	d, err := workflow.Apply(run, workflow.Cancel{Entries: history.Entries}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), []store.Change{{store.UpdateRun{Run: d.Run}}}); err != nil {
		t.Fatal(err)
	}
}

// A callback is posted to once, before or after it is waited for, in its time.
func TestACallbackIsAnsweredOnce(t *testing.T) {
	made := wire.Item{Op: wire.OpCallback, Kind: "callback", Name: "approval", Number: 1, TimeoutMs: ms(time.Hour)}
	wait := wire.Item{Op: wire.OpWait, Kind: "callback", Name: "approval", Number: 2, Of: 1}
	for _, c := range []struct {
		outcome string
		early   bool
		late    bool
		says    string
	}{
		{"after it is waited for", false, false, `{"payload":"yes"}`},
		{"before it is waited for", true, false, `{"payload":"yes"}`},
		{"too late", false, true, `null`},
	} {
		t.Run(c.outcome, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"})
				n, _ := startApp(t, a, engine.Options{})
				n.start(t, "w")
				call := a.next(t, time.Second)
				out := n.save(call, "n", 0, made)
				want(t, "made again", n.save(call, "n", 0, made).Items[0].Status, wire.ItemStands)
				var callback struct{ URL, Token string }
				if err := wire.Decode([]byte(strings.ReplaceAll(strings.ReplaceAll(string(out.Items[0].Output), `"url"`, `"URL"`), `"token"`, `"Token"`)), &callback); err != nil || callback.Token == "" {
					t.Fatalf("%s: %v", out.Items[0].Output, err)
				}
				post := func() error {
					return n.EndCallback(context.Background(), callback.Token, jsontext.Value(`"yes"`))
				}
				if c.early {
					if err := post(); err != nil {
						t.Fatal(err)
					}
				}
				call.suspend(t, "n", 1, wait)
				if c.late {
					time.Sleep(time.Hour)
				} else if !c.early {
					if err := post(); err != nil {
						t.Fatal(err)
					}
				}
				next := a.next(t, time.Second)
				if got := next.history(); !strings.HasSuffix(got, "approval="+c.says) {
					t.Errorf("the history is %s", got)
				}
				if err := post(); !errors.Is(err, engine.ErrCallbackOver) {
					t.Errorf("posted to again: %v", err)
				}
				if err := n.EndCallback(context.Background(), "another", nil); !errors.Is(err, store.ErrNotFound) {
					t.Errorf("another token: %v", err)
				}
			})
		})
	}
}

// An answer to a callback is any JSON; and one that can't be told holds up nobody else's, nor do the answers of a time when less was asked.
func TestAnAnswerToACallbackHoldsUpNoOther(t *testing.T) {
	made := wire.Item{Op: wire.OpCallback, Kind: "callback", Name: "approval", Number: 1}
	wait := wire.Item{Op: wire.OpWait, Kind: "callback", Name: "approval", Number: 2, Of: 1}
	for _, c := range []struct{ outcome, payload, says string }{
		{"a name twice", `{"a":1,"a":2}`, `{"payload":{"a":1,"a":2}}`},
		{"half a character, escaped", `"\ud800"`, `{"payload":"\ud800"}`},
		{"bytes that are no text", "\"\xff\"", `{"payload":"�"}`},
		{"no JSON at all", `{"a":`, ""},
	} {
		t.Run(c.outcome, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"})
				n, _ := startApp(t, a, engine.Options{})
				var tokens []string
				for range 2 {
					n.start(t, "w")
					call := a.next(t, time.Second)
					_, token, _ := strings.Cut(string(n.save(call, "n", 0, made).Items[0].Output), `"token":"`)
					token, _, _ = strings.Cut(token, `"`)
					tokens = append(tokens, token)
					call.suspend(t, "n", 1, wait)
				}
				for i, payload := range []string{c.payload, `"yes"`} {
					if err := n.EndCallback(context.Background(), tokens[i], jsontext.Value(payload)); err != nil {
						t.Fatal(err)
					}
				}
				told := map[string]bool{}
				for range 2 {
					if c.says == "" && len(told) == 1 {
						break
					}
					_, says, _ := strings.Cut(a.next(t, time.Second).history(), "approval=")
					_, says, _ = strings.Cut(says, "approval=")
					told[says] = true
				}
				if !told[`{"payload":"yes"}`] || (c.says != "" && !told[c.says]) {
					t.Errorf("told were %v", told)
				}
			})
		})
	}
}

// S4: a step that was started before is told so, and when the old playing can't go on any more.
func TestAStartKnowsOfTheOneBefore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		start := wire.Item{Op: wire.OpStart, Kind: "run", Name: "a", Number: 1, Attempt: 1}
		first := a.next(t, time.Second)
		for range 2 {
			want(t, "the first", n.save(first, "n", 0, start).Items[0], wire.ItemOutcome{Status: wire.ItemStarted})
		}
		first.lose()
		second := a.next(t, time.Minute)
		out := n.save(second, "m", 0, start).Items[0]
		want(t, "the second", out.Status+fmt.Sprint(out.Again), wire.ItemStarted+"true")
		if out.CheckInMs < 7000 || out.CheckInMs > 8000 {
			t.Errorf("S4: the check may run in %d ms", out.CheckInMs)
		}
		want(t, "the same once more", n.save(second, "m", 0, start).Items[0].Again, true)
	})
}
