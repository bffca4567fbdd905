package sim

import (
	"context"
	"errors"

	"github.com/nelkap/nelkap/internal/store"
)

// drops takes in that runs are kept no longer: so many, all of which had ended long enough ago, and none whose end somebody waits for.
func (t *witness) drops(op store.DropRuns, dropped int) {
	if dropped == 0 {
		return
	}
	awaited := map[string]bool{} // and those that have to hear of an end
	for id, r := range t.runs {
		for _, w := range r.open {
			awaited[id], awaited[w.Child] = true, true
		}
		for child := range r.orphans {
			awaited[id] = awaited[id] || t.lives(child)
		}
	}
	for id, r := range t.runs {
		if r.dropped {
			continue
		}
		if _, _, err := t.model.Load(context.Background(), id); !errors.Is(err, store.ErrNotFound) {
			continue
		}
		dropped--
		r.dropped = true
		t.world.report.reached(runDropped)
		if !r.Status.Final() || r.EndedAt.After(op.Before) {
			t.broken("W6", "run %s is %s, ended at %v, and was dropped as if it had ended by %v", id, r.Status, r.EndedAt, op.Before)
		}
		if awaited[id] {
			t.broken("W5", "run %s was dropped, and somebody waits for it, or has to hear of its end", id)
		}
		for hash, c := range t.callbacks {
			if c.id.run == id {
				delete(t.callbacks, hash)
			}
		}
	}
	if dropped != 0 {
		t.broken("W6", "%d more runs were said to be dropped than were", dropped)
	}
}
