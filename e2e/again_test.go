package e2e

import (
	"net/http"
	"testing"

	"github.com/nelkap/nelkap/e2e/plan"
	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
)

var two = plan.Plan{Steps: []plan.Step{{Name: "one"}, {Name: "two", Throws: 1}}}

func TestAReplayRunsEveryStepAgain(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		w, _ := newSimple(t, language)
		id := w.run(language, two)
		original, steps := w.completed(id, within), asJSON(t, w.steps(id))
		replay, err := w.api.Replay(t.Context(), id, client.ReplayOptions{})
		if err != nil {
			t.Fatal(err)
		}
		again := w.completed(replay.ID, within)
		if again.ReplayOf == nil || *again.ReplayOf != id || string(again.Payload) != string(original.Payload) {
			t.Errorf("the replay: %s", asJSON(t, again))
		}
		for _, run := range []string{id, replay.ID} {
			w.bodies(run, map[string]int{"one": 1, "two": 2})
			w.results(run)
		}
		w.unchanged(original)
		if now := asJSON(t, w.steps(id)); string(now) != string(steps) {
			t.Errorf("the original's steps changed: %s, were %s", now, steps)
		}
	})
}

func TestAnEventStartsARunEachTimeUnlessItHasAnID(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		w, _ := newSimple(t, language)
		payload := asJSON(t, two)
		name := plan.Event(language)
		// The client of these tests draws ids of its own, so the request is written by hand.
		for range 2 {
			body := asJSON(t, map[string]any{"event": name, "payload": payload})
			if status, answer := w.ask(http.MethodPost, "/v1/events", body); status != http.StatusOK {
				t.Fatalf("emitting: %d %s", status, answer)
			}
		}
		w.heard(plan.Heard, 2)
		for i := range 2 {
			emitted, err := w.api.Emit(t.Context(), client.Event{Event: name, Payload: payload, ID: "the same"})
			if err != nil || emitted.Created != (i == 0) {
				t.Fatalf("emitting with an id for time %d: %+v, %v", i+1, emitted, err)
			}
		}
		w.heard(plan.Heard, 3)
	})
}

func TestAWebhookStartsARunEachTime(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		w, _ := newSimple(t, language)
		for range 2 {
			if status, answer := w.ask(http.MethodPost, "/hooks/"+language, asJSON(t, two)); status != http.StatusOK {
				t.Fatalf("calling the webhook: %d %s", status, answer)
			}
		}
		w.heard(plan.Hooked, 2)
	})
}

// heard checks that a workflow has so many runs, which all complete with each of their steps run once.
func (w *world) heard(workflow string, n int) {
	w.t.Helper()
	var runs apitype.List[apitype.Run]
	eventually(w.t, within, "the runs to end", func() bool {
		var err error
		if runs, err = w.api.Runs(w.t.Context(), client.RunQuery{Workflow: workflow}); err != nil {
			return false
		}
		for _, run := range runs.Data {
			if run.EndedAt == nil {
				return false
			}
		}
		return len(runs.Data) >= n
	})
	if len(runs.Data) != n {
		w.t.Errorf("%d runs of %q, want %d", len(runs.Data), workflow, n)
	}
	for _, run := range runs.Data {
		w.completed(run.ID, within)
		w.bodies(run.ID, map[string]int{"one": 1, "two": 2})
	}
}
