package sim

import (
	"time"

	"github.com/nelkap/nelkap/internal/store"
)

// laterEvent is an event that is kept until it is due.
type laterEvent struct {
	store.LaterEvent
	keptAt time.Time
}

// keeps takes in that an event is kept for later. One that is kept already stands.
func (t *witness) keeps(e store.LaterEvent) {
	id := eventID{e.Name, e.ID}
	if t.events[id] != nil {
		t.broken("W8", "event %s %s is kept for later, and is stored", id.name, id.id)
	}
	if t.later[id] == nil {
		t.later[id] = &laterEvent{e, time.Now()}
	}
}

// emitsLater takes in that an event is kept no more: in that change it is emitted, unless it was under its id meanwhile; not before it is due,
// and soon after that (W4, W5, W6).
func (t *witness) emitsLater(n *node, op store.DropLater, change store.Change) {
	id := eventID{op.Name, op.ID}
	kept := t.later[id]
	delete(t.later, id)
	if kept == nil {
		t.broken("W7", "event %s %s is due, and is not kept", id.name, id.id)
		return
	}
	var stored *store.Event
	for _, other := range change {
		if insert, is := other.(store.InsertEvent); is && insert.Event.Name == op.Name && insert.Event.ID == op.ID {
			stored = &insert.Event
		}
	}
	switch early := kept.DueAt.Sub(n.latest()); {
	case stored == nil && t.events[id] == nil:
		t.broken("W6", "event %s %s is kept no more, and was not emitted", id.name, id.id)
	case early > 0:
		t.broken("W4", "event %s %s is emitted %v before it is due", id.name, id.id, early)
	case stored != nil && string(stored.Payload) != string(kept.Payload):
		t.broken("W6", "event %s %s was kept with %s, and is emitted with %s", id.name, id.id, kept.Payload, stored.Payload)
	case t.overdue(kept.DueAt, kept.keptAt):
		t.broken("W5", "event %s %s is emitted %v after it was due", id.name, id.id, time.Since(kept.DueAt))
	}
	t.world.report.reached(emittedLater)
}

// checkAhead: a client asked for an event later, and it is kept until then, or has come since (W4). mu is held.
func (t *witness) checkAhead(id eventID, at time.Time) {
	if kept := t.later[id]; kept != nil && kept.DueAt.Before(at.Truncate(time.Millisecond)) {
		t.broken("W4", "event %s %s was asked for at %v, and is due at %v", id.name, id.id, at, kept.DueAt)
	}
}
