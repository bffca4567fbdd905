package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"errors"
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

// Rule E2: a wait whose time is over takes no event, so that the next wait has it, also over a restart.
func TestAWaitWhoseTimeIsOverTakesNoEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		s := memory.New()
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		n.start(t, "w")
		first := forEvent("first", "paid")
		first.TimeoutMs = ms(time.Second)
		a.next(t, time.Second).suspend(t, "n1", 0, first)
		c := a.next(t, time.Minute)
		want(t, "the first", c.history(), "first=null")
		second := forEvent("second", "paid")
		second.TimeoutMs = ms(time.Minute)
		c.suspend(t, "n2", 1, second)
		n.stop()
		n = startNode(t, s, a, engine.Options{})
		n.know(t)
		n.emit(t, engine.NewEvent{Name: "paid", Payload: jsontext.Value(`1`)})
		if got := a.next(t, time.Second).history(); !strings.Contains(got, `second={"id":`) {
			t.Errorf("its history is %s", got)
		}
	})
}

// A wait of no time gives what is there already, and nothing else.
func TestAWaitOfNoTimeGivesWhatIsThere(t *testing.T) {
	for _, emitted := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			a := newApp(wire.Workflow{Name: "w"})
			n, _ := startApp(t, a, engine.Options{})
			n.start(t, "w")
			c := a.next(t, time.Second)
			if emitted {
				n.emit(t, engine.NewEvent{Name: "paid"})
			}
			look := forEvent("look", "paid")
			look.TimeoutMs = ms(0)
			c.suspend(t, "n", 0, look)
			if got := a.next(t, timerSlack).history(); (got != "look=null") != emitted {
				t.Errorf("its history is %s", got)
			}
		})
	}
}

// Rules E1, E2: whichever comes first, an event or the end of a wait's time, the run is called once for it, the event is given once, and
// one that came too late is there for the next wait.
func TestAnEventBesideTheEndOfItsWaitIsGivenOnce(t *testing.T) {
	came := map[bool]int{}
	for offset := -50; offset <= 50; offset += 5 {
		bubble(t, func(t *testing.T) {
			a := newApp(wire.Workflow{Name: "w"})
			n, s := startFaulty(t, a)
			n.start(t, "w")
			first := forEvent("first", "item")
			first.TimeoutMs = ms(time.Second)
			a.next(t, time.Second).suspend(t, "n1", 0, first)
			s.set(func([]store.Change) error { time.Sleep(20 * time.Millisecond); return nil })
			time.Sleep(time.Second + time.Duration(offset)*time.Millisecond)
			n.emit(t, engine.NewEvent{Name: "item", Payload: jsontext.Value(`1`)})
			c := a.next(t, timerSlack)
			inTime := strings.HasPrefix(c.history(), `first={`)
			came[inTime]++
			if !inTime && c.history() != "first=null" {
				t.Fatalf("its history is %s", c.history())
			}
			c.suspend(t, "n2", 1, forEvent("second", "item"))
			if inTime {
				a.none(t, time.Minute)
				return
			}
			if got := a.next(t, timerSlack).history(); !strings.HasPrefix(got, `first=null second={`) {
				t.Errorf("%d ms beside the end its history is %s", offset, got)
			}
		})
	}
	if len(came) != 2 {
		t.Errorf("both orders should come about: %v", came)
	}
}

// Rule E1: an event and a wait may be stored in any order, and at once: neither misses the other.
func TestAnEventBesideTheRegistrationOfItsWaitIsNeverMissed(t *testing.T) {
	for offset := 0; offset <= 60; offset += 2 {
		bubble(t, func(t *testing.T) {
			a := newApp(wire.Workflow{Name: "w"})
			n, s := startFaulty(t, a)
			n.start(t, "w")
			c := a.next(t, time.Second)
			s.set(func([]store.Change) error { time.Sleep(20 * time.Millisecond); return nil })
			go func() {
				time.Sleep(time.Duration(offset) * time.Millisecond)
				n.emit(t, engine.NewEvent{Name: "answer", Payload: jsontext.Value(`1`)})
			}()
			time.Sleep(30 * time.Millisecond)
			c.nonce = "n"
			c.end(t, wire.End{Type: wire.Suspended, Register: []wire.Item{forEvent("answer", "answer")}, Waits: []wire.Tree{leaf("answer")}})
			if got := a.next(t, timerSlack).history(); !strings.Contains(got, `"payload":1`) {
				t.Errorf("emitted after %d ms: its history is %s", offset, got)
			}
			a.none(t, time.Minute)
		})
	}
}

// An event wins over a long sleep beside it, however often the server restarts meanwhile, and every later call is told the same.
func TestAnEventWinsOverALongSleepBesideIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		s := memory.New()
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		id := n.start(t, "w").Run.ID
		a.next(t, time.Second).suspend(t, "n", 0, forEvent("paid", "paid"), sleep("limit", 40*day))
		for range 20 {
			n.stop()
			time.Sleep(day - time.Minute)
			n = startNode(t, s, a, engine.Options{})
			n.know(t)
			a.none(t, time.Minute)
		}
		n.emit(t, engine.NewEvent{Name: "paid"})
		for range 3 {
			c := a.next(t, time.Minute)
			if !strings.HasPrefix(c.history(), "paid={") || strings.Contains(c.history(), "limit") {
				t.Fatalf("its history is %s", c.history())
			}
			c.nonce = "m"
			if c.Call.Call.Epoch < 4 {
				c.lose()
				continue
			}
			c.end(t, wire.End{Type: wire.Completed, Seen: 1})
		}
		synctest.Wait()
		want(t, "the run", n.run(t, id).Status, workflow.Completed)
		nothingLeft(t, n, s, id)
	})
}

// Waits side by side, of several events or of one by different filters, are each there once and ended once.
func TestWaitsSideBySideAreEachEndedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		big, small := forEvent("big", "paid"), forEvent("small", "paid")
		big.If, small.If = "payload.total > 10", "payload.total <= 10"
		c := a.next(t, time.Second)
		c.nonce = "n"
		c.end(t, wire.End{
			Type: wire.Suspended, Register: []wire.Item{big, small, forEvent("other", "other")},
			Waits: []wire.Tree{{All: []wire.Tree{leaf("big"), leaf("small"), leaf("other")}}},
		})
		synctest.Wait()
		for _, total := range []int{1, 2, 30, 40} {
			n.emit(t, engine.NewEvent{Name: "paid", Payload: jsontext.Value(fmt.Sprintf(`{"total":%d}`, total))}, engine.NewEvent{Name: "other"})
		}
		c = a.next(t, time.Minute)
		var names []string
		for _, e := range c.Steps.Entries {
			names = append(names, e.Name)
		}
		want(t, "its entries", fmt.Sprint(names), "[small other big]")
		if got := c.history(); !strings.Contains(got, `"total":1}`) || !strings.Contains(got, `"total":30}`) {
			t.Errorf("its history is %s", got)
		}
	})
}

// A link that is posted to many times at once, at two nodes, takes one answer.
func TestOfManyAnswersToACallbackOneIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		other := startNode(t, s, a, engine.Options{})
		other.know(t)
		n.start(t, "w")
		out := n.save(a.next(t, time.Second), "n", 0, wire.Item{Op: wire.OpCallback, Kind: "callback", Name: "ok", Number: 1})
		_, token, _ := strings.Cut(string(out.Items[0].Output), `"token":"`)
		token, _, _ = strings.Cut(token, `"`)
		s.set(func([]store.Change) error { time.Sleep(20 * time.Millisecond); return nil })
		answers := make(chan error, 12)
		for i := range 12 {
			go func() {
				answers <- []*node{n, other}[i%2].EndCallback(context.Background(), token, jsontext.Value(fmt.Sprint(i)))
			}()
		}
		taken := 0
		for range 12 {
			if err := <-answers; err == nil {
				taken++
			} else if !errors.Is(err, engine.ErrCallbackOver) {
				t.Error(err)
			}
		}
		want(t, "answers that were taken", taken, 1)
	})
}

// poisoned is a store that refuses what one run is to be told of, as long as that is so.
func poisoned(run string) func([]store.Change) error {
	return func(changes []store.Change) error {
		for _, c := range changes {
			for _, op := range c {
				if u, ok := op.(store.UpdateRun); ok && u.Run.ID == run && len(u.Append) > 0 {
					return fmt.Errorf("a value that the database refuses: %w", store.ErrBadChange)
				}
			}
		}
		return nil
	}
}

// Rules E1, E2: a run that can't be told of an event holds up no other, nor the events that follow, and gets its own in their order once
// it can, also after a restart.
func TestARunThatCannotBeToldOfAnEventHoldsUpNoOther(t *testing.T) {
	for _, restart := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			a := newApp(wire.Workflow{Name: "w"})
			n, s := startFaulty(t, a)
			bad := n.start(t, "w").Run.ID
			a.next(t, time.Second).suspend(t, "n", 0, forEvent("first", "paid"), forEvent("second", "paid"))
			for range 2 {
				n.start(t, "w")
				a.next(t, time.Second).suspend(t, "n", 0, forEvent("first", "paid"), forEvent("second", "paid"))
			}
			s.set(poisoned(bad))
			n.emit(t, engine.NewEvent{Name: "paid", Payload: jsontext.Value(`1`)})
			for range 2 {
				c := a.next(t, timerSlack)
				if c.Run.ID == bad || !strings.Contains(c.history(), `"payload":1`) {
					t.Fatalf("run %s has the history %s", c.Run.ID, c.history())
				}
				c.nonce = "m"
				c.end(t, wire.End{Type: wire.Suspended, Seen: 1, Waits: []wire.Tree{leaf("second")}})
			}
			n.emit(t, engine.NewEvent{Name: "paid", Payload: jsontext.Value(`2`)})
			for range 2 {
				if got := a.next(t, timerSlack).history(); !strings.Contains(got, `"payload":2`) {
					t.Errorf("the event after it: %s", got)
				}
			}
			time.Sleep(time.Minute)
			if restart {
				n.stop()
			}
			s.set(nil)
			if restart {
				n = startNode(t, s, a, engine.Options{})
				n.know(t)
			}
			for end := time.Now().Add(time.Minute); time.Now().Before(end); {
				c := a.next(t, time.Minute)
				if c.Run.ID != bad {
					continue
				}
				got := c.history()
				first, second, both := strings.Cut(got, " second=")
				if !strings.Contains(first, `"payload":1`) || (both && !strings.Contains(second, `"payload":2`)) {
					t.Errorf("restart %v: its history is %s", restart, got)
				}
				return
			}
			t.Error("it was not told")
		})
	}
}

// The same holds for what came before its wait, and for children that have ended.
func TestARunThatCannotBeToldHoldsUpNoOther(t *testing.T) {
	for what, item := range map[string]wire.Item{"an earlier event": forEvent("it", "paid"), "its child": invoke("it", "child")} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "child"})
				n, s := startFaulty(t, a)
				calls := map[string]*sentCall{}
				bad := n.start(t, "w").Run.ID
				calls[bad] = a.next(t, time.Second)
				good := n.start(t, "w").Run.ID
				calls[good] = a.next(t, time.Second)
				n.emit(t, engine.NewEvent{Name: "paid", Payload: jsontext.Value(`1`)})
				synctest.Wait()
				s.set(func(changes []store.Change) error {
					if strings.Contains(fmt.Sprintf("%+v", changes), "StepID:{Name:it") {
						return poisoned(bad)(changes)
					}
					return nil
				})
				for _, id := range []string{bad, good} {
					calls[id].suspend(t, "n", 0, item)
				}
				for told := ""; told != good; {
					c := a.next(t, time.Minute)
					if c.Run.Workflow == "child" {
						c.end(t, wire.End{Type: wire.Completed, Output: jsontext.Value(`1`)})
						continue
					}
					if told = c.Run.ID; told == bad {
						t.Fatal("it was told what can't be stored")
					}
				}
				s.set(nil)
				want(t, "told once it can be", a.next(t, time.Minute).Run.ID, bad)
			})
		})
	}
}

// Of a cancelling event and a start at one instant the order decides: what came before the run is not meant for it.
func TestACancellingEventOfTheSameInstantCountsByItsOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", CancelOn: []wire.Trigger{{Event: "off"}}})
		n, _ := startApp(t, a, engine.Options{})
		before := n.start(t, "w").Run.ID
		first := a.next(t, time.Second)
		n.emit(t, engine.NewEvent{Name: "off"})
		after := n.start(t, "w").Run.ID
		second := a.next(t, time.Second)
		synctest.Wait() // the event is looked at
		first.end(t, wire.End{Type: wire.Yielded})
		second.suspend(t, "n", 0, sleep("nap", time.Hour))
		time.Sleep(timerSlack)
		want(t, "the run that was there", n.run(t, before).Status, workflow.Cancelled)
		want(t, "the run that came after it", n.run(t, after).Status, workflow.Waiting)
	})
}

// A filter that can't be used fails its wait with a sentence, and one that fails on an event does not match: none ever matches all.
func TestAWaitsFilterIsRefusedOrDecides(t *testing.T) {
	for filter, refused := range map[string]bool{
		"payload.total >": true, " \n// nothing\n": true, "payload.upper() == 'A'": true, "event.event == 3": true, "event.id": true,
		strings.Repeat("(", 1000) + "true" + strings.Repeat(")", 1000): true, "payload.a == '" + strings.Repeat("a", 10_000) + "'": true,
		"payload.missing == 1": false, "payload.total > 'a'": false, "payload.none.x == 1": false, "payload.total": false, "\n\nfalse // no\n": false,
	} {
		t.Run(fmt.Sprintf("%.30q", filter), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"})
				n, _ := startApp(t, a, engine.Options{})
				n.start(t, "w")
				wait := forEvent("x", "paid")
				wait.If = filter
				a.next(t, time.Second).suspend(t, "n", 0, wait)
				if refused {
					if got := a.next(t, time.Second).history(); !strings.HasPrefix(got, `x!{"name":"WaitError","message":"the wait \"x\": if: `) {
						t.Errorf("its history is %s", got)
					}
					return
				}
				n.emit(t, engine.NewEvent{Name: "paid", Payload: jsontext.Value(`{"total":1,"none":null}`)})
				a.none(t, time.Minute)
			})
		})
	}
}

// unread is a store whose records can't be read at times.
type unread struct {
	store.Store
	fails atomic.Bool
}

func (u *unread) Record(ctx context.Context, env, id string) (store.RunRecord, error) {
	if u.fails.Load() {
		return store.RunRecord{}, errors.New("the disk can't be read")
	}
	return u.Store.Record(ctx, env, id)
}

// E1: a wait with a filter gets its event also where its run could not be read when the two were first looked at.
func TestAnEventIsNotLostToAReadThatFails(t *testing.T) {
	for _, early := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			a := newApp(wire.Workflow{Name: "w"})
			s := &unread{Store: memory.New()}
			n := startNode(t, s, a, engine.Options{})
			n.know(t)
			id := n.start(t, "w").Run.ID
			c := a.next(t, time.Second)
			paid := engine.NewEvent{Name: "paid", Payload: jsontext.Value(`{"total":1}`)}
			if early {
				n.emit(t, paid)
			}
			wait := forEvent("approval", "paid")
			wait.If = "payload.total > 0"
			s.fails.Store(early)
			c.suspend(t, "n", 0, wait)
			s.fails.Store(true)
			if !early {
				n.emit(t, paid)
			}
			time.Sleep(time.Second)
			s.fails.Store(false)
			next := a.next(t, 10*time.Second)
			if next.Run.ID != id || !strings.Contains(next.history(), "paid") {
				t.Errorf("early %v: the next call has %s", early, next.history())
			}
		})
	}
}

// Rules E1, E2: however many runs wait for one event, or each for its own, they are told side by side, and so are those that look back.
func TestManyRunsAreGivenTheirEventsSideBySide(t *testing.T) {
	const runs = 1_000
	slowly := func([]store.Change) error { time.Sleep(20 * time.Millisecond); return nil }
	suspendAll := func(t *testing.T, calls []*sentCall, seen int64, wait func(i int) wire.Item) {
		t.Helper()
		for i, c := range calls {
			c.nonce = "n"
			item := wait(i)
			waits := []wire.Tree{{Wait: &wire.StepRef{Name: item.Name, Number: item.Number}}}
			c.end(t, wire.End{Type: wire.Suspended, Seen: seen, Register: []wire.Item{item}, Waits: waits})
		}
		synctest.Wait()
	}
	emitAll := func(t *testing.T, n *node) {
		t.Helper()
		var events []engine.NewEvent
		for i := range runs {
			events = append(events, engine.NewEvent{Name: fmt.Sprint("go", i)})
		}
		n.emit(t, events...)
	}
	one := func(int) wire.Item { return forEvent("go", "go") }
	own := func(i int) wire.Item { return forEvent("go", fmt.Sprint("go", i)) }
	posted := func(int) wire.Item {
		return wire.Item{Op: wire.OpWait, Kind: "callback", Name: "approval", Number: 2, Of: 1}
	}
	for what, happens := range map[string]func(t *testing.T, n *node, s *faulty, calls []*sentCall){
		"one event": func(t *testing.T, n *node, s *faulty, calls []*sentCall) {
			suspendAll(t, calls, 0, one)
			s.set(slowly)
			n.emit(t, engine.NewEvent{Name: "go"})
		},
		"an event for each": func(t *testing.T, n *node, s *faulty, calls []*sentCall) {
			suspendAll(t, calls, 0, own)
			s.set(slowly)
			emitAll(t, n)
		},
		"events that came before": func(t *testing.T, n *node, s *faulty, calls []*sentCall) {
			emitAll(t, n)
			synctest.Wait()
			s.set(slowly)
			suspendAll(t, calls, 0, own)
		},
		"a callback for each": func(t *testing.T, n *node, s *faulty, calls []*sentCall) {
			var tokens []string
			for _, c := range calls {
				tokens = append(tokens, n.saveCallback(c, 0, nil))
			}
			suspendAll(t, calls, 1, posted)
			s.set(slowly)
			for _, token := range tokens {
				go n.EndCallback(t.Context(), token, jsontext.Value(`1`))
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"})
				s := &faulty{Store: memory.New()}
				n := startNode(t, s, a, engine.Options{Concurrency: runs})
				n.know(t)
				var calls []*sentCall
				for range runs {
					n.start(t, "w")
					calls = append(calls, a.next(t, time.Second))
				}
				happens(t, n, s, calls)
				began := time.Now()
				for range runs {
					a.next(t, time.Minute)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("the last run was told after %v", took)
				}
			})
		})
	}
}
