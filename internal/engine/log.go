package engine

import (
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"log/slog"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// The lines that follow one run, for whoever reads along in dev. They are at level Debug, and cost a comparison where that is
// off. They show names and ids, and of an error its name: no payload, no output and no message, which may hold secrets.

func (e *Engine) logging() bool { return e.log.Enabled(context.Background(), slog.LevelDebug) }

// logStarted tells of a run that was stored.
func (e *Engine) logStarted(run *workflow.Run) {
	if !e.logging() {
		return
	}
	args := []any{"workflow", run.Workflow, "run", run.ID}
	if run.Event != "" {
		args = append(args, "event", run.Event)
	}
	if run.ReplayOf != "" {
		args = append(args, "replayOf", run.ReplayOf)
	}
	e.log.Debug("run started", args...)
}

// logChange tells of a change that ended a run, or after which it waits.
func (e *Engine) logChange(c *change) {
	run := &c.decision.Run
	if !e.logging() || run.Status == c.before.Status {
		return
	}
	args := []any{"workflow", run.Workflow, "run", run.ID}
	switch {
	case run.Status.Final():
		args = append(args, "took", run.EndedAt.Sub(run.CreatedAt))
		if run.Status == workflow.Failed {
			args = append(args, "error", errorName(c.decision.Error))
		}
		e.log.Debug("run "+string(run.Status), args...)
	case run.Status == workflow.Waiting:
		if at := run.DueAt(); !at.IsZero() {
			args = append(args, "until", at.UTC().Format(time.RFC3339))
		}
		e.log.Debug("run waits", append(args, "why", run.Reason)...)
	}
}

// logSaved tells of the items of a committed save.
func (e *Engine) logSaved(l *live, save *wire.Save, outcomes []wire.ItemOutcome) {
	if !e.logging() {
		return
	}
	for i, o := range outcomes {
		item := &save.Items[i]
		args := []any{"workflow", l.workflow, "run", l.runID, "step", item.Name}
		if item.Number > 1 {
			args = append(args, "number", item.Number)
		}
		if !item.StartedAt.IsZero() && !item.EndedAt.IsZero() {
			args = append(args, "took", item.EndedAt.Sub(item.StartedAt.Time))
		}
		if item.Error != nil {
			args = append(args, "attempt", item.Attempt, "error", item.Error.Name)
		}
		switch {
		case o.Status == wire.ItemRetrying:
			e.log.Debug("step threw; it runs again", append(args, "in", time.Duration(o.RetryInMs)*time.Millisecond)...)
		case o.Status == wire.ItemRefused:
			e.log.Debug("step refused", append(args, "error", o.Error.Name)...)
		case item.Op == wire.OpFailed:
			e.log.Debug("step failed", args...)
		case o.Status == wire.ItemSaved:
			e.log.Debug("step saved", args...)
		}
	}
}

func errorName(value jsontext.Value) string {
	var thrown struct {
		Name string `json:"name"`
	}
	json.Unmarshal(value, &thrown) //nolint:errcheck // it is only shown
	return or(thrown.Name, "Error")
}

// withLogs adds the lines that came with a save or an end to its change.
func withLogs(change store.Change, run *workflow.Run, callID string, lines []wire.LogLine) store.Change {
	if len(lines) == 0 {
		return change
	}
	op := store.AddLogs{RunID: run.ID, Restart: run.Restart, CallID: callID, LinesMax: wire.LogChapterLinesMax}
	for _, l := range lines {
		line := store.LogLine{At: l.At.Time, Level: l.Level, Message: l.Message, Fields: l.Fields, Entry: l.Entry, Attempt: l.Attempt, Line: l.Line}
		if l.Step != nil {
			line.StepID, line.Entry = workflow.StepID{Name: l.Step.Name, Number: l.Step.Number}, 0
		}
		op.Lines = append(op.Lines, line)
	}
	return append(change, op)
}

// unfinished is the line that says why a closing ended before its time. Lines of the app count from 1, so that it meets none of them.
func unfinished(d *workflow.Decision) store.Op {
	return store.AddLogs{RunID: d.Run.ID, Restart: d.Run.Restart, LinesMax: wire.LogChapterLinesMax + 1, Lines: []store.LogLine{{
		At: d.Run.EndedAt, Level: "error", Message: "the run's closing did not finish: what was left to undo or to tell was not done",
		Fields: d.Unfinished, Entry: d.Run.Ending.Entries, Attempt: 1,
	}}}
}
