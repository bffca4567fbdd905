package sim

import (
	"context"
	"encoding/json/v2"
	"fmt"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// chapters is what the witness keeps of the chapters that a run's restarts have closed.
type chapters struct {
	past    []chapter
	chapter int // how often its first payload says that it began again: a replay's may
}

// chapter is a closed history.
type chapter struct {
	restart int
	payload string
	entries []entry
	kept    int64 // of those, from the history of which the run is a replay
}

// chapterOf is what a payload says of the chapter.
func chapterOf(value []byte) int {
	var in payload
	json.Unmarshal(value, &in) //nolint:errcheck // a webhook's payload has none
	return in.Chapter
}

// entryIn is the entry of a step in one of the run's chapters; nil if it has none.
func (r *record) entryIn(restart int, id workflow.StepID) *entry {
	if restart == r.Restart {
		return r.entry(id)
	}
	for i := range r.past {
		if r.past[i].restart == restart {
			return find(r.past[i].entries, id)
		}
	}
	return nil
}

// keptIn is how many entries one of the run's chapters began with.
func (r *record) keptIn(restart int) int64 {
	for i := range r.past {
		if r.past[i].restart == restart {
			return r.past[i].kept
		}
	}
	return r.kept
}

// restartsNow takes in that a run begins again: with what its code gave, and without what its history had (Z2).
func (t *witness) restartsNow(r *record, op *store.UpdateRun) {
	if op.Chapter == nil {
		if op.Run.Restart != r.Restart {
			t.broken("Z2", "run %s went from restart %d to %d without closing a chapter", r.ID, r.Restart, op.Run.Restart)
		}
		return
	}
	c := t.calls[callOf(&r.Run)]
	var given payload
	switch {
	case op.Run.Restart != r.Restart+1:
		t.broken("Z2", "run %s went from restart %d to %d", r.ID, r.Restart, op.Run.Restart)
	case r.Ending != nil || op.Run.Status != workflow.Queued || op.Run.Call != nil:
		t.broken("Z2", "run %s was %s, ending %+v, and begins again as %s", r.ID, r.Status, r.Ending, op.Run.Status)
	case c == nil || c.restarts == nil:
		t.broken("Z2", "run %s begins again, and the code of its call %q did not ask for it", r.ID, callOf(&r.Run))
	case json.Unmarshal(op.Chapter.Payload, &given) != nil || given != *c.restarts:
		t.broken("Z2", "run %s begins again with %s, and its code asked for %+v", r.ID, op.Chapter.Payload, *c.restarts)
	}
	t.world.report.reached(begunAgain)
	r.past = append(r.past, chapter{restart: r.Restart, payload: r.payload, entries: r.entries, kept: r.kept})
	r.entries, r.payload, r.kept, r.versions, r.threw = nil, string(op.Chapter.Payload), 0, nil, threw{}
	t.standsAfter(r)
}

// checkChapter: the code is given the payload of its chapter (Z2). mu is held.
func (t *witness) checkChapter(r *record, c *callRecord, in payload) {
	if expected := r.chapter + c.restart - r.firstRestart(); in.Chapter != expected {
		t.broken("Z2", "run %s: the code of call %s is given the payload of chapter %d, and it plays chapter %d", r.ID, in.Call, in.Chapter, expected)
	}
}

// firstRestart is the number of the run's first chapter.
func (r *record) firstRestart() int {
	if len(r.past) > 0 {
		return r.past[0].restart
	}
	return r.Restart
}

// identity is what an idempotency key is made from (S8).
type identity struct {
	root    string
	restart int
	workflow.StepID
}

// keyed is told the idempotency key of a step's body: the same for every attempt, and no other step's (S8, Z2).
func (p *playing) keyed(id stepID, key string) {
	t := p.witness
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lenient {
		return
	}
	i := identity{t.runs[p.run].Root, t.runs[p.run].RootRestart + id.restart, id.StepID}
	if other, known := t.identities[key]; known && other != i {
		t.broken("S8", "%s has the idempotency key of %v", id, other)
	}
	if other, known := t.idempotency[i]; known && other != key {
		t.broken("S8", "%s has the idempotency key %s, and had %s", id, key, other)
	}
	t.identities[key], t.idempotency[i] = i, key
}

// finishChapters: closed chapters stay as they were (Z2).
func (t *witness) finishChapters(r *record, s store.Store) {
	ctx := context.Background()
	got, err := s.Chapters(ctx, r.ID)
	if err != nil || len(got) != len(r.past) {
		t.broken("Z2", "run %s has %d closed chapters, and had %d: %v", r.ID, len(got), len(r.past), err)
		return
	}
	for i, c := range got {
		was := &r.past[i]
		if c.Restart != was.restart || string(c.Payload) != was.payload || c.Entries != int64(len(was.entries)) {
			t.broken("Z2", "run %s: chapter %d is %+v, and was of %d entries with %s", r.ID, was.restart, c, len(was.entries), was.payload)
		}
		page, err := s.Entries(ctx, store.EntryQuery{RunID: r.ID, Chapter: &c.Restart, EntriesMax: 1 << 20, BytesMax: 1 << 30})
		if err != nil || len(page) != len(was.entries) {
			t.broken("Z2", "run %s: chapter %d has %d entries at the end, and had %d: %v", r.ID, c.Restart, len(page), len(was.entries), err)
			continue
		}
		for j := range page {
			if diff := difference(was.entries[j].saved, page[j]); diff != "" {
				t.broken("Z2", "run %s: entry %d of chapter %d changed:\n%s", r.ID, j+1, c.Restart, diff)
			}
		}
	}
}

// logged takes in lines of a run's log: none comes twice, and one of the server's says that a closing was given up.
func (t *witness) logged(op store.AddLogs) {
	r := t.runs[op.RunID]
	for _, l := range op.Lines {
		if op.CallID == "" && l.Level == "error" {
			r.unfinished = true
		}
	}
}

// finishLogs: what a run's code wrote outside steps stands once for each attempt, whatever was cut off and played again, and the store has
// the lines that its model has.
func (t *witness) finishLogs(r *record) {
	ctx := context.Background()
	q := store.LogQuery{Env: r.Env, RunID: r.ID, Limit: 1 << 20}
	lines, err := t.model.Logs(ctx, q)
	if err != nil {
		t.broken("log", "the log of run %s can't be read: %v", r.ID, err)
	}
	seen, said := map[string]bool{}, map[string]bool{}
	for _, l := range lines {
		t.world.report.reached(lineWritten)
		// The function and a handler may say the same; a handler's lines count from 10,001 (protocol, section 6).
		text := fmt.Sprintf("%d %d %t %q", l.Restart, l.Attempt, l.Line > 10_000, l.Message)
		if l.Name == "" && seen[text] && r.oneCode {
			t.broken("log", "run %s has the line %s twice", r.ID, text)
		}
		seen[text], said[fmt.Sprintf("%d %s", l.Restart, l.Message)] = true, true
	}
	t.checkSaid(r, said)
	if t.model == t.world.store {
		return
	}
	stored, err := t.world.store.Logs(ctx, q)
	if diff := difference(lines, stored); err != nil || diff != "" {
		t.broken("store", "the store has another log of run %s than its model (-model +store): %v\n%s", r.ID, err, diff)
	}
}

// checkSaid: nothing of what the code of a run that completed wrote is lost, whatever was cut off. A replay does not write again what it kept.
func (t *witness) checkSaid(r *record, said map[string]bool) {
	f := t.workflows[r.Workflow]
	if f == nil || !f.logs || r.Status != workflow.Completed || !r.oneCode || r.codeOf == 0 || r.kept > 0 {
		return
	}
	for i, s := range f.stepsOf(r.codeOf - 1) {
		if text := fmt.Sprintf("%d before %s %d", r.Restart, s.name, i); !said[text] {
			t.broken("log", "run %s completed, and its log lacks %q", r.ID, text)
		}
	}
}

// nameOf is the name of one of a workflow's steps, for a replay that begins there.
func (t *witness) nameOf(run string, nth int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.workflows[t.runs[run].Workflow]
	if f == nil {
		return ""
	}
	var names []string
	f.each(func(s *stepPlan) {
		if s.kind != kindParallel {
			names = append(names, s.name)
		}
	})
	if len(names) == 0 {
		return ""
	}
	return names[nth%len(names)]
}
