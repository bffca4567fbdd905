package sim

import (
	"time"

	"github.com/nelkap/nelkap/internal/store"
)

// replayAsked is how a client asks for a replay.
type replayAsked struct {
	original string
	from     string    // the step that it begins at; empty: it is whole
	at       time.Time // when it was asked for
	keepKeys bool      // the original's idempotency keys
	// newEvents: its waits do not find what the original's could.
	newEvents bool
}

// replayOf is what a replay was made of, and how.
type replayOf struct {
	original *record
	restart  int     // the chapter
	entries  []entry // that it had then, without those of its closing
	events   bool    // its waits find what the original's could
}

func (t *witness) replayOf(replay *store.Replay) *replayOf {
	r := t.runs[replay.RunID]
	of := &replayOf{original: r, restart: replay.Restart, entries: r.entries, events: replay.Events}
	if r.Closing() {
		of.entries = of.entries[:min(int(r.Ending.Entries), len(of.entries))]
	}
	return of
}

// checkAsked: a replay is as it was asked for. From a step it keeps what was saved before that, a whole one
// nothing, and it has the idempotency keys and the events that were asked for (K5, S8).
func (t *witness) checkAsked(r *record, asked *replayAsked) {
	of := r.replay
	root, restart := r.ID, 0
	if asked.keepKeys {
		root, restart = of.original.Root, of.original.RootRestart
		if asked.from != "" {
			restart += of.restart
		} else {
			t.world.report.reached(keysKept)
		}
	}
	if r.Root != root || r.RootRestart != restart {
		t.broken("S8", "run %s replays run %s from %q, and has the idempotency keys of run %s@%d, not %s@%d", r.ID, asked.original, asked.from, r.Root, r.RootRestart, root, restart)
	}
	if of.events == asked.newEvents {
		t.broken("K5", "run %s replays run %s with new events %t, and its waits find the original's: %t", r.ID, asked.original, asked.newEvents, of.events)
	}
	first := 0 // of the entries that it does not keep
	for first < len(of.entries) && asked.from != "" && of.entries[first].saved.Name != asked.from {
		first++
	}
	// The step may have been saved after it was looked for.
	late := of.original.endedAt.IsZero() || of.original.endedAt.After(asked.at)
	if kept := r.keptIn(0); kept > int64(first) || kept < int64(first) && !late {
		t.broken("K5", "run %s replays run %s from %q, which was entry %d, and keeps %d", r.ID, asked.original, asked.from, first+1, kept)
	}
}
