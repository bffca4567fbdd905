package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// chapter is a closed history with what is kept of it.
type chapter struct {
	store.Chapter
	entries []store.Entry
}

// closeChapter makes r's history a closed chapter.
func (s *Store) closeChapter(r *run, next workflow.Chapter, restart int, now time.Time) {
	r.chapters = append(r.chapters, chapter{
		Chapter: store.Chapter{Restart: restart - 1, Payload: r.Payload, Entries: int64(len(r.entries)), ClosedAt: now},
		entries: r.entries,
	})
	r.Payload, r.Trees, r.entries, r.bytes, r.attempts = next.Payload, nil, nil, 0, nil
	for hash, c := range s.callbacks {
		if c.RunID == r.ID {
			delete(s.callbacks, hash)
		}
	}
	s.freeSends(r.ID)
	maps.DeleteFunc(r.used, func(position int64, _ bool) bool { return len(s.events) > 0 && position < s.events[0].Position })
	gone := restart - 1 - store.ChaptersKept
	r.chapters = slices.DeleteFunc(r.chapters, func(c chapter) bool { return c.Restart == gone && gone > 0 })
	if gone == 0 {
		r.chapters[0].Entries, r.chapters[0].entries = 0, nil
	}
	r.logs = slices.DeleteFunc(r.logs, func(l logLine) bool { return l.Restart == gone })
}

// freeSends frees a run's derived keys (K3).
func (s *Store) freeSends(runID string) {
	for id := range s.keys {
		if id.kind == store.KeySend && id.scope == runID {
			delete(s.keys, id)
		}
	}
}

// chapterEntries are the entries that a query selects from.
func (r *run) chapterEntries(restart *int) []store.Entry {
	if restart == nil || *restart == r.Restart {
		return r.entries
	}
	for _, c := range r.chapters {
		if c.Restart == *restart {
			return c.entries
		}
	}
	return nil
}

// Chapters implements store.Reader.
func (s *Store) Chapters(_ context.Context, runID string) ([]store.Chapter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[runID]
	if r == nil {
		return nil, fmt.Errorf("run %s: %w", runID, store.ErrNotFound)
	}
	var out []store.Chapter
	for _, c := range r.chapters {
		out = append(out, c.Chapter)
	}
	return out, nil
}

// logLine is a line with the call that wrote it, where it was written in a step.
type logLine struct {
	store.LogLine
	callID string
}

func (s *Store) addLogs(op store.AddLogs) {
	r := s.runs[op.RunID]
	if r == nil {
		return
	}
	for _, l := range op.Lines {
		line := logLine{LogLine: l}
		line.Restart = op.Restart
		if l.Name != "" {
			line.callID = op.CallID
		}
		there, count := false, 0
		for _, other := range r.logs {
			if other.Restart == op.Restart {
				count++
			}
			there = there || (other.Restart == op.Restart && other.callID == line.callID && other.StepID == l.StepID && other.Entry == l.Entry && other.Attempt == l.Attempt && other.Line == l.Line)
		}
		if !there && count < op.LinesMax {
			s.logged++
			line.Position = s.logged
			r.logs = append(r.logs, line)
		}
	}
}

// Logs implements store.Reader.
func (s *Store) Logs(_ context.Context, q store.LogQuery) ([]store.LogLine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[q.RunID]
	if r == nil || r.Env != q.Env {
		return nil, fmt.Errorf("run %s: %w", q.RunID, store.ErrNotFound)
	}
	var out []store.LogLine
	for _, l := range r.logs {
		if l.Position > q.After && len(out) < q.Limit {
			out = append(out, l.LogLine)
		}
	}
	return out, nil
}
