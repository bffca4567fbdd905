package sqlite

import (
	"context"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/nelkap/nelkap/internal/store"
)

// closeChapter makes a run's history a closed chapter. The head has the new restart number already.
func (s *Store) closeChapter(h *head, op store.UpdateRun, now time.Time) error {
	restart := int64(h.restart)
	gone := restart - 1 - store.ChaptersKept
	run := func(b *binder) { b.int(h.seq) }
	old := func(b *binder) { b.int(h.seq); b.int(gone) }
	steps := []struct {
		statement string
		bind      func(*binder)
	}{
		{sqlInsertChapter, func(b *binder) { b.int(restart - 1); b.int(h.history.Entries); b.time(now); b.int(h.seq) }},
		{sqlUpdatePayload, func(b *binder) { b.blob(op.Chapter.Payload); b.int(h.seq) }},
		{sqlDeleteAttempts, run},
		{sqlDeleteCallbacks, run},
		{sqlDeleteKeysOfScope, func(b *binder) { b.text(op.Run.Env); b.text(string(store.KeySend)); b.text(op.Run.ID) }},
		{sqlDropOldUses, run},
		{sqlDropChapterSteps, old},
		{sqlDropChapterLogs, old},
		{sqlDropChapter, old},
		{sqlEmptyChapter, old},
	}
	for _, step := range steps {
		if err := exec(s.writer, step.statement, step.bind); err != nil {
			return err
		}
	}
	h.history, h.attempts, h.lines = store.History{}, false, 0
	return nil
}

// Chapters implements store.Reader.
func (s *Store) Chapters(ctx context.Context, runID string) ([]store.Chapter, error) {
	var out []store.Chapter
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		seq, _, err := seqOf(conn, runID)
		if err != nil {
			return err
		}
		return query(conn, sqlSelectChapters, func(b *binder) { b.int(seq) }, func(r *scanner) error {
			out = append(out, store.Chapter{Restart: int(r.int()), Payload: r.blob(), Entries: r.int(), ClosedAt: r.time()})
			return nil
		})
	})
	return out, err
}

func (s *Store) addLogs(op store.AddLogs) error {
	h, err := s.head(op.RunID)
	if err != nil || h == nil {
		return err
	}
	lines := &h.lines
	if op.Restart != h.restart {
		lines = new(int64(-1)) // the last lines of a chapter that is closed
	}
	if *lines < 0 {
		err := query(s.writer, sqlCountLogs, func(b *binder) { b.int(h.seq); b.int(int64(op.Restart)) }, func(r *scanner) error { *lines = r.int(); return nil })
		if err != nil {
			return err
		}
	}
	for _, l := range op.Lines {
		if *lines >= int64(op.LinesMax) {
			return nil
		}
		callID := op.CallID
		if l.Name == "" {
			callID = ""
		}
		err := exec(s.writer, sqlInsertLog, func(b *binder) {
			b.int(h.seq)
			b.int(int64(op.Restart))
			b.text(callID)
			b.text(l.Name)
			b.int(int64(l.Number))
			b.int(l.Entry)
			b.int(int64(l.Attempt))
			b.int(int64(l.Line))
			b.time(l.At)
			b.text(l.Level)
			b.text(l.Message)
			b.blob(l.Fields)
		})
		if err != nil {
			return err
		}
		*lines += int64(s.writer.Changes())
	}
	return nil
}

// Logs implements store.Reader.
func (s *Store) Logs(ctx context.Context, q store.LogQuery) ([]store.LogLine, error) {
	var out []store.LogLine
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		seq, env := int64(0), ""
		err := query(conn, sqlSelectSeqEnv, func(b *binder) { b.text(q.RunID) }, func(r *scanner) error { seq, env = r.int(), r.text(); return nil })
		if err != nil || seq == 0 || env != q.Env {
			return orNotFound(err, "run "+q.RunID)
		}
		return query(conn, sqlSelectLogs, func(b *binder) { b.int(seq); b.int(q.After); b.int(int64(q.Limit)) }, func(r *scanner) error {
			l := store.LogLine{Position: r.int(), Restart: int(r.int())}
			l.Name, l.Number, l.Entry, l.Attempt, l.Line = r.text(), int(r.int()), r.int(), int(r.int()), int(r.int())
			l.At, l.Level, l.Message, l.Fields = r.time(), r.text(), r.text(), r.blob()
			out = append(out, l)
			return nil
		})
	})
	return out, err
}
