package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
)

func TestWhatWasWrittenAndNotSyncedIsNotSaidToBeUndone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, s := startFaulty(t, newApp(wire.Workflow{Name: "w"}))
		first := true
		s.set(func([]store.Change) error {
			if first {
				first = false
				return store.ErrUnsynced
			}
			return errors.New("the disk is gone")
		})
		_, err := n.StartRun(context.Background(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: "w"})
		if !errors.Is(err, store.ErrUnknown) {
			t.Errorf("got %v, want that nobody knows", err)
		}
	})
}
