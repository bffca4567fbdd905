package sim

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/nelkap/nelkap/internal/store"
)

// foreignTries is how often another client sends a request that has no answer which it can use.
const foreignTries = 6

// requestID is an Idempotency-Key in its scope, which is a method and a path.
type requestID struct{ scope, key string }

// requestRecord is what came of the requests with a key.
type requestRecord struct {
	taken  bool            // a commit has taken the key
	bodies map[string]bool // that were sent
	body   string          // of those that were answered
	answer requestAnswer
}

// requestAnswer is what a request with a key is answered with, of what must be the same each time.
type requestAnswer struct {
	ID      string `json:"id"`
	Created bool   `json:"created"`
}

// errReused is the answer to a key that was sent with another request before.
var errReused = errors.New("the key was used for another request")

// foreign is a request as a client without an SDK makes it: with a key of its own, and again for as long as nobody has answered (K6).
func (c *client) foreign(ctx context.Context, o operation) error {
	path, body := "/v1/runs", fmt.Sprintf(`{"workflow":%q,"app":%q,"payload":{"tag":%q}%s}`, o.workflow.name, o.workflow.app, o.tag, o.runKey())
	switch {
	case o.name != "":
		path, body = "/v1/events", fmt.Sprintf(`{"event":%q,"payload":{"tag":%q}}`, o.name, o.tag)
		if o.later > 0 {
			body = fmt.Sprintf(`{"event":%q,"payload":{"tag":%q},"at":%q}`, o.name, o.tag, time.Now().Add(o.later).UTC().Format(time.RFC3339Nano))
		}
	case o.replays:
		if len(c.runs) == 0 {
			return errNoRun
		}
		path, body = "/v1/runs/"+c.runs[o.target%len(c.runs)]+"/replay", fmt.Sprintf(`{"payload":{"tag":%q}}`, replayedTag+o.tag)
	}
	id := requestID{"POST " + path, o.request}
	var err error
	for range foreignTries {
		err = c.sendForeign(ctx, id, path, body)
		var answered answeredError
		if errors.As(err, &answered) && answered < http.StatusInternalServerError || ctx.Err() != nil {
			return err
		}
		if errors.Is(err, errReused) || err == nil && !o.again {
			break
		}
		o.again = o.again && err != nil // once more, to be told the same
		rest(time.Second + o.wait)
	}
	return err
}

// runKey is the key of the run that is asked for, as the body has it.
func (o *operation) runKey() string {
	switch {
	case o.key == "":
		return ""
	case o.keyFor > 0:
		return fmt.Sprintf(`,"key":%q,"keyForMs":%d`, o.key, o.keyFor.Milliseconds())
	}
	return fmt.Sprintf(`,"key":%q`, o.key)
}

func (c *client) sendForeign(ctx context.Context, id requestID, path, body string) error {
	t := c.world.witness
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, serverURL+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+apiKey)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", id.key)
	t.sendsRequest(id, body)
	answer, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return err
	case answer.StatusCode == http.StatusUnprocessableEntity && strings.Contains(string(text), "idempotency_key_reused"):
		t.refusesRequest(id, body)
		return errReused
	case answer.StatusCode >= 300:
		return answeredError(answer.StatusCode)
	}
	var got requestAnswer
	if err := json.Unmarshal(text, &got); err != nil {
		return err
	}
	t.answersRequest(id, body, got)
	if !strings.HasSuffix(path, "events") {
		c.runs = append(c.runs, got.ID)
	}
	return nil
}

// sendsRequest is told that a request with a key is sent.
func (t *witness) sendsRequest(id requestID, body string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requestOf(id).bodies[body] = true
}

// requestOf is what is known of a key. mu is held.
func (t *witness) requestOf(id requestID) *requestRecord {
	if t.foreign[id] == nil {
		t.foreign[id] = &requestRecord{bodies: map[string]bool{}}
	}
	return t.foreign[id]
}

// takesRequest takes in that a commit takes a request's key: with it comes what was asked for, once (K6).
func (t *witness) takesRequest(key store.Key) {
	r := t.requestOf(requestID{key.Scope, key.Key})
	if r.taken {
		t.broken("K6", "the Idempotency-Key %q of %s is taken a second time", key.Key, key.Scope)
	}
	r.taken = true
}

// answersRequest is told that a request was answered: each with its key as the first was, and none with another body (K6).
func (t *witness) answersRequest(id requestID, body string, got requestAnswer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.requestOf(id)
	switch {
	case r.body == "":
		r.body, r.answer = body, got
	case r.body != body:
		t.broken("K6", "%s with the Idempotency-Key %q was answered for %s, and then for %s", id.scope, id.key, r.body, body)
	case r.answer != got:
		t.broken("K6", "%s with the Idempotency-Key %q was answered %+v, and then %+v", id.scope, id.key, r.answer, got)
	default:
		t.world.report.reached(answeredAgain)
	}
	if t.runs[got.ID] == nil && !t.hasEvent(got.ID) {
		t.broken("W6", "%s with the Idempotency-Key %q was answered %+v, which is not stored", id.scope, id.key, got)
	}
}

// hasEvent tells whether an event is stored, or kept for later. mu is held.
func (t *witness) hasEvent(id string) bool {
	for e := range t.later {
		if e.id == id {
			return true
		}
	}
	for _, e := range t.stored {
		if e.id == id {
			return true
		}
	}
	return false
}

// refusesRequest is told that a request was refused, since its key was used for another: then another was sent (K6).
func (t *witness) refusesRequest(id requestID, body string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.requestOf(id)
	if len(r.bodies) == 1 || r.body == body {
		t.broken("K6", "%s with the Idempotency-Key %q and %s was refused as another request, after these: %v", id.scope, id.key, body, r.bodies)
	}
	t.world.report.reached(keyReused)
}
