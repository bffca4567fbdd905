package nelkaptest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/typeid"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// sentOutside counts what code outside steps sends.
type sentOutside struct {
	what  string
	times int
}

// sentRun and sentEvent are what a send came to.
type sentRun struct {
	run     *run
	payload json.RawMessage
	until   time.Time // when its key is free again; zero: never
}

type sentEvent struct {
	id      string
	payload json.RawMessage
}

// refused says why the call may send nothing any more; status is 0 where it may. mu is held.
func (p *process) refused() (status int, answer any) {
	switch {
	case p.run == nil:
	case p.run.hasEnded():
		return problem(http.StatusConflict, wire.StatusEnded, "the run has ended")
	case p.cut || p.run.process != p:
		return problem(http.StatusConflict, wire.StatusSuperseded, "a newer call has the run")
	}
	return 0, nil
}

// derivedKey is the key of a send in a step (K1).
func (p *process) derivedKey(kind, name string, s *play.Send) string {
	return fmt.Sprintf("%q %d %q %d %s %q %d", p.run.id, p.run.restarts, s.Step.Name, s.Step.Number, kind, name, s.Place)
}

// countOutside counts a send of code outside steps.
func (p *process) countOutside(kind, name string) {
	if p.run == nil {
		return
	}
	place := kind + " " + name
	p.places[place]++
	key := fmt.Sprintf("%q %d %s %d", p.run.id, p.run.restarts, place, p.places[place])
	w := p.world
	if w.sent[key] == nil {
		what := fmt.Sprintf("a run of %q was started", name)
		if kind == "event" {
			what = fmt.Sprintf("the event %q was emitted", name)
		}
		w.sent[key] = &sentOutside{what: what}
		w.sentKeys = append(w.sentKeys, key)
	}
	w.sent[key].times++
}

// startRun answers POST /v1/runs.
func (p *process) startRun(body []byte) (status int, answer any) {
	var m struct {
		Workflow, App, Key, ID, At string
		Payload                    json.RawMessage
		DelayMs, KeyForMs          int64
		Send                       *play.Send
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return problem(http.StatusBadRequest, "bad_request", err.Error())
	}
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if status, answer := p.refused(); status != 0 {
		return status, answer
	}
	key := "id " + m.ID
	switch {
	case m.Key != "":
		key = fmt.Sprintf("key %q %q %q", m.App, m.Workflow, m.Key)
	case m.Send != nil && p.run != nil:
		key = p.derivedKey("run", m.Workflow, m.Send)
	}
	if m.Send == nil && m.Key == "" {
		p.countOutside("run", m.Workflow)
	}
	if there, ok := w.derived[key].(sentRun); ok && (there.until.IsZero() || w.now().Before(there.until)) {
		differs := !bytes.Equal(there.payload, m.Payload)
		return http.StatusOK, map[string]any{"id": there.run.id, "created": false, "payloadDiffers": differs}
	}
	made := &run{id: m.ID, workflow: m.Workflow, app: m.App, key: m.Key, payload: m.Payload}
	if m.DelayMs > 0 {
		made.due = w.now().Add(time.Duration(m.DelayMs) * time.Millisecond)
	} else if at, err := time.Parse(time.RFC3339, m.At); err == nil {
		made.due = at
	}
	if p.run == nil && w.options.startedBy != "" {
		made.event = &wire.Event{ID: "evt_start", Event: w.options.startedBy, Payload: m.Payload, CreatedAt: w.now().UTC()}
	}
	w.start(made)
	sent := sentRun{run: made, payload: m.Payload}
	if m.KeyForMs > 0 {
		sent.until = w.now().Add(time.Duration(m.KeyForMs) * time.Millisecond)
	}
	w.derived[key] = sent
	return http.StatusCreated, map[string]any{"id": made.id, "created": true}
}

// emit answers POST /v1/events.
func (p *process) emit(body []byte) (status int, answer any) {
	var messages []struct {
		Event, ID, At string
		Payload       json.RawMessage
		Send          *play.Send
	}
	if err := json.Unmarshal(body, &messages); err != nil {
		return problem(http.StatusBadRequest, "bad_request", err.Error())
	}
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if status, answer := p.refused(); status != 0 {
		return status, answer
	}
	answers := []any{}
	for _, m := range messages {
		key := fmt.Sprintf("event %q %q", m.Event, m.ID)
		if m.ID == "" && m.Send != nil && p.run != nil {
			key = p.derivedKey("emit", m.Event, m.Send)
		}
		if m.Send == nil {
			p.countOutside("event", m.Event)
		}
		if there, ok := w.derived[key].(sentEvent); ok {
			differs := !bytes.Equal(there.payload, m.Payload)
			answers = append(answers, map[string]any{"id": there.id, "created": false, "payloadDiffers": differs})
			continue
		}
		if there := w.stored(m.Event, m.ID); there != nil { // it came from outside
			differs := !bytes.Equal(there.Payload, m.Payload)
			answers = append(answers, map[string]any{"id": there.ID, "created": false, "payloadDiffers": differs})
			continue
		}
		e := &event{ID: m.ID, Event: m.Event, Payload: m.Payload}
		if at, err := time.Parse(time.RFC3339, m.At); err == nil && at.After(w.now()) {
			e.ID, e.CreatedAt = cmp.Or(e.ID, typeid.New("evt")), at
			w.later = append(w.later, e)
		} else {
			w.store(e)
		}
		w.derived[key] = sentEvent{e.ID, m.Payload}
		answers = append(answers, map[string]any{"id": e.ID, "created": true})
	}
	return http.StatusCreated, answers
}

// getRun answers GET /v1/runs/{id}: it waits for the run's end where it is asked to.
func (p *process) getRun(r *http.Request, id string) (status int, answer any) {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	there := w.find(id)
	if there == nil {
		return problem(http.StatusNotFound, "not_found", "there is no run "+id)
	}
	waits := r.URL.Query().Has("waitMs") && !there.hasEnded()
	if waits && p.run == nil {
		return problem(http.StatusNotImplemented, "not_played", "nothing else is played while a workflow's fake is: no fake can wait for another run")
	}
	if waits {
		p.held++
		there.waiters = append(there.waiters, p)
		w.changed()
		w.mu.Unlock()
		select {
		case <-there.done:
		case <-r.Context().Done():
		}
		w.mu.Lock()
		there.letGo(p)
	}
	return http.StatusOK, there.record()
}

// cancelRun answers POST /v1/runs/{id}/cancel.
func (p *process) cancelRun(id string) (status int, answer any) {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	there := w.find(id)
	if there == nil {
		return problem(http.StatusNotFound, "not_found", "there is no run "+id)
	}
	w.cancel(there, wire.ReasonCancelled)
	return http.StatusOK, there.record()
}
