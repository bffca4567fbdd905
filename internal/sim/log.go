package sim

import (
	"context"
	"errors"
	"log/slog"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
)

// logHandler takes what a node logs. An error that no fault of the store or the network explains is a violation.
type logHandler struct{ node *node }

// faulted are the errors that a fault explains.
var faulted = []error{errDisk, errReset, errRefused, store.ErrUnknown, store.ErrRowLocked, engine.ErrUnstored, engine.ErrStopping, context.Canceled, context.DeadlineExceeded}

// Enabled implements slog.Handler.
func (h logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError
}

// Handle implements slog.Handler.
func (h logHandler) Handle(_ context.Context, record slog.Record) error {
	if h.node.world.isOver() || h.node.isDead() {
		return nil
	}
	explained, text := false, record.Message
	record.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		if err, ok := a.Value.Any().(error); ok {
			for _, fault := range faulted {
				explained = explained || errors.Is(err, fault)
			}
		}
		return true
	})
	h.node.world.trace.add(h.node.name, "logs", text)
	if !explained {
		h.node.world.violation("log", "%s: %s", h.node.name, text)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(string) slog.Handler { return h }
