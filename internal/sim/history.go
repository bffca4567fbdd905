package sim

import (
	"context"
	"encoding/json/jsontext"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nelkap/nelkap/internal/sim/prefix"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// PlayPrefixes plays every completed run of a simulation again, cut at each entry of its history (package prefix), by the code that
// played it. It must be called in the simulation's bubble. It gives the number of calls that it made.
func (r Result) PlayPrefixes() (calls int, err error) {
	w := r.world
	defer rest(time.Minute) // polls that go on
	for _, id := range w.witness.ids() {
		h, version, ok := w.witness.history(id)
		if !ok {
			continue
		}
		for cut := range len(h.Entries) + 1 {
			calls++
			if err := w.playPrefix(h, version, cut); err != nil {
				return calls, fmt.Errorf("run %s, cut after entry %d of %d: %w", id, cut, len(h.Entries), err)
			}
		}
	}
	return calls, nil
}

// ids are the runs, in order.
func (t *witness) ids() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.runs))
}

// history is a completed run's; ok is false for one that has not completed, or that code of several versions played.
func (t *witness) history(id string) (h prefix.History, version int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.runs[id]
	c := t.calls[r.lastCall]
	if r.Status != workflow.Completed || c == nil || c.message == nil || !r.sameCode(r.versions[0]) {
		return h, 0, false
	}
	if err := wire.Decode(c.message, &h.Call); err != nil {
		return h, 0, false
	}
	for _, e := range r.entries {
		shown := wire.Entry{Entry: e.saved.Entry, Kind: e.saved.Kind, Name: e.saved.Name, Number: e.saved.Number, Status: e.saved.Status, Output: e.saved.Output, Error: e.saved.Error}
		if shown.Status == workflow.StepFailed {
			shown.Attempts = e.saved.Attempts
		}
		h.Entries = append(h.Entries, shown)
	}
	h.Call.Run.Attempt = 1000 // code that throws at first has done so
	h.Branched = t.world.plan.branched(r.Workflow)
	h.End = wire.End{Type: wire.Completed}
	if record, err := t.model.Record(context.Background(), r.Env, id); err == nil {
		h.End.Output = record.Output
	}
	return h, r.versions[0], true
}

// pace is the time between the ends of bodies where there are branches: in it the call hears of waits that are over.
const pace = 5 * time.Second

// playPrefix plays a history in a world of its own, whose witness knows what is saved and what is not.
func (w *world) playPrefix(h prefix.History, version, cut int) error {
	server := &prefix.Server{}
	other := &world{
		chance: w.chance, plan: w.plan, report: NewReport(), over: make(chan struct{}), counters: map[string]int{},
		apart: map[string]bool{}, failable: map[string]int{}, trace: &trace{start: time.Now()}, paced: map[stepID]time.Time{},
	}
	defer close(other.over)
	other.witness = newWitness(other, nil)
	call := fmt.Sprintf("%s-%d", h.Call.Call.ID, cut)
	original := w.witness.runs[h.Call.Run.ID]
	h.Call.Run.Payload = jsontext.Value(fmt.Sprintf(`{"call":%q,"chapter":%d}`, call, chapterOf([]byte(original.payload))))
	other.witness.calls[call] = &callRecord{run: h.Call.Run.ID, begunIn: 1, restart: original.Restart}
	run := &record{versions: []int{version}, payload: original.payload, chapters: original.chapters}
	run.ID, run.Root, run.Workflow, run.Restart, run.CreatedAt = original.ID, original.Root, original.Workflow, original.Restart, original.CreatedAt
	for i, e := range original.entries {
		e.savedIn = 0
		if i >= cut {
			e.savedIn = 2
		}
		run.entries = append(run.entries, e)
		if h.Branched {
			other.paced[original.step(e.saved.StepID)] = other.trace.start.Add(time.Duration(i) * pace)
		}
	}
	other.witness.runs[h.Call.Run.ID] = run
	other.witness.lenient = true
	s := &service{world: other, name: h.Call.Run.App, version: version}
	p := s.process()
	p.open(server)
	if err := server.Play(context.Background(), p.app, w.signing, h, cut); err != nil {
		return err
	}
	if len(other.broken) > 0 {
		return fmt.Errorf("%w: %v", prefix.ErrDiverged, other.broken)
	}
	return p.app.Shutdown(context.Background())
}
