package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// bubble runs a test in virtual time.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// poll names calls once, and waits at most wait for news.
func (n *node) poll(t testing.TB, wait time.Duration, fences ...wire.Fence) []wire.News {
	t.Helper()
	hb := wire.Heartbeat{Process: "process", WaitMs: wait.Milliseconds()}
	for _, f := range fences {
		hb.Calls = append(hb.Calls, wire.Named{Fence: f})
	}
	answer, err := n.Heartbeat(context.Background(), hb)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Calls
}

// keepPolling names a call until the returned function is called, as the process that plays it does.
func (n *node) keepPolling(t testing.TB, fences ...wire.Fence) (stop func()) {
	t.Helper()
	var calls []wire.Named
	for _, f := range fences {
		calls = append(calls, wire.Named{Fence: f})
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for ctx.Err() == nil {
			n.Heartbeat(ctx, wire.Heartbeat{Process: "process", Calls: calls, WaitMs: 5000})
		}
	}()
	synctest.Wait()
	return func() { cancel(); synctest.Wait() }
}

// Rule C1.
func TestAKilledAppIsPickedUpWithinSeconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		first := a.next(t, time.Second)
		want(t, "save", n.save(first, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		first.lose()
		began := time.Now()
		second := a.next(t, 10*time.Second)
		want(t, "pick-up after", time.Since(began).Truncate(time.Microsecond), 2*time.Second)
		want(t, "epoch", second.Call.Call.Epoch, int64(2))
		want(t, "cuts", second.Call.Call.Cuts, 1)
		want(t, "saved steps", len(second.Steps.Entries), 1)
	})
}

// Rule C1.
func TestAClosedConnectionIsNotADeadApp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		stop := n.keepPolling(t, c.fence("n"))
		defer stop()
		c.lose()
		a.none(t, 20*time.Minute) // named all the time, it stays current
		want(t, "save", n.save(c, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		end := n.End(context.Background(), wire.Ends{Process: "process", Ends: []wire.SentEnd{{Fence: c.fence("n"), End: wire.End{Type: wire.Completed}}}})
		want(t, "end", end.Ends[0].Status, wire.Accepted)
		want(t, "status", n.run(t, id).Status, workflow.Completed)
	})
}

// Rule C1.
func TestAnOpenPollIsAskedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		c := a.next(t, time.Second)
		n.poll(t, 0, c.fence("n"))
		news := make(chan []wire.News, 1)
		began := time.Now()
		go func() { news <- n.poll(t, 5*time.Second, c.fence("n")) }()
		time.Sleep(time.Second)
		c.lose()
		got := <-news
		want(t, "asked after", time.Since(began), time.Second+50*time.Millisecond)
		if len(got) != 1 || got[0].Status != wire.NamedQ {
			t.Fatalf("news: %+v", got)
		}
	})
}

// Rule C1: a process that names its calls to a server that has started again is heard of each, however many they are and whatever a commit takes.
func TestManyCallsAreNamedInTimeAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const calls = 1_000
		a := newApp(wire.Workflow{Name: "w"})
		s := &faulty{Store: memory.New()}
		n := startNode(t, s, a, engine.Options{Concurrency: calls})
		n.know(t)
		var fences []wire.Fence // of bodies that take their time: nothing is saved yet
		for range calls {
			n.start(t, "w")
			fences = append(fences, a.next(t, time.Second).fence("n"))
		}
		n.stop()
		s.set(func([]store.Change) error { time.Sleep(50 * time.Millisecond); return nil })
		n = startNode(t, s, a, engine.Options{Concurrency: calls})
		for range 5 {
			n.poll(t, 5*time.Second, fences...)
		}
		a.none(t, 5*time.Second)
	})
}

// Rule C1.
func TestAGatewayTimeoutWaitsTwoIntervals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		a.next(t, time.Second).answer <- call.Outcome{Kind: call.Silent, Status: http.StatusGatewayTimeout}
		began := time.Now()
		a.next(t, time.Minute)
		want(t, "pick-up after", time.Since(began).Truncate(time.Microsecond), 10*time.Second)
	})
}

// Rule C7.
func TestACallThatItsProcessNoLongerNamesIsCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		n.start(t, "w")
		one, two := a.next(t, time.Second), a.next(t, time.Second)
		n.poll(t, 0, one.fence("1"), two.fence("2"))
		one.lose()
		synctest.Wait()
		n.poll(t, 0, one.fence("1"), two.fence("2"))
		began := time.Now()
		n.poll(t, 5*time.Second, two.fence("2")) // one is not named now, and has no connection; two has one
		n.poll(t, 0, two.fence("2"))
		again := a.next(t, time.Second)
		want(t, "run", again.Run.ID, one.Run.ID)
		want(t, "after", time.Since(began), time.Duration(0))
		n.poll(t, 0)
		n.poll(t, 0)
		a.none(t, time.Minute)
	})
}

// A process that was frozen sends its poll and its saves as soon as it goes on, in whatever order they arrive. The poll's list was made
// before the call was read.
func TestAListThatIsOlderThanACallCutsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		n.start(t, "w")
		older, newer := a.next(t, time.Second), a.next(t, time.Second)
		n.poll(t, 0, older.fence("1"))
		newer.lose()
		synctest.Wait()
		want(t, "save", n.save(newer, "2", 0, completed("a", `1`)).Status, wire.Accepted)
		began := time.Now()
		n.poll(t, 5*time.Second, older.fence("1")) // made before the save, and read after it
		want(t, "answered after", time.Since(began), time.Duration(0))
		for range 10 {
			n.poll(t, 5*time.Second, older.fence("1"), newer.fence("2"))
		}
		a.none(t, 0)
		want(t, "save", n.save(newer, "2", 1, completed("b", `2`)).Status, wire.Accepted)
	})
}

// Rules W2, C1, C5.
func TestSilenceOnAnOpenConnectionLastsOneLease(t *testing.T) {
	for _, c := range []struct {
		outcome string
		lease   time.Duration
	}{{"by default about five minutes after the last contact", 0}, {"with a lease of five seconds after five seconds", 5 * time.Second}} {
		t.Run(c.outcome, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"})
				n, _ := startApp(t, a, engine.Options{Lease: c.lease})
				n.start(t, "w")
				first := a.next(t, time.Second)
				lease := time.Duration(first.Call.Call.LeaseMs) * time.Millisecond
				time.Sleep(lease - time.Second)
				n.save(first, "n", 0, completed("a", `1`)) // the last contact
				began := time.Now()
				second := a.next(t, time.Hour)
				if took := time.Since(began); took < lease || took > lease+timerSlack {
					t.Fatalf("picked up %v after the last contact", took)
				}
				want(t, "saved steps", len(second.Steps.Entries), 1)
				want(t, "a late save", n.save(first, "n", 1, completed("b", `1`)).Status, wire.Superseded)
				if first.ctx.Err() == nil {
					t.Error("the request of the superseded call is still open")
				}
			})
		})
	}
}

// timerSlack is how late a timer may be: the engine looks at least so often.
const timerSlack = 6 * time.Second

// Rule C7.
func TestAnOpenPollKeepsASilentCallForDays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		c := a.next(t, time.Second)
		stop := n.keepPolling(t, c.fence("n"))
		defer stop()
		a.none(t, 3*time.Hour)
	})
}

// Rule C12: alive is not enough.
func TestACallThatMakesNoProgressForADayIsCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		stop := n.keepPolling(t, c.fence("n"))
		defer stop()
		a.none(t, 11*time.Hour)
		if w := n.Waiting(n.run(t, id).Run); w != nil {
			t.Errorf("after eleven hours it is shown as %+v", w)
		}
		want(t, "a save", n.save(c, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		a.none(t, 23*time.Hour)
		w := n.Waiting(n.run(t, id).Run)
		if w == nil || !strings.Contains(w.Reason, "no progress for 23h0m0s") || time.Until(w.NextAt).Round(time.Minute) != time.Hour {
			t.Fatalf("after 23 hours it is shown as %+v", w)
		}
		again := a.next(t, time.Hour+6*time.Minute)
		want(t, "the saved steps of the next call", len(again.Steps.Entries), 1)
		want(t, "a save of the call that was cut", n.save(c, "n", 1, completed("b", `1`)).Status, wire.Superseded)
	})
}

// Rule C5.
func TestALateSaveTakesThePickUpBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{Concurrency: 1})
		id := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		// Another run takes the slot, so that the pick-up stays queued.
		other := n.start(t, "w").Run.ID
		c.lose()
		busy := a.next(t, time.Minute)
		want(t, "the run in the slot", busy.Run.ID, other)
		want(t, "status", n.run(t, id).Status, workflow.Queued)
		want(t, "late save", n.save(c, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		want(t, "status", n.run(t, id).Status, workflow.Running)
		end := n.End(context.Background(), wire.Ends{Process: "process", Ends: []wire.SentEnd{{Fence: c.fence("n"), End: wire.End{Type: wire.Completed}}}})
		want(t, "end", end.Ends[0].Status, wire.Accepted)
		want(t, "status", n.run(t, id).Status, workflow.Completed)
	})
}

// Rules C5, C10.
func TestALateEndWithoutASaveIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{Concurrency: 1})
		id := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		n.start(t, "w")
		c.lose()
		a.next(t, time.Minute)
		end := n.End(context.Background(), wire.Ends{Process: "process", Ends: []wire.SentEnd{{Fence: c.fence("n"), End: wire.End{Type: wire.Completed, Unsaved: []wire.Item{completed("a", `1`)}}}}})
		want(t, "end", end.Ends[0].Status, wire.Accepted)
		want(t, "status", n.run(t, id).Status, workflow.Completed)
		a.none(t, time.Minute)
	})
}

// Rules C4, C6.
func TestOnlyTheFirstPlayingOfACallSaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		c := a.next(t, time.Second)
		want(t, "first", n.save(c, "one", 0, completed("a", `1`)).Status, wire.Accepted)
		want(t, "second", n.save(c, "two", 0, completed("a", `2`)).Status, wire.Superseded)
		forged := c.fence("one")
		forged.Token = forged.Token[:len(forged.Token)-1] + "x"
		out := n.Save(context.Background(), wire.Saves{Process: "p", Saves: []wire.Save{{Fence: forged, Items: []wire.Item{completed("b", `1`)}}}})
		want(t, "another token", out.Saves[0].Status, wire.Superseded)
	})
}

// Rule C1.
func TestARestartAdoptsWhatIsNamedAndPicksUpTheRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		s := memory.New()
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		named, silent := n.start(t, "w").Run.ID, n.start(t, "w").Run.ID
		calls := map[string]*sentCall{}
		for range 2 {
			c := a.next(t, time.Second)
			calls[c.Run.ID] = c
			n.save(c, c.Run.ID, 0, completed("a", `1`))
		}
		n.stop()
		n = startNode(t, s, a, engine.Options{})
		stop := n.keepPolling(t, calls[named].fence(named))
		defer stop()
		began := time.Now()
		again := a.next(t, time.Minute)
		want(t, "picked up", again.Run.ID, silent)
		want(t, "after", time.Since(began).Truncate(time.Microsecond), 10*time.Second)
		want(t, "the named call's save", n.save(calls[named], named, 1, completed("b", `2`)).Status, wire.Accepted)
		again.end(t, wire.End{Type: wire.Completed})
		a.none(t, time.Hour)
	})
}

// Rule C7.
func TestAGracefulStopAnswersPollsAndKeepsCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		n.poll(t, 0, c.fence("n"))
		answered := make(chan struct{})
		began := time.Now()
		go func() {
			n.Heartbeat(context.Background(), wire.Heartbeat{Process: "process", Calls: []wire.Named{{Fence: c.fence("n")}}, WaitMs: 5000})
			close(answered)
		}()
		synctest.Wait()
		n.stop()
		<-answered
		want(t, "the poll was held for", time.Since(began), time.Duration(0))
		run, _, err := s.Load(context.Background(), id)
		if err != nil || run.Status != workflow.Running || run.Call.ID != c.Call.Call.ID {
			t.Fatalf("the call lost its run: %+v, %v", run, err)
		}
	})
}

// A process that goes on after a standstill finds its timers fired before it has read what was sent meanwhile.
func TestATimeInWhichTheServerStoodStillCutsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		c := a.next(t, time.Second)
		want(t, "save", n.save(c, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		c.lose()
		time.Sleep(1900 * time.Millisecond)
		n.StoodStill(1800 * time.Millisecond) // the question has been open for two seconds, and could be heard for 200 ms
		a.none(t, 1900*time.Millisecond)
		stop := n.keepPolling(t, c.fence("n"))
		a.none(t, time.Minute)
		stop()
		began := time.Now()
		a.next(t, time.Minute)
		want(t, "pick-up after", time.Since(began).Truncate(time.Microsecond), 10*time.Second)
	})
}

func TestAStandstillEndsNoLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{Lease: 5 * time.Second})
		n.start(t, "w")
		c := a.next(t, time.Second)
		want(t, "save", n.save(c, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		began := time.Now()
		time.Sleep(4900 * time.Millisecond)
		n.StoodStill(3 * time.Second)
		a.next(t, time.Minute)
		want(t, "pick-up after", time.Since(began).Round(time.Second), 8*time.Second)
	})
}

// Who reads a log, or a list of apps, learns no secret of an app's address.
func TestAnAddressIsShownWithoutItsSecrets(t *testing.T) {
	for address, want := range map[string]string{
		"http://shop:3000/api/nelkap":            "http://shop:3000/api/nelkap",
		"http://user:canary@shop/x":              "http://shop/x",
		"http://shop/x?token=canary&v=1&canary&": "http://shop/x?token=…&v=…&…&",
		"http://user@shop/x?token=can=ary":       "http://shop/x?token=…",
		"http://shop/x?":                         "http://shop/x?",
	} {
		if got := engine.ShownURL(address); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
}

// Another playing of a call may poll without saying what it has seen: it is told that it has no right to the call.
func TestAPollOfAnotherPlayingThatHasSeenNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		c := a.next(t, time.Second)
		n.save(c, "n", 0, forEvent("e", "e"))
		poll := func(nonce string, seen *int64) []wire.News {
			answer, err := n.Heartbeat(context.Background(), wire.Heartbeat{Process: "of " + nonce, WaitMs: 1, Calls: []wire.Named{{Fence: c.fence(nonce), Seen: seen}}})
			if err != nil {
				t.Fatal(err)
			}
			return answer.Calls
		}
		want(t, "news before the event", len(poll("n", new(int64(0)))), 0)
		n.emit(t, engine.NewEvent{Name: "e"})
		synctest.Wait()
		news := poll("another", nil)
		if len(news) != 1 || news[0].Status != wire.Superseded {
			t.Errorf("it is told %+v", news)
		}
	})
}

// Rules C4, C7: a save that is refused is no contact. Its process is not the one that plays the call, and does not have it cut by not naming it.
func TestARefusedSaveIsNoContact(t *testing.T) {
	for _, refused := range []struct {
		outcome string
		fence   func(wire.Fence) wire.Fence
	}{
		{"another playing's", func(f wire.Fence) wire.Fence { f.Nonce = "another"; return f }},
		{"without the call's token", func(f wire.Fence) wire.Fence { f.Token = "none"; return f }},
	} {
		t.Run(refused.outcome, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"})
				n, _ := startApp(t, a, engine.Options{})
				n.start(t, "w")
				first := a.next(t, time.Second)
				want(t, "save", n.save(first, "n", 0, completed("a", `1`)).Status, wire.Accepted)
				stop := n.keepPolling(t, first.fence("n"))
				defer stop()
				first.lose()
				synctest.Wait()
				other := wire.Saves{Process: "other", Saves: []wire.Save{{Fence: refused.fence(first.fence("n")), Items: []wire.Item{completed("b", `2`)}}}}
				want(t, "another's save", n.Save(context.Background(), other).Saves[0].Status, wire.Superseded)
				for range 3 {
					if _, err := n.Heartbeat(context.Background(), wire.Heartbeat{Process: "other"}); err != nil {
						t.Fatal(err)
					}
				}
				a.none(t, time.Minute)
				want(t, "the one that plays", n.save(first, "n", 1, completed("b", `3`)).Status, wire.Accepted)
			})
		})
	}
}

// Rule H2: however much has come for the calls of a process, a poll's answer has as much of it as a process reads, and the next ones have the rest.
func TestNewsOfManyCallsComeInAnswersThatAProcessReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const calls = 20
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		hb := wire.Heartbeat{Process: "process"}
		for range calls {
			n.start(t, "w")
			c := a.next(t, time.Second)
			n.save(c, "n", 0, forEvent("go", "go"))
			hb.Calls = append(hb.Calls, wire.Named{Fence: c.fence("n"), Seen: new(int64(0))})
		}
		n.emit(t, engine.NewEvent{Name: "go", Payload: jsontext.Value(`"` + strings.Repeat("x", 4<<20) + `"`)})
		synctest.Wait()
		told := 0
		for range calls {
			answer, err := n.Heartbeat(t.Context(), hb)
			if err != nil {
				t.Fatal(err)
			}
			bytes := 0
			for _, news := range answer.Calls {
				for _, entry := range news.Entries {
					bytes, told = bytes+len(entry.Output), told+1
					i := slices.IndexFunc(hb.Calls, func(named wire.Named) bool { return named.Call == news.Call })
					hb.Calls[i].Seen = &entry.Entry
				}
			}
			if bytes > 60<<20 { // the SDKs read 64 MiB
				t.Fatalf("an answer has %d bytes", bytes)
			}
		}
		want(t, "calls that were told", told, calls)
	})
}
