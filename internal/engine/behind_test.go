package engine_test

import (
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
)

// A run for tomorrow stands in the line before those that only the store knows.
func TestARunForLaterHoldsUpNoneThatIsDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, s := newApp(wire.Workflow{Name: "w"}), memory.New()
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		a.fail(&call.Outcome{Kind: call.NotSent, Reason: "connection refused"})
		due := n.start(t, "w").Run.ID
		time.Sleep(time.Second)
		n.stop()
		n = startNode(t, s, a, engine.Options{})
		n.startWith(t, engine.StartRequest{Delay: 24 * time.Hour})
		a.fail(nil)
		c := a.next(t, 2*time.Minute)
		want(t, "the run that is called", c.Run.ID, due)
	})
}

// So many for later that no more fit into the line.
func TestALineFullOfRunsForLaterHoldsUpNoneThatIsDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, s := newApp(wire.Workflow{Name: "w"}), memory.New()
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		for range 10_000 {
			n.startWith(t, engine.StartRequest{Delay: 24 * time.Hour})
		}
		due := n.start(t, "w").Run.ID
		c := a.next(t, 10*time.Second)
		want(t, "the run that is called", c.Run.ID, due)
		later := n.startWith(t, engine.StartRequest{Delay: time.Minute}).Run.ID
		a.none(t, time.Minute-time.Millisecond)
		want(t, "the run that is called", a.next(t, 3*time.Second).Run.ID, later)
	})
}
