package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// unreadable is a store that can't read one run's state, and counts how often timers are asked for.
type unreadable struct {
	store.Store
	run   atomic.Value
	looks atomic.Int64
}

func (u *unreadable) State(ctx context.Context, q store.EntryQuery) (store.State, error) {
	if q.RunID == u.run.Load() {
		return store.State{}, errors.New("database disk image is malformed")
	}
	return u.Store.State(ctx, q)
}

func (u *unreadable) Timers(ctx context.Context, now time.Time, limit int) ([]workflow.Run, error) {
	if u.looks.Add(1) == 10_000 {
		panic("10,000 looks")
	}
	return u.Store.Timers(ctx, now, limit)
}

func TestATimerThatFailsIsNotTriedWithoutAPause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, s := newApp(wire.Workflow{Name: "w"}), &unreadable{Store: memory.New()}
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		run := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		c.end(t, wire.End{Type: wire.Suspended, Register: []wire.Item{sleep("s", time.Minute)}, Waits: []wire.Tree{{Wait: &wire.StepRef{Name: "s", Number: 1}}}})
		time.Sleep(30 * time.Second)
		s.run.Store(run)
		before := s.looks.Load()
		time.Sleep(time.Minute)
		if got := s.looks.Load() - before; got > 100 {
			t.Errorf("%d looks in a minute", got)
		}
		s.run.Store("")
		a.next(t, 6*time.Second)
	})
}
