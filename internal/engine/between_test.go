package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
)

// What is read is old when it is acted upon: in these tests something happens in between.

// between is a store of which one read, once it is armed, waits with its answer until the test has had something happen.
type between struct {
	store.Store
	afterWaits  func(q store.WaitQuery, found []store.Wait) bool // whether it is this read
	afterEvents func(q store.EventQuery) bool
	slow        store.WaitSet // whose reads take a while

	armed         atomic.Bool
	reached, over chan struct{}
	once          sync.Once
}

func startBetween(t *testing.T, s *between, a *app) *node {
	t.Helper()
	s.Store, s.reached, s.over = memory.New(), make(chan struct{}), make(chan struct{})
	n := startNode(t, s, a, engine.Options{})
	t.Cleanup(s.goOn)
	n.know(t)
	return n
}

// goOn lets the read that waits have its answer.
func (s *between) goOn() { s.once.Do(func() { close(s.over) }) }

func (s *between) stop() {
	if s.armed.CompareAndSwap(true, false) {
		close(s.reached)
		<-s.over
	}
}

func (s *between) Waits(ctx context.Context, q store.WaitQuery) ([]store.Wait, error) {
	if s.slow == q.Set {
		time.Sleep(20 * time.Millisecond)
	}
	waits, err := s.Store.Waits(ctx, q)
	if s.afterWaits != nil && s.afterWaits(q, waits) {
		s.stop()
	}
	return waits, err
}

func (s *between) Events(ctx context.Context, q store.EventQuery) ([]store.Event, error) {
	events, err := s.Store.Events(ctx, q)
	if s.afterEvents != nil && s.afterEvents(q) {
		s.stop()
	}
	return events, err
}

// finds is a read that finds waits of a set.
func finds(set store.WaitSet) func(store.WaitQuery, []store.Wait) bool {
	return func(q store.WaitQuery, found []store.Wait) bool { return q.Set == set && len(found) > 0 && q.Limit > 1 }
}

// orderPaid waits for the payment of an order.
func orderPaid(id string) wire.Item {
	w := forEvent("paid", "paid")
	w.Match = map[string]jsontext.Value{"payload.id": jsontext.Value(id)}
	return w
}

// beginsAgain ends c with a restart, and the next call with a wait.
func (a *app) beginsAgain(t *testing.T, c *sentCall, first wire.Item) {
	t.Helper()
	c.nonce = "n"
	c.end(t, wire.End{Type: wire.Restarted, Payload: jsontext.Value(`2`)})
	next := a.next(t, 10*time.Second)
	next.nonce = "n"
	next.end(t, wire.End{Type: wire.Suspended, Register: []wire.Item{first}, Waits: []wire.Tree{{Wait: &wire.StepRef{Name: first.Name, Number: first.Number}}}})
	time.Sleep(time.Second)
}

// Z2: a wait of the chapter before has the name of one of this chapter, and is another.
func TestAnEventIsNotGivenToTheWaitOfALaterChapter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		s := &between{afterWaits: finds(store.WaitsForEvent)}
		n := startBetween(t, s, a)
		n.start(t, "w")
		c := a.next(t, time.Second)
		n.save(c, "n", 0, orderPaid(`"o_1"`))
		time.Sleep(10 * time.Second)
		s.armed.Store(true)
		n.emit(t, engine.NewEvent{Name: "paid", Payload: jsontext.Value(`{"id":"o_1"}`)})
		<-s.reached
		a.beginsAgain(t, c, orderPaid(`"o_2"`))
		s.goOn()
		a.none(t, time.Minute)
		n.emit(t, engine.NewEvent{Name: "paid", Payload: jsontext.Value(`{"id":"o_2"}`)})
		if got := a.next(t, 10*time.Second).history(); !strings.Contains(got, `"id":"o_2"`) {
			t.Errorf("the wait for o_2 got %s", got)
		}
	})
}

// E1, Z2: that a wait has looked back says nothing of the wait of a later chapter.
func TestAWaitOfALaterChapterLooksBackItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		s := &between{afterEvents: func(q store.EventQuery) bool { return q.UnusedBy != "" }}
		n := startBetween(t, s, a)
		n.start(t, "w")
		c := a.next(t, time.Second)
		n.emit(t, engine.NewEvent{Name: "paid", Payload: jsontext.Value(`{"id":"o_2"}`)})
		time.Sleep(10 * time.Second)
		s.armed.Store(true)
		n.save(c, "n", 0, orderPaid(`"o_1"`))
		<-s.reached
		a.beginsAgain(t, c, orderPaid(`"o_2"`))
		s.goOn()
		if got := a.next(t, time.Minute).history(); !strings.Contains(got, `"id":"o_2"`) {
			t.Errorf("the wait for o_2 got %s", got)
		}
	})
}

// K5, Z2: a post to the callback of a chapter that is over is nothing to the callback of this one.
func TestACallbackOfALaterChapterWaitsForItsOwnPost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		s := &between{afterWaits: finds(store.WaitsFulfilled)}
		n := startBetween(t, s, a)
		n.start(t, "w")
		c := a.next(t, time.Second)
		token := n.saveCallback(c, 0, nil)
		wait := wire.Item{Op: wire.OpWait, Kind: "callback", Name: "approval", Number: 2, Of: 1}
		n.save(c, "n", 1, wait)
		s.armed.Store(true)
		if err := n.EndCallback(context.Background(), token, jsontext.Value(`"yes"`)); err != nil {
			t.Fatal(err)
		}
		<-s.reached
		c.nonce = "n"
		c.end(t, wire.End{Type: wire.Restarted, Payload: jsontext.Value(`2`)})
		c = a.next(t, 10*time.Second)
		n.saveCallback(c, 0, nil)
		c.suspend(t, "n", 1, wait)
		s.goOn()
		a.none(t, time.Minute)
	})
}

// saveCallback makes a callback, and gives its token.
func (n *node) saveCallback(c *sentCall, seen int64, timeout *int64) string {
	item := wire.Item{Op: wire.OpCallback, Kind: "callback", Name: "approval", Number: 1, TimeoutMs: timeout}
	_, token, _ := strings.Cut(string(n.save(c, "n", seen, item).Items[0].Output), `"token":"`)
	token, _, _ = strings.Cut(token, `"`)
	return token
}

// E2: of a post and the end of its time one is first. Who was told that it was taken can rely on that.
func TestAPostThatIsAcknowledgedIsGiven(t *testing.T) {
	for _, before := range []time.Duration{40 * time.Millisecond, 5 * time.Millisecond, time.Millisecond} {
		t.Run(before.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"})
				n, s := startFaulty(t, a)
				n.start(t, "w")
				c := a.next(t, time.Second)
				began := time.Now()
				token := n.saveCallback(c, 0, ms(time.Minute))
				c.suspend(t, "n", 1, wire.Item{Op: wire.OpWait, Kind: "callback", Name: "approval", Number: 2, Of: 1})
				s.set(func([]store.Change) error { time.Sleep(30 * time.Millisecond); return nil })
				time.Sleep(time.Until(began.Add(time.Minute - before)))
				err := n.EndCallback(context.Background(), token, jsontext.Value(`"yes"`))
				if err != nil && !errors.Is(err, engine.ErrCallbackOver) {
					t.Fatal(err)
				}
				got := a.next(t, 10*time.Second).history()
				if given := strings.Contains(got, `"yes"`); given != (err == nil) {
					t.Errorf("the post was told %v, and the run got %s", err, got)
				}
			})
		})
	}
}

// E1, E2: a wait of no time looks back before it is over, also where it is registered while another's time ends.
func TestAWaitOfNoTimeLooksBackFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		due := time.Now().Add(16 * time.Second) // the pass after that is the one that looks for what has come for the first wait
		s := &between{slow: store.WaitsUnlooked, afterWaits: func(q store.WaitQuery, _ []store.Wait) bool {
			return q.Set == store.WaitsFulfilled && !time.Now().Before(due)
		}}
		n := startBetween(t, s, a)
		n.start(t, "w")
		c := a.next(t, time.Second)
		n.emit(t, engine.NewEvent{Name: "paid"})
		time.Sleep(6 * time.Second)
		first, second := forEvent("first", "never"), forEvent("second", "paid")
		first.TimeoutMs, second.TimeoutMs = ms(11*time.Second), ms(0)
		n.save(c, "n", 0, first)
		s.armed.Store(true)
		<-s.reached
		n.save(c, "n", 0, second)
		s.goOn()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		entries, err := s.Entries(context.Background(), store.EntryQuery{RunID: c.Run.ID, EntriesMax: 10, BytesMax: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name == "second" && string(e.Output) == "null" {
				t.Error("the event was there, and the wait got none")
			}
		}
		want(t, "entries", len(entries), 2)
	})
}

// Rule E2: an event is given by the node that matches, and by none that another has followed meanwhile.
func TestANodeThatHasLostTheMatchingGivesNoEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, 2, engine.Options{})
		c.nodes[0].start(t, "w")
		c.app.next(t, time.Second).suspend(t, "n", 0, forEvent("paid", "paid"))
		var given atomic.Int64
		before := func(changes []store.Change) {
			for _, change := range changes {
				for _, op := range change {
					if _, gives := op.(store.UseEvent); !gives || given.Add(1) > 1 {
						continue
					}
					if _, err := c.store.Commit(t.Context(), []store.Change{{store.TakeCursor{Cursor: "events matched", Owner: "node1"}}}); err != nil {
						t.Error(err)
					}
				}
			}
		}
		c.ways[0].before.Store(&before)
		c.nodes[0].emit(t, engine.NewEvent{Name: "paid"})
		c.app.next(t, time.Minute)
		want(t, "tries until it was given", given.Load(), int64(2))
	})
}
