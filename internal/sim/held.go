package sim

import "time"

// keyOver tells whether the time of a run's key is over.
func (r *record) keyOver(now time.Time) bool { return !r.keyUntil.IsZero() && !r.keyUntil.After(now) }

// storedBy is how long what a node has decided may take until it is stored and heard of.
const storedBy = 15 * time.Second

// checkHeld: a key with a time is its run's for that long, by the server's clock, and no longer (K3).
func (t *witness) checkHeld(o operation, r *record, created bool, asked time.Time) {
	if r.Key != o.key || r.Workflow != o.workflow.name {
		t.broken("W8", "a start with key %q of %s was answered with run %s of %s, whose key is %q", o.key, o.workflow.name, r.ID, r.Workflow, r.Key)
	}
	if held := r.keyUntil.Sub(r.CreatedAt); created && (held < o.keyFor-time.Second || held > o.keyFor+storedBy) {
		t.broken("K3", "run %s was started with a key for %v, and has it for %v", r.ID, o.keyFor, held)
	}
	if over := asked.Sub(r.keyUntil); !created && over > storedBy && t.world.steady() {
		t.broken("K3", "a start with key %q was answered with run %s, whose time was over for %v", o.key, r.ID, over)
	}
}
