package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
)

// late is a store where one look at waits of a kind takes two seconds: before it reads, or after.
type late struct {
	store.Store
	mu            sync.Mutex
	before, after store.WaitSet
}

// slow makes the next look at such waits take long.
func (l *late) slow(before, after store.WaitSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.before, l.after = before, after
}

func (l *late) rest(of *store.WaitSet, set store.WaitSet) {
	l.mu.Lock()
	slow := *of == set
	if slow {
		*of = ""
	}
	l.mu.Unlock()
	if slow {
		time.Sleep(2 * time.Second)
	}
}

func (l *late) Waits(ctx context.Context, q store.WaitQuery) ([]store.Wait, error) {
	l.rest(&l.before, q.Set)
	defer l.rest(&l.after, q.Set)
	return l.Store.Waits(ctx, q)
}

// Rule H2: what a run waits for may come while its end is taken; that is no mistake of the app's, and no cut.
func TestAWaitThatIsOverWhileItsCallSuspendsCallsTheRunAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		s := &late{Store: memory.New()}
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		n.start(t, "w")
		c := a.next(t, time.Second)
		n.save(c, "n", 0, sleep("nap", time.Second))
		s.slow(store.WaitsOfRun, "")
		c.nonce = "n"
		c.end(t, wire.End{Type: wire.Suspended, Waits: []wire.Tree{leaf("nap")}})
		synctest.Wait()
		again := a.next(t, 3*time.Second)
		want(t, "its history", again.history(), "nap=")
		want(t, "its cuts", again.Call.Call.Cuts, 0)
	})
}

// Rule E2: an event that came before a wait's time was over is given to it, though the look at who waits takes longer than that.
func TestAnEventThatCameInTimeIsGivenToItsWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		s := &late{Store: memory.New()}
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		n.start(t, "w")
		short := forEvent("short", "paid")
		short.TimeoutMs = ms(time.Second)
		a.next(t, time.Second).suspend(t, "n1", 0, short, forEvent("long", "paid"))
		time.Sleep(500 * time.Millisecond)
		s.slow("", store.WaitsForEvent)
		n.emit(t, engine.NewEvent{Name: "paid", ID: "e"})
		c := a.next(t, 3*time.Second)
		if got := c.history(); !strings.HasPrefix(got, `short={"id":"e"`) {
			t.Errorf("its history is %s", got)
		}
		want(t, "what still waits", fmt.Sprint(c.Steps.Waiting), "[{event long 1}]")
	})
}

// N4: a call that another node has ended holds no slot of its app any more, once this node hears so.
func TestACallThatAnotherNodeEndedFreesItsSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, s := newApp(wire.Workflow{Name: "w"}), memory.New()
		n := startNode(t, s, a, engine.Options{Concurrency: 1})
		n.know(t)
		n.start(t, "w")
		first := a.next(t, time.Second)
		n.save(first, "n", 0, completed("a", `1`))
		other := startNode(t, s, newApp(), engine.Options{})
		end := wire.SentEnd{Fence: first.fence("n"), End: wire.End{Type: wire.Completed, Seen: 1}}
		want(t, "the end, told to the other node", other.End(context.Background(), wire.Ends{Process: "process", Ends: []wire.SentEnd{end}}).Ends[0].Status, wire.Accepted)
		other.stop()
		want(t, "a late save", n.save(first, "n", 1, completed("b", `2`)).Status, wire.Ended)
		n.start(t, "w")
		a.next(t, time.Minute)
	})
}
