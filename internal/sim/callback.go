package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/v2"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// posted is the payload of a callback: another each time.
type posted struct {
	Post string `json:"post"`
}

// onceKey is the key that a workflow's runs do their work for once.
func onceKey(in payload) string { return "once" + in.Tag }

// offer is a callback that clients know.
type offer struct {
	token string
	id    stepID
}

// offers tells clients of a callback: each call of its run makes the same again.
func (w *world) offers(token string, id stepID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.offered {
		if o.token == token {
			return
		}
	}
	w.offered = append(w.offered, offer{token, id})
}

// offer is one of the callbacks that clients know, the newest first; empty if there is none.
func (w *world) offer(nth int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.offered) == 0 {
		return ""
	}
	return w.offered[max(0, len(w.offered)-1-nth%3)].token
}

// post posts to a callback, once.
func (c *client) post(ctx context.Context, o operation) error {
	token := c.world.offer(o.target)
	if token == "" {
		return errNoRun
	}
	c.posts++
	text := fmt.Sprintf("%s %d", c.name, c.posts)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, serverURL+"/callbacks/"+token, strings.NewReader(fmt.Sprintf(`{"post":%q}`, text)))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if err := c.request(r); err != nil {
		var answered answeredError
		if errors.As(err, &answered) && answered == http.StatusGone {
			c.world.report.reached(postedTwice)
		}
		return err
	}
	c.world.witness.postedTo(token, text)
	return nil
}

// callbackRecord is a callback as it was made.
type callbackRecord struct {
	id     stepID
	dueAt  time.Time
	post   string // empty: nobody has posted
	postAt time.Time
	over   bool // its wait's time is
}

// makes takes in a new callback: one for each step.
func (t *witness) makes(op store.InsertCallback) {
	id := t.runs[op.Callback.RunID].step(op.Callback.StepID)
	for _, c := range t.callbacks {
		if c.id == id {
			t.broken("W8", "%s has made a second callback", id)
		}
	}
	t.callbacks[op.Callback.TokenHash] = &callbackRecord{id: id, dueAt: op.Callback.DueAt}
}

// passesCallbacks takes in the callbacks that a replay takes over: those of the entries that it keeps, where their runs have ended (K5).
func (t *witness) passesCallbacks(r, original *record, made []store.PassedCallback) {
	due := map[string]string{} // owners, by hash
	for i := range original.entries[:min(r.kept, int64(len(original.entries)))] {
		var made madeCallback
		e := original.entries[i].saved
		if e.Kind != workflow.KindCallback || json.Unmarshal(e.Output, &made) != nil || made.Token == "" {
			continue
		}
		if c := t.callbackOf(made.Token); c != nil && t.runs[c.id.run].Status.Final() {
			due[hashOf(made.Token)] = c.id.run
		}
	}
	for _, p := range made {
		if owner := t.runs[p.Owner]; owner != nil && !owner.Status.Final() {
			continue // it stays
		}
		if due[p.TokenHash] != p.Owner {
			t.broken("K5", "run %s takes a callback from run %s, which %q has", r.ID, p.Owner, due[p.TokenHash])
			continue
		}
		c := t.callbacks[p.TokenHash]
		c.id = r.step(c.id.StepID)
		delete(due, p.TokenHash)
		t.world.report.reached(callbackPassed)
	}
	if len(due) > 0 {
		t.broken("K5", "run %s keeps callbacks of runs that have ended, and they don't pass to it: %v", r.ID, due)
	}
}

// lacksCallback tells whether an entry says truly that a replay does not have a callback whose step it keeps: another run has it, or it is gone.
func (t *witness) lacksCallback(r *record, e store.Entry) bool {
	if e.Kind != workflow.KindCallback || e.Status != workflow.StepFailed {
		return false
	}
	for _, kept := range r.entries[:min(r.kept, int64(len(r.entries)))] {
		var made madeCallback
		if kept.saved.Name != e.Name || json.Unmarshal(kept.saved.Output, &made) != nil || made.Token == "" {
			continue
		}
		if c := t.callbackOf(made.Token); c == nil || c.id.run != r.ID {
			return true
		}
	}
	return false
}

// posts takes in what was posted to a callback: once, and before its time is over.
func (t *witness) posts(op store.EndCallback) {
	c := t.callbacks[op.TokenHash]
	if c == nil || c.post != "" || c.over {
		t.broken("W8", "a callback is posted to twice, or after its wait was over, or was not made: %+v", c)
		return
	}
	var got posted
	json.Unmarshal(op.Payload, &got) //nolint:errcheck // then it is empty
	c.post, c.postAt = got.Post, time.Now()
	if r := t.runs[c.id.run]; r.open[workflow.StepID{Name: c.id.Name, Number: c.id.Number + 1}] == nil {
		t.world.report.reached(postedBefore)
	} else {
		t.world.report.reached(postedWhile)
	}
}

// expires takes in that a callback's wait is over without a post.
func (t *witness) expires(op store.ExpireCallback) {
	c := t.callbacks[op.TokenHash]
	if c == nil || c.post != "" {
		t.broken("W8", "a callback is over without a post, and has one, or was not made: %+v", c)
		return
	}
	c.over = true
}

// postedTo is told that a post was acknowledged.
func (t *witness) postedTo(token, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.callbackOf(token); c == nil || c.post != text {
		t.broken("W6", "a post to a callback was acknowledged, and is not stored: %+v", c)
	}
}

func (t *witness) callbackOf(token string) *callbackRecord {
	return t.callbacks[hashOf(token)]
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// madeCallback is what the code gets of a callback, and of its wait.
type madeCallback struct {
	Token   string `json:"token"`
	Payload posted `json:"payload"`
}

// textOfCallback is what the code is shown of an entry of a callback, or of the wait for it.
func textOfCallback(e store.Entry) string {
	var made madeCallback
	switch {
	case string(e.Output) == "null":
		return noEvent
	case json.Unmarshal(e.Output, &made) != nil:
		return string(e.Output)
	case made.Token != "":
		return made.Token
	}
	return made.Payload.Post
}

// checkMade checks the entry of a callback that was made; false if the entry is that of the wait for one.
func (t *witness) checkMade(r *record, e store.Entry) bool {
	var made madeCallback
	if e.Kind != workflow.KindCallback || json.Unmarshal(e.Output, &made) != nil || made.Token == "" {
		return false
	}
	if c := t.callbackOf(made.Token); c == nil || c.id != r.step(e.StepID) {
		t.broken("W6", "%s has the callback %+v", r.step(e.StepID), c)
	}
	return true
}

// checkPosted checks what a wait for a callback has come to: what was posted, and nothing only after its time (W4, W5).
func (t *witness) checkPosted(r *record, w *openWait, e store.Entry, early bool) {
	id := r.step(e.StepID)
	var c *callbackRecord
	for _, made := range t.callbacks {
		if made.id == r.step(workflow.StepID{Name: w.Name, Number: w.Of}) {
			c = made
		}
	}
	text := textOfCallback(e)
	if c != nil && text == noEvent {
		t.checkSoon(id, w, w.DueAt)
	} else if c != nil {
		t.checkSoon(id, w, c.postAt)
	}
	switch {
	case c == nil:
		t.broken("H3", "%s waits for a callback that was not made", id)
	case text != noEvent && text != c.post:
		t.broken("W7", "%s is over with %q, and posted was %q", id, text, c.post)
	case text == noEvent && early:
		t.broken("W4", "%s is over %v before it is due", id, w.DueAt.Sub(t.world.latest()))
	case text == noEvent && c.post != "" && t.world.undisturbed(c.postAt, w.openedAt) > soon:
		t.broken("W5", "%s is over without a post, and %q was posted at %v", id, c.post, c.postAt)
	}
}
