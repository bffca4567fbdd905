package nelkaptest

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// closing is what a run closes with.
type closing struct{ wire.Closing }

// endingNow is what a save's answer says of the run's end: nothing any more once it closes.
func (r *run) endingNow() *wire.Ending {
	if r.closing != nil {
		return nil
	}
	return r.ending
}

// close closes a run that failed for good, timed out or was cancelled (Z1): it is called again where it has something to undo, or a
// handler. mu is held.
func (w *world) close(r *run, reason string, failure *wire.Error) {
	if r.closing != nil { // what the closing throws for good ends it too
		w.closed(r)
		return
	}
	r.closing = &closing{wire.Closing{Reason: reason, Error: failure, Entries: int64(len(r.entries))}}
	w.closeWaits(r)
	d := w.declared[r.workflow]
	undo := slices.ContainsFunc(r.entries, func(e entry) bool { return e.Kind == wire.KindUndo && e.Status == wire.OpCompleted })
	handled := d.OnFailure && reason != wire.ReasonCancelled || d.OnCancel && reason == wire.ReasonCancelled
	if w.options.workflows[r.workflow] != nil || !undo && !handled {
		w.closed(r)
		return
	}
	w.tell(r, wire.News{Status: wire.StatusSuperseded}) // of a body that did not heed its context in time
	r.process, r.attempt, r.cuts, r.endingAt = nil, 1, 0, time.Time{}
	w.enqueue(r)
}

// closed gives a run the end that it closes with. mu is held.
func (w *world) closed(r *run) {
	status := nelkap.StatusFailed
	if r.closing.Reason == wire.ReasonCancelled {
		status = nelkap.StatusCancelled
	}
	w.finish(r, status, nil, r.closing.Error)
}

// closeWaits closes what is open, and cancels the run's children. mu is held.
func (w *world) closeWaits(r *run) {
	waits := r.waits
	r.waits, r.retries, r.trees = nil, nil, nil
	for _, t := range waits {
		if t.child != nil {
			w.cancel(t.child, wire.ReasonCancelled)
		}
	}
}

// restart has a run begin again in its place (Z2): its history is a closed chapter. mu is held.
func (w *world) restart(r *run, payload json.RawMessage) {
	w.closeWaits(r)
	r.restarts++
	r.payload, r.entries, r.callbacks, r.starts = payload, nil, nil, map[ref]*process{}
	r.attempt, r.cuts = 1, 0
	w.enqueue(r)
}

// waitsFor is true where the run waits for a step of that name.
func (r *run) waitsFor(step string) bool {
	return r.status == nelkap.StatusWaiting && r.closing == nil &&
		(slices.ContainsFunc(r.waits, func(t *wait) bool { return t.item.Name == step }) ||
			slices.ContainsFunc(r.retries, func(s *retry) bool { return s.Name == step }))
}

// line is a line of a run's log.
type line struct {
	Level, Message string
	Fields         json.RawMessage
	Step           *ref
	Attempt        int
	Entry          int64
	Number         int `json:"line"`
}

// keep keeps lines that p sent, each once.
func (r *run) keep(p *process, lines []line) {
	for _, l := range lines {
		key := fmt.Sprint(r.restarts, " ", l.Entry, " ", l.Attempt, " ", l.Number)
		if l.Step != nil {
			key = fmt.Sprintf("%s %q %d %d %d", p.id, l.Step.Name, l.Step.Number, l.Attempt, l.Number)
		}
		if !r.said[key] {
			r.said[key] = true
			r.lines = append(r.lines, l)
		}
	}
}

func (l *line) played() PlayedLine {
	p := PlayedLine{Message: l.Message, Fields: l.Fields, Attempt: l.Attempt}
	if err := p.Level.UnmarshalText([]byte(l.Level)); err != nil {
		p.Level = slog.LevelInfo
	}
	if l.Step != nil {
		p.Step, p.Number = l.Step.Name, l.Step.Number
	}
	return p
}
