package sim

import (
	"bytes"
	"context"
	"encoding/json/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"

	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// answered is told that an answer leaves a node: what it promises must be stored by now (W6).
func (t *witness) answered(n *node, m *message, a *answer) {
	if a.status >= 300 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch m.kind {
	case "save":
		t.answeredSaves(n, m, a)
	case "end":
		t.answeredEnds(n, m, a)
	case "poll":
		t.answeredPoll(n, m, a)
	case "run", "replay", "read", "cancel":
		var run struct{ ID string }
		if json.Unmarshal(a.body.Bytes(), &run, json.MatchCaseInsensitiveNames(true)) == nil && run.ID != "" && t.runs[run.ID] == nil {
			t.broken("W6", "%s answered %s with run %s, which is not stored", n.name, m.id, run.ID)
		}
	}
}

func runOfToken(token string) string {
	run, _, _ := strings.Cut(token, ".")
	return run
}

func (t *witness) answeredSaves(n *node, m *message, a *answer) {
	var sent wire.Saves
	var got wire.SavesAnswer
	if wire.Decode(m.body, &sent) != nil || wire.Decode(a.body.Bytes(), &got) != nil || len(got.Saves) != len(sent.Saves) {
		t.broken("N3", "%s answered %s with %s", n.name, m.id, a.body.Bytes())
		return
	}
	for i, out := range got.Saves {
		save := sent.Saves[i]
		t.told(n, m, save.Fence, out.Status)
		if out.Status == wire.Invalid {
			t.broken("protocol", "%s found the save %s invalid: %s", n.name, m.id, out.Detail)
		}
		if out.Status != wire.Accepted {
			continue
		}
		for j, item := range out.Items {
			t.answeredItem(n, save.Call, &save.Items[j], item)
		}
		t.answeredEntries(n, m, save.Call, out.Entries)
	}
}

func (t *witness) answeredEntries(n *node, m *message, call string, entries []wire.Entry) {
	for _, shown := range entries {
		e := t.entryOf(call, workflow.StepID{Name: shown.Name, Number: shown.Number})
		if e == nil || e.saved.Entry != shown.Entry || string(e.saved.Output) != string(shown.Output) {
			t.broken("W6", "%s answered %s with entry %d of step %s/%d, which is not stored so", n.name, m.id, shown.Entry, shown.Name, shown.Number)
		}
	}
}

// entryOf is the entry that a call's chapter has of a step; nil if it has none.
func (t *witness) entryOf(call string, id workflow.StepID) *entry {
	c := t.calls[call]
	return t.runs[c.run].entryIn(c.restart, id)
}

func (t *witness) answeredItem(n *node, call string, item *wire.Item, out wire.ItemOutcome) {
	id := workflow.StepID{Name: item.Name, Number: item.Number}
	r, e := t.runs[t.calls[call].run], t.entryOf(call, id)
	step := stepID{r.ID, t.calls[call].restart, id}
	switch out.Status {
	case wire.ItemSaved:
		made := item.Op == wire.OpClaim && string(e.output()) != string(out.Output)
		if e == nil || e.saved.Entry != out.Entry || made || item.Op == wire.OpCompleted && string(e.saved.Output) != string(item.Output) {
			t.broken("W6", "%s acknowledged %s of run %s as entry %d, and stored is %+v", n.name, item.Name, r.ID, out.Entry, e)
		}
	case wire.ItemWaiting:
		if e == nil && !t.registered[step] {
			t.broken("W6", "%s says that %s waits, and nothing is stored", n.name, step)
		}
	case wire.ItemStands:
		t.world.report.reached(stepStands)
		if e == nil {
			t.broken("W6", "%s says that %s of run %s stands, and nothing is stored", n.name, item.Name, r.ID)
		}
	case wire.ItemRetrying:
		if t.retries[retryOf{step, out.Attempt}].IsZero() {
			t.broken("W6", "%s acknowledged a retry of %s of run %s, which is not stored", n.name, item.Name, r.ID)
		}
	}
}

// told checks what a playing is told of its call: that it is over is said only of one that is.
func (t *witness) told(n *node, m *message, f wire.Fence, status string) {
	r := t.runs[runOfToken(f.Token)]
	current := r != nil && r.Call != nil && r.Call.ID == f.Call
	mine := current && (r.Call.Nonce == "" || r.Call.Nonce == f.Nonce)
	switch status {
	case wire.Superseded:
		if mine && !t.calls[f.Call].restored.After(m.takenAt) { // it was not, when this was decided
			t.broken("C3", "%s told the current call %s of %s by %s that it is superseded", n.name, f.Call, r.ID, m.id)
		}
		if current {
			t.world.report.reached(supersededPlaying)
		} else {
			t.world.report.reached(supersededSave)
		}
		t.reachPast(f)
	case wire.Ended:
		t.reachPast(f)
		if mine && !r.Status.Final() {
			t.broken("C3", "%s told the current call %s of %s by %s that it has ended", n.name, f.Call, r.ID, m.id)
		}
	case wire.Later:
		t.world.report.reached(toldLater)
	}
}

// reachPast notes that a playing of a closed chapter was told that it is over.
func (t *witness) reachPast(f wire.Fence) {
	if c := t.calls[f.Call]; c != nil && c.restart < t.runs[c.run].Restart {
		t.world.report.reached(savedInPastChapter)
	}
}

func (t *witness) answeredEnds(n *node, m *message, a *answer) {
	var sent wire.Ends
	var got wire.EndsAnswer
	if wire.Decode(m.body, &sent) != nil || wire.Decode(a.body.Bytes(), &got) != nil || len(got.Ends) != len(sent.Ends) {
		t.broken("N3", "%s answered %s with %s", n.name, m.id, a.body.Bytes())
		return
	}
	for i, out := range got.Ends {
		end := sent.Ends[i]
		t.told(n, m, end.Fence, out.Status)
		if out.Status != wire.Accepted || end.End.Type == wire.Over {
			continue
		}
		t.world.report.reached(endThroughAPI)
		if end.End.Type == wire.Restarted {
			t.world.report.reached(begunAgainByAPI)
		}
		r := t.runs[runOfToken(end.Token)]
		if r.Call != nil && r.Call.ID == end.Call {
			t.broken("W6", "%s acknowledged the end of call %s of run %s, which is not stored", n.name, end.Call, r.ID)
		}
		for _, item := range end.End.Unsaved {
			if item.Op == wire.OpCompleted && t.entryOf(end.Call, workflow.StepID{Name: item.Name, Number: item.Number}) == nil {
				t.broken("W6", "%s acknowledged an end with an unsaved result of %s of run %s, which is not stored", n.name, item.Name, r.ID)
			}
		}
	}
}

func (t *witness) answeredPoll(n *node, m *message, a *answer) {
	var got wire.HeartbeatAnswer
	var sent wire.Heartbeat
	if wire.Decode(m.body, &sent) != nil || wire.Decode(a.body.Bytes(), &got) != nil {
		t.broken("N3", "%s was answered with %s", m.id, a.body.Bytes())
		return
	}
	for _, news := range got.Calls {
		i := slices.IndexFunc(sent.Calls, func(f wire.Named) bool { return f.Call == news.Call && f.Nonce == news.Nonce })
		if i < 0 {
			t.broken("C7", "%s was answered with news of call %s, which it did not name", m.id, news.Call)
			continue
		}
		if t.calls[news.Call] != nil {
			t.answeredEntries(n, m, news.Call, news.Entries)
		}
	}
}

// started is told that a client's start was acknowledged.
func (t *witness) started(o operation, run string, created bool, asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.runs[run]
	if r == nil {
		t.broken("W6", "run %s was acknowledged, and is not stored", run)
		return
	}
	r.acked = true
	if created && o.delay > 0 {
		t.world.report.reached(begunLater)
		if r.startAt.Before(r.CreatedAt.Add(o.delay.Truncate(time.Millisecond))) {
			t.broken("W4", "run %s was to start %v after %v, and starts at %v", run, o.delay, r.CreatedAt, r.startAt)
		}
	}
	if o.key == "" {
		return
	}
	if o.keyFor > 0 {
		t.checkHeld(o, r, created, asked)
	} else if owner := t.keys[runKey{o.workflow.app, o.workflow.name, o.key}]; owner != run {
		t.broken("W8", "a start with key %q was answered with run %s, and the key is run %s's", o.key, run, owner)
	}
	if !created {
		t.world.report.reached(keyAnswered)
	}
}

// emitted is told that a client's event was acknowledged; at is when it was asked for, zero: at once.
func (t *witness) emitted(name, id string, created bool, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if created {
		t.checkAhead(eventID{name, id}, at)
	}
	if t.events[eventID{name, id}] == nil && t.later[eventID{name, id}] == nil {
		t.broken("W6", "event %s %s was acknowledged, and is not stored", name, id)
	}
	if !created {
		t.world.report.reached(eventAnswered)
	}
}

// cancelled is told that a cancellation was acknowledged.
func (t *witness) cancelled(got *nelkap.RunRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.runs[got.ID]; r == nil || r.Ending == nil && !r.Status.Final() {
		t.broken("W6", "the cancellation of run %s was acknowledged, and is not stored", got.ID)
	}
}

// replayed is told that a replay was acknowledged.
func (t *witness) replayed(asked *replayAsked, got *nelkap.RunRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.runs[got.ID]
	if r == nil || r.ReplayOf != asked.original {
		t.broken("W6", "the replay %s of run %s was acknowledged, and is not stored as one", got.ID, asked.original)
		return
	}
	t.checkAsked(r, asked)
}

// read is told what a client read: what has ended stays as it is (W3).
func (t *witness) read(got *nelkap.RunRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.runs[got.ID]; got.Status.Ended() && string(r.Status) != string(got.Status) {
		t.broken("W3", "run %s was read as %s, and is %s", got.ID, got.Status, r.Status)
	}
}

// finishRun checks how a run has ended. mu is held.
func (t *witness) finishRun(r *record) {
	if !r.Status.Final() {
		return
	}
	t.world.report.Runs++
	got, err := t.model.Record(context.Background(), r.Env, r.ID)
	if err != nil || r.Status != workflow.Completed {
		return
	}
	for id, c := range t.calls {
		if c.run == r.ID && id == r.lastCall && !slices.Contains(c.outputs, string(got.Output)) {
			t.broken("W1", "run %s completed with %s, and the code of its last call %s returned %q", r.ID, got.Output, id, c.outputs)
		}
	}
}

// ends is told that an app says how calls ended, in an answer or through the API.
func (t *witness) ends(calls ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range calls {
		if c := t.calls[id]; c != nil {
			c.ended = true
		}
	}
}

// hasUnsaved is told of an answer to a call that a node took.
func (t *witness) hasUnsaved(a *answer) {
	var end wire.End
	if a.status == http.StatusOK && bytes.Contains(a.body.Bytes(), []byte(`"unsaved"`)) && wire.Decode(a.body.Bytes(), &end) == nil && len(end.Unsaved) > 0 {
		t.world.report.reached(unsavedInAnswer)
	}
}
