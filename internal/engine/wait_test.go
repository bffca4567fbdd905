package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

func ms(d time.Duration) *int64 { return new(d.Milliseconds()) }

func sleep(name string, d time.Duration) wire.Item {
	return wire.Item{Op: wire.OpWait, Kind: workflow.KindSleep, Name: name, Number: 1, DelayMs: ms(d)}
}

func forEvent(name string, events ...string) wire.Item {
	return wire.Item{Op: wire.OpWait, Kind: workflow.KindEvent, Name: name, Number: 1, Events: events}
}

func invoke(name, workflow string) wire.Item {
	return wire.Item{Op: wire.OpWait, Kind: "invoke", Name: name, Number: 1, Workflow: workflow, Payload: jsontext.Value(`7`)}
}

// leaf is what a run waits for.
func leaf(name string) wire.Tree { return wire.Tree{Wait: &wire.StepRef{Name: name, Number: 1}} }

// suspend ends a call that waits for the items that it registers, each by itself.
func (c *sentCall) suspend(t testing.TB, nonce string, seen int64, items ...wire.Item) {
	t.Helper()
	c.nonce = nonce
	end := wire.End{Type: wire.Suspended, Seen: seen, Register: items}
	for _, item := range items {
		end.Waits = append(end.Waits, wire.Tree{Wait: &wire.StepRef{Name: item.Name, Number: item.Number}})
	}
	c.end(t, end)
	synctest.Wait()
}

// history is a call's saved steps, as name=output, in order.
func (c *sentCall) history() string {
	var list []string
	for _, e := range c.Steps.Entries {
		text := e.Name + "=" + string(e.Output)
		if e.Status == workflow.StepFailed {
			text = e.Name + "!" + string(e.Error)
		}
		list = append(list, text)
	}
	return strings.Join(list, " ")
}

// Rules W4, H3: a sleep ends at its time, never before, also over a restart; and a run asleep has no call.
func TestASleepEndsAtItsTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		s := memory.New()
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		id := n.start(t, "w").Run.ID
		began := time.Now()
		a.next(t, time.Second).suspend(t, "n1", 0, sleep("nap", 24*time.Hour))
		run := n.run(t, id)
		want(t, "status", run.Status, workflow.Waiting)
		want(t, "the timer's time", run.TimerAt().Sub(run.CreatedAt).Round(time.Second), 24*time.Hour)
		if w := n.Waiting(run.Run); w == nil || !strings.Contains(w.Reason, "sleeps until") {
			t.Errorf("it says that it waits for %+v", w)
		}
		time.Sleep(12 * time.Hour)
		n.stop()
		n = startNode(t, s, a, engine.Options{})
		n.know(t)
		c := a.next(t, 13*time.Hour)
		if slept := time.Since(began); slept < 24*time.Hour || slept > 24*time.Hour+10*time.Second {
			t.Errorf("W4: it slept %v", slept)
		}
		want(t, "the history", c.history(), "nap=")
		want(t, "open waits", len(c.Steps.Waiting), 0)
	})
}

// W5: what is due at a start, and what the store alone knows of, waits for no more than the pause between two looks, however often a node
// hears of a timer that comes before all others.
func TestEarlierTimersPutOffNoLookAtTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, s := newApp(wire.Workflow{Name: "w"}), memory.New()
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		due := n.start(t, "w").Run.ID
		a.next(t, time.Second).suspend(t, "n", 0, sleep("nap", time.Minute))
		n.stop()
		time.Sleep(2 * time.Minute)
		n = startNode(t, s, a, engine.Options{})
		began := time.Now()
		for i := range 10 {
			n.start(t, "w")
			c := a.next(t, time.Second)
			if c.Run.ID == due {
				break
			}
			c.suspend(t, "n", 0, sleep("nap", 4*time.Minute-time.Duration(i)*10*time.Second))
			time.Sleep(4 * time.Second)
		}
		if late := time.Since(began); late > 6*time.Second {
			t.Errorf("what was due at the start woke %v later", late)
		}
	})
}

// H3: registered again, a wait is the one that came first, its due time included.
func TestAWaitIsRegisteredOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		c := a.next(t, time.Second)
		began := time.Now()
		for range 2 {
			out := n.save(c, "n", 0, sleep("nap", time.Minute))
			want(t, "the outcome", out.Items, []wire.ItemOutcome{{Status: wire.ItemWaiting}})
			time.Sleep(2 * time.Second)
		}
		c.suspend(t, "n", 0, sleep("nap", time.Minute))
		next := a.next(t, time.Hour)
		if slept := time.Since(began).Round(time.Second); slept != time.Minute {
			t.Errorf("it slept %v", slept)
		}
		out := n.save(next, "n2", 0, sleep("nap", time.Minute))
		want(t, "once it is over", out.Items[0].Status, wire.ItemStands)
		want(t, "its entry", len(out.Entries), 1)
	})
}

// H2: what comes while a call is current begins no other; its process hears of it.
func TestNewsReachesTheCallThatIsCurrent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		c := a.next(t, time.Second)
		n.save(c, "n", 0, sleep("nap", time.Second), forEvent("paid", "paid"))
		news := make(chan wire.HeartbeatAnswer, 1)
		go func() {
			answer, err := n.Heartbeat(context.Background(), wire.Heartbeat{
				Process: "process", Calls: []wire.Named{{Fence: c.fence("n"), Seen: new(int64(0))}}, WaitMs: 5000,
			})
			if err != nil {
				t.Error(err)
			}
			news <- answer
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		select {
		case answer := <-news:
			if len(answer.Calls) != 1 || answer.Calls[0].Status != wire.NewEntries || len(answer.Calls[0].Entries) != 1 || answer.Calls[0].Entries[0].Name != "nap" {
				t.Fatalf("the news are %+v", answer.Calls)
			}
		default:
			t.Fatal("the poll is still held")
		}
		n.emit(t, engine.NewEvent{Name: "paid"})
		synctest.Wait()
		out := n.save(c, "n", 1, completed("a", `1`))
		want(t, "entries that came with the save's answer", len(out.Entries), 1)
		want(t, "its own entry", out.Items[0].Entry, int64(3))
		a.none(t, time.Second)
		c.suspend(t, "n", 3, forEvent("never", "never"))
		a.none(t, time.Hour)
	})
}

// H2: a call that suspends without having seen all there is is made again at once.
func TestASuspensionThatMissedNewsIsCalledAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		c := a.next(t, time.Second)
		n.save(c, "n", 0, sleep("nap", time.Second))
		time.Sleep(2 * time.Second)
		c.nonce = "n"
		c.end(t, wire.End{Type: wire.Suspended, Seen: 0, Waits: []wire.Tree{leaf("nap")}})
		want(t, "the history", a.next(t, time.Second).history(), "nap=")
	})
}

// Promise 12, rules E1, E2, W7: whenever an event comes after the run's creation, it is found, once.
func TestAnEventIsGivenToOneWaitOfARun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.emit(t, engine.NewEvent{Name: "paid", Payload: jsontext.Value(`"before the run"`)})
		n.start(t, "w")
		c := a.next(t, time.Second)
		n.emit(t, engine.NewEvent{Name: "paid", Payload: jsontext.Value(`1`)})
		c.suspend(t, "n1", 0, forEvent("first", "paid"), forEvent("second", "paid"))
		c = a.next(t, time.Second)
		if got := c.history(); !strings.HasPrefix(got, "first=") || strings.Contains(got, "second=") || !strings.Contains(got, `"payload":1`) {
			t.Fatalf("E2: the earliest event goes to the earliest wait: %s", got)
		}
		want(t, "open waits", fmt.Sprint(c.Steps.Waiting), "[{event second 1}]")
		c.suspend(t, "n2", 1)
		synctest.Wait()
	})
}

// E2, promise 12: an event that came before a wait is not lost to its timeout, however short that is.
func TestAWaitWithoutPatienceTakesWhatCameBefore(t *testing.T) {
	for range 30 {
		bubble(t, func(t *testing.T) {
			a := newApp(wire.Workflow{Name: "w"})
			n, _ := startApp(t, a, engine.Options{})
			n.start(t, "w")
			c := a.next(t, time.Second)
			n.emit(t, engine.NewEvent{Name: "paid", Payload: jsontext.Value(`1`)})
			wait := forEvent("paid", "paid")
			wait.TimeoutMs = ms(0)
			c.suspend(t, "n", 0, wait)
			if got := a.next(t, time.Second).history(); !strings.Contains(got, `"payload":1`) {
				t.Fatalf("the history is %s", got)
			}
		})
	}
}

// E2: since "wait" counts from the wait; the event that started the run never counts.
func TestAWaitLooksBackAsFarAsItSays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Event: "paid"}}})
		n, _ := startApp(t, a, engine.Options{})
		n.emit(t, engine.NewEvent{Name: "paid"})
		c := a.next(t, time.Second)
		n.emit(t, engine.NewEvent{Name: "other"})
		late := forEvent("late", "other")
		late.Since = "wait"
		c.suspend(t, "n", 0, forEvent("again", "paid"), late)
		a.none(t, time.Minute)
		n.emit(t, engine.NewEvent{Name: "other", Payload: jsontext.Value(`2`)})
		if got := a.next(t, time.Second).history(); !strings.Contains(got, `"payload":2`) {
			t.Errorf("the history is %s", got)
		}
	})
}

// E3: match finds its event among others, by index.
func TestAWaitTakesTheEventThatMatches(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		wait := forEvent("paid", "paid", "refunded")
		wait.Match, wait.TimeoutMs = map[string]jsontext.Value{"payload.id": jsontext.Value(`"o_2"`)}, ms(time.Hour)
		a.next(t, time.Second).suspend(t, "n", 0, wait)
		n.emit(t, engine.NewEvent{Name: "paid", Payload: jsontext.Value(`{"id":"o_1"}`)}, engine.NewEvent{Name: "paid", Payload: jsontext.Value(`{"no":1}`)})
		a.none(t, time.Minute)
		n.emit(t, engine.NewEvent{Name: "refunded", Payload: jsontext.Value(`{"id":"o_2"}`)})
		if got := a.next(t, time.Second).history(); !strings.Contains(got, `"event":"refunded"`) {
			t.Errorf("the history is %s", got)
		}
	})
}

// H3: a wait that can't be had fails where the code asked for it, with a sentence.
func TestAWaitThatCannotBeRegisteredFailsItsStep(t *testing.T) {
	long := sleep("long", 400*24*time.Hour)
	nobody := invoke("nobody", "w")
	nobody.App = "unknown"
	names := forEvent("names")
	since := forEvent("since", "e")
	since.Since = "ever"
	for _, c := range []struct {
		item wire.Item
		says string
	}{
		{long, "a sleep has 0 ms to a year"},
		{nobody, `the app \"unknown\"`},
		{names, "name 1 to 16"},
		{since, `not \"ever\"`},
		{wire.Item{Op: wire.OpWait, Kind: "callback", Name: "cb", Number: 2, Of: 1}, "was not made"},
	} {
		t.Run(c.item.Name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"})
				n, _ := startApp(t, a, engine.Options{})
				n.start(t, "w")
				a.next(t, time.Second).suspend(t, "n", 0, c.item)
				next := a.next(t, time.Second)
				if got := next.history(); !strings.Contains(got, c.says) {
					t.Errorf("the history is %s", got)
				}
				other := c.item
				other.Name = "beside"
				out := n.save(next, "n2", 1, other)
				want(t, "beside a body", out.Items[0].Status, wire.ItemStands)
				if len(out.Entries) != 1 || !strings.Contains(string(out.Entries[0].Error), c.says[:5]) {
					t.Errorf("it came with %+v", out.Entries)
				}
			})
		})
	}
}

// Promise 9, W5: an invoke starts one child, however often it is registered, and its result is the step's.
func TestAnInvokeStartsOneChildAndBringsItsEnd(t *testing.T) {
	for _, c := range []struct {
		ends, says string
		end        wire.End
	}{
		{"completed", "child=5", wire.End{Type: wire.Completed, Output: jsontext.Value(`5`)}},
		{"failed", `child!{"name":"TypeError","message":"no"`, wire.End{Type: wire.Failed, Error: &wire.Error{Name: "TypeError", Message: "no"}}},
	} {
		t.Run(c.ends, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "child"})
				n, s := startApp(t, a, engine.Options{})
				parent := n.start(t, "w").Run.ID
				call := a.next(t, time.Second)
				n.save(call, "n", 0, invoke("child", "child"))
				call.suspend(t, "n", 0, invoke("child", "child"))
				child := a.next(t, time.Second)
				want(t, "the child's payload", string(child.Run.Payload), "7")
				want(t, "runs", len(allRuns(t, s)), 2)
				if w := n.Waiting(n.run(t, parent).Run); w == nil || !strings.Contains(w.Reason, child.Run.ID) {
					t.Errorf("the parent says that it waits for %+v", w)
				}
				child.nonce = "c"
				child.end(t, c.end)
				if got := a.next(t, time.Second).history(); !strings.HasPrefix(got, c.says) {
					t.Errorf("the history is %s", got)
				}
			})
		})
	}
}

// Z1: cancellation goes down; and what went down comes back up as an error.
func TestACancelledParentCancelsItsChildren(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "child"})
		n, s := startApp(t, a, engine.Options{})
		parent := n.start(t, "w").Run.ID
		a.next(t, time.Second).suspend(t, "n", 0, invoke("child", "child"))
		child := a.next(t, time.Second)
		if _, err := n.Cancel(context.Background(), engine.DefaultEnv, parent, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		want(t, "the parent", n.run(t, parent).Status, workflow.Cancelled)
		if n.run(t, child.Run.ID).Ending == nil {
			t.Error("the child goes on")
		}
		child.nonce = "c"
		child.end(t, wire.End{Type: wire.Yielded})
		time.Sleep(10 * time.Second)
		want(t, "the child", n.run(t, child.Run.ID).Status, workflow.Cancelled)
		left, err := s.Waits(context.Background(), store.WaitQuery{Set: store.WaitsOfKin})
		if err != nil || len(left) != 0 {
			t.Errorf("left is %+v, %v", left, err)
		}
	})
}

// A child that takes too long is cancelled, and its parent goes on.
func TestAnInvokeThatTimesOutCancelsItsChild(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "child"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		item := invoke("child", "child")
		item.TimeoutMs = ms(time.Minute)
		a.next(t, time.Second).suspend(t, "n", 0, item)
		child := a.next(t, time.Second)
		child.nonce = "c"
		child.suspendBoth(t, n)
		parent := a.next(t, 2*time.Minute)
		if got := parent.history(); !strings.HasPrefix(got, `child!{"name":"TimeoutError"`) {
			t.Errorf("the history is %s", got)
		}
		time.Sleep(time.Second)
		want(t, "the child", n.run(t, child.Run.ID).Status, workflow.Cancelled)
	})
}

// suspendBoth lets a call sleep for a day.
func (c *sentCall) suspendBoth(t testing.TB, _ *node) {
	c.suspend(t, c.nonce, 0, sleep("day", 24*time.Hour))
}

// H4: a run that waits for all of many children is called once.
func TestATreeWakesItsRunOnce(t *testing.T) {
	const children = 1_000
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "child"})
		n, _ := startApp(t, a, engine.Options{})
		parent := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		end := wire.End{Type: wire.Suspended, Waits: []wire.Tree{{}}}
		for i := range children {
			item := invoke(fmt.Sprint("child", i), "child")
			end.Register = append(end.Register, item)
			end.Waits[0].All = append(end.Waits[0].All, leaf(item.Name))
		}
		c.nonce = "n"
		c.end(t, end)
		for range children {
			child := a.next(t, time.Minute)
			if child.Run.ID == parent {
				t.Fatal("H4: the parent was called before all were there")
			}
			child.nonce = "c"
			child.end(t, wire.End{Type: wire.Completed})
			synctest.Wait()
		}
		last := a.next(t, time.Minute)
		want(t, "the run that is called", last.Run.ID, parent)
		want(t, "its epoch", last.Call.Call.Epoch, int64(2))
		want(t, "its entries", len(last.Steps.Entries), children)
	})
}

// H4: each of several things that a run waits for wakes it, at once and then not more often than each second.
func TestNativeCombinatorsArePaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		time.Sleep(10 * time.Second)
		c := a.next(t, time.Second)
		time.Sleep(10 * time.Second)
		c.suspend(t, "n1", 0, sleep("a", time.Millisecond), sleep("b", 100*time.Millisecond), sleep("c", 200*time.Millisecond))
		c = a.next(t, 50*time.Millisecond)
		c.nonce = "n2"
		c.end(t, wire.End{Type: wire.Suspended, Seen: 1, Waits: []wire.Tree{leaf("b"), leaf("c")}})
		synctest.Wait()
		began := time.Now()
		c = a.next(t, time.Minute)
		if since := time.Since(began); since < 900*time.Millisecond || since > 1100*time.Millisecond {
			t.Errorf("H4: it was called again after %v", since)
		}
		want(t, "entries", len(c.Steps.Entries), 3)
	})
}

// Promise 13: whatever comes for a run whose code threw ends no pause that was asked for; the call after it is shown what came. What the run
// was suspended for before is over.
func TestWhatComesEndsNoPauseOfCodeThatThrew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		limited := throws
		limited.RetryAfterMs = ms(time.Hour)
		for _, before := range []bool{false, true} {
			run, seen := n.start(t, "w").Run.ID, int64(0)
			c := a.next(t, time.Second)
			if before {
				c.suspend(t, "n0", 0, sleep("nap", time.Minute))
				c, seen = a.next(t, 2*time.Minute), 1
			}
			n.save(c, "n1", seen, sleep("remind", time.Minute), forEvent("approved", "approve"))
			c.end(t, limited)
			synctest.Wait()
			n.emit(t, engine.NewEvent{Name: "approve"})
			a.none(t, 59*time.Minute)
			c = a.next(t, 2*time.Minute)
			want(t, "entries", len(c.Steps.Entries), int(seen)+2)
			c.suspend(t, "n2", seen+2, sleep("once more", time.Millisecond)) // which wakes it again
			a.completes(t)
			want(t, "status", n.run(t, run).Status, workflow.Completed)
		}
	})
}

// Promise 5: a run that is to start later starts then, whoever restarts meanwhile.
func TestARunStartsWhenItIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		s := memory.New()
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		at := time.Now().Add(time.Hour).UTC()
		n.startWith(t, engine.StartRequest{At: at})
		a.none(t, 30*time.Minute)
		n.stop()
		n = startNode(t, s, a, engine.Options{})
		n.know(t)
		a.next(t, time.Hour)
		if late := time.Since(at); late < 0 || late > 5*time.Second {
			t.Errorf("W4: it was called %v after its time", late)
		}
	})
}

// Many runs asleep wake on time, and share their commits.
func TestManySleepersWakeOnTime(t *testing.T) {
	const runs = 100
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		for range runs {
			n.start(t, "w")
			a.next(t, time.Second).suspend(t, "n", 0, sleep("nap", time.Hour))
		}
		woken := time.Now().Add(time.Hour)
		for range runs {
			a.next(t, 2*time.Hour).end(t, wire.End{Type: wire.Completed, Seen: 1})
		}
		if late := time.Since(woken); late < 0 || late > 5*time.Second {
			t.Errorf("the last woke %v after its time", late)
		}
	})
}

// waitsRead counts the looks at a run's waits.
type waitsRead struct {
	store.Store
	looks atomic.Int64
}

func (s *waitsRead) Waits(ctx context.Context, q store.WaitQuery) ([]store.Wait, error) {
	if q.Set == store.WaitsOfRun {
		s.looks.Add(1)
	}
	return s.Store.Waits(ctx, q)
}

// H3: waits that are registered again, as by a save whose answer was lost, are looked up at once, however many they are.
func TestManyWaitsThatAreRegisteredAgainAreLookedUpAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const waits = 100
		a := newApp(wire.Workflow{Name: "w"})
		s := &waitsRead{Store: memory.New()}
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		n.start(t, "w")
		c := a.next(t, time.Second)
		var items []wire.Item
		for i := range waits {
			items = append(items, forEvent(fmt.Sprint("wait", i), "go"))
		}
		n.save(c, "n", 0, items...)
		before := s.looks.Load()
		for _, outcome := range n.save(c, "n", 0, items...).Items {
			want(t, "the outcome", outcome.Status, wire.ItemWaiting)
		}
		want(t, "looks", s.looks.Load()-before, int64(1))
	})
}
