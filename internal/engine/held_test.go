package engine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/store/storetest"
	"github.com/nelkap/nelkap/internal/workflow"
)

// Rule N5: on a store that was restored nothing happens by itself, whatever is due, until its runs go on.
func TestAHeldStoreStandsStillUntilItGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, s := hourly("all"), memory.New()
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		inCall, queued := n.start(t, "w"), n.start(t, "w")
		a.next(t, time.Second)
		a.next(t, time.Second).lose()
		n.stop()
		a.none(t, 5*time.Hour) // leases are over, ticks are due
		before := storetest.Dump(t, s)
		looks := a.looks()
		held := startNode(t, s, a, engine.Options{Held: true})
		a.none(t, 10*time.Hour)
		if diff := cmp.Diff(before, storetest.Dump(t, s)); diff != "" {
			t.Errorf("the store has changed (-before +after)\n%s", diff)
		}
		want(t, "looks at the app", a.looks(), looks)
		if record, err := held.Cancel(t.Context(), engine.DefaultEnv, queued.Run.ID, true); err != nil || record.Status != workflow.Cancelled {
			t.Errorf("a cancel: %s, %v", record.Status, err)
		}
		held.stop()
		startNode(t, s, a, engine.Options{})
		for range 20 { // ticks come too
			if c := a.next(t, time.Hour); c.Run.ID == inCall.Run.ID {
				return
			}
		}
		t.Error("the run did not go on")
	})
}
