package play

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// Logger writes to the app's logger, with the run on every line, and in a step the step and its attempt; and to the run's log. Code that
// is shown again what it was shown before writes to neither.
func (f *Frame) Logger() *slog.Logger {
	return slog.New(&logHandler{frame: f, local: f.Local().Handler()})
}

// Local writes to the app's logger alone.
func (f *Frame) Local() *slog.Logger {
	logger := f.Playing.host.Logger.With("run", f.Playing.call.Run.ID)
	if f.Attempt == nil {
		return logger.With("attempt", f.Playing.call.Run.Attempt)
	}
	return logger.With("step", f.Attempt.Name, "attempt", f.Attempt.Attempt)
}

// logHandler is the handler of a run's logger. It may be used by many goroutines, also while the call ends.
type logHandler struct {
	frame *Frame
	local slog.Handler
	given []given // attributes and groups of With and WithGroup, in order
}

// given is what one With or WithGroup gave.
type given struct {
	group string // opens a group; empty: attrs are given
	attrs []slog.Attr
}

// Enabled is true for every level: what the app's logger leaves out the run's log has.
func (h *logHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(given{attrs: attrs}, h.local.WithAttrs(attrs))
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.with(given{group: name}, h.local.WithGroup(name))
}

func (h *logHandler) with(g given, local slog.Handler) slog.Handler {
	return &logHandler{frame: h.frame, local: local, given: append(slices.Clip(h.given), g)}
}

// Handle writes a record. Whatever its values do, it neither fails nor panics: a line must never fail a run.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	line, written, sent := h.frame.lineOf()
	if !written {
		return nil
	}
	h.writeLocal(ctx, r)
	if !sent {
		return nil
	}
	// The values' own methods run here, under no lock.
	if !r.Time.IsZero() {
		line.At = r.Time
	}
	line.Level, line.Message, line.Fields = levelOf(r.Level), messageOf(r.Message), h.fields(r)
	p := h.frame.Playing
	p.input(func(now time.Time) { p.m.Log(line, now) })
	return nil
}

// lineOf numbers a line of this frame.
func (f *Frame) lineOf() (line *wire.Line, written, sent bool) {
	p, attempt := f.Playing, 0
	if f.Attempt != nil {
		attempt = f.Attempt.Attempt
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.m.LineOf(f.step, attempt, time.Now())
}

func (h *logHandler) writeLocal(ctx context.Context, r slog.Record) {
	defer func() { _ = recover() }() // a handler of the user's that panics has nothing written
	if h.local.Enabled(ctx, r.Level) {
		_ = h.local.Handle(ctx, r.Clone()) // slog's own methods ignore it too
	}
}

func levelOf(l slog.Level) string {
	switch {
	case l < slog.LevelInfo:
		return wire.LevelDebug
	case l < slog.LevelWarn:
		return wire.LevelInfo
	case l < slog.LevelError:
		return wire.LevelWarn
	}
	return wire.LevelError
}
