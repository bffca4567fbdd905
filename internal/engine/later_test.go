package engine_test

import (
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
)

// A commit takes its time: who is told before it that something is due sees nothing.
func TestAnEventForLaterIsHeardOfOnceItIsStored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Event: "paid"}}})
		n, s := startFaulty(t, a)
		time.Sleep(time.Minute + 100*time.Millisecond)
		s.set(func([]store.Change) error { time.Sleep(5 * time.Millisecond); return nil })
		at := time.Now().Add(200 * time.Millisecond)
		n.emit(t, engine.NewEvent{Name: "paid", At: at})
		a.next(t, time.Minute)
		if late := time.Since(at); late > time.Second {
			t.Errorf("the event came %v late", late)
		}
	})
}
