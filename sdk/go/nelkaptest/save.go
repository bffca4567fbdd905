package nelkaptest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/contact"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// item is an item of a save, or of what a suspended answer registers.
type item struct {
	Op, Kind, Name  string
	Number, Attempt int
	Output          json.RawMessage
	Error           *wire.Error
	Retriable       bool
	Retries         int
	RetryAfterMs    *int64
	Once            bool

	DelayMs, ForMs int64
	TimeoutMs      *int64
	Until          string // of a sleep an instant, of a claim when it is freed
	Events         []string
	Match          map[string]json.RawMessage
	If, Since      string
	Workflow, App  string
	Payload        json.RawMessage
	Key            string
	Of             int
}

func (i *item) ref() ref { return ref{Name: i.Name, Number: i.Number} }

// claim is a key that a run owns.
type claim struct {
	owner     *run
	freedWhen string
	hold      time.Duration
}

// words are what a save of the item is called where a call is cut off.
func (i *item) words() string {
	what := map[string]string{
		wire.OpStart: "the start of", wire.OpCompleted: "the result of", wire.OpFailed: "the failure of",
		wire.OpWait: "the wait", wire.OpClaim: "the claim", wire.OpCallback: "the callback",
		wire.OpUndo: "the undo",
	}[i.Op]
	if i.Name == "" {
		return "the claim of the workflow's Once"
	}
	return fmt.Sprintf("%s step %q", what, i.Name)
}

// saves answers POST /v1/saves.
func (p *process) saves(body []byte) (status int, answer any) {
	var message struct {
		Saves []struct {
			Call  string
			Seen  int64
			Items []item
			Logs  []line
		}
	}
	if err := json.Unmarshal(body, &message); err != nil {
		return problem(http.StatusBadRequest, "bad_request", err.Error())
	}
	outcomes := []any{}
	for _, s := range message.Saves {
		outcome, cut := p.world.save(p, s.Seen, s.Items, s.Logs)
		if cut {
			p.tell(&wire.News{Status: wire.StatusSuperseded})
		}
		outcome["call"] = s.Call
		outcomes = append(outcomes, outcome)
	}
	return http.StatusOK, map[string]any{"time": time.Now().UTC(), "saves": outcomes}
}

// save is the outcome of one save. cut is true where the call was cut off by it.
func (w *world) save(p *process, seen int64, items []item, lines []line) (outcome map[string]any, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := p.run
	superseded := map[string]any{"status": wire.StatusSuperseded}
	switch {
	case p.cut:
		return superseded, false
	case r.hasEnded():
		return map[string]any{"status": wire.StatusEnded}, false
	case r.process != p:
		return superseded, false
	}
	var words []string
	for i := range items {
		words = append(words, items[i].words())
	}
	what := strings.Join(words, " and ")
	if len(items) > 0 && w.cuts(p, "before "+what+" was saved") {
		return superseded, true
	}
	r.keep(p, lines)
	outcomes, own := []any{}, map[int64]bool{}
	for i := range items {
		o := w.saveItem(p, &items[i])
		if r.hasEnded() {
			return map[string]any{"status": wire.StatusEnded}, false
		}
		outcomes, own[o.Entry] = append(outcomes, o.fields()), true
	}
	if len(items) > 0 && w.cuts(p, "after "+what+" was saved and before the app heard of it") {
		return superseded, true
	}
	entries := slices.DeleteFunc(r.wireEntries(nil, seen), func(e wire.Entry) bool { return own[e.Entry] })
	return map[string]any{"status": wire.StatusAccepted, "items": outcomes, "entries": entries, "ending": r.endingNow()}, false
}

// outcome is the outcome of an item.
type outcome struct{ wire.ItemOutcome }

// fields are what is sent of it.
func (o outcome) fields() map[string]any {
	fields := map[string]any{"status": o.Status, "entry": o.Entry, "attempt": o.Attempt, "retryInMs": o.RetryInMs, "again": o.Again}
	if o.Output != nil {
		fields["output"] = o.Output
	}
	if o.Error != nil {
		fields["error"] = o.Error
	}
	return fields
}

func (w *world) saveItem(p *process, i *item) outcome {
	r := p.run
	if there := r.entryOf(i.ref()); there != nil {
		if there.by == p {
			return outcome{wire.ItemOutcome{Status: wire.ItemSaved, Entry: there.Entry.Entry, Output: there.Output}}
		}
		return outcome{wire.ItemOutcome{Status: wire.ItemStands}}
	}
	e := wire.Entry{Kind: i.Kind, Name: i.Name, Number: i.Number, Status: wire.OpCompleted, Attempts: i.Attempt}
	switch i.Op { // an undo has its name alone
	case wire.OpStart:
		return w.startStep(p, i)
	case wire.OpCompleted:
		e.Output = i.Output
	case wire.OpFailed:
		if i.Retriable && i.Attempt <= i.Retries {
			return w.retry(r, i)
		}
		e.Status, e.Error = wire.OpFailed, i.Error
	case wire.OpWait:
		w.register(r, i)
		return outcome{wire.ItemOutcome{Status: wire.ItemWaiting}}
	case wire.OpClaim:
		owner := w.claim(r, i)
		if i.Once && owner != r.id {
			r.owner = owner
			w.finish(r, nelkap.StatusSkipped, nil, nil)
			return outcome{}
		}
		e.Output = fmt.Append(nil, owner == r.id)
	case wire.OpCallback:
		e.Output = w.makeCallback(r, i)
	}
	saved := outcome{wire.ItemOutcome{Status: wire.ItemSaved, Entry: r.append(e, p)}}
	if i.Op == wire.OpClaim || i.Op == wire.OpCallback {
		saved.Output = e.Output
	}
	if i.Op == wire.OpCallback && w.timing == early {
		w.giveFirst(func(o *fromOutside) bool { return o.event == nil && o.callback == i.Name })
	}
	return saved
}

func (w *world) startStep(p *process, i *item) outcome {
	r := p.run
	if r.ending != nil && r.closing == nil {
		return outcome{wire.ItemOutcome{Status: wire.ItemRefused, Error: &wire.Error{Name: "Error", Message: "the run is ending"}}}
	}
	before := r.starts[i.ref()]
	if i.Once && before != nil && before != p {
		r.append(wire.Entry{
			Kind: wire.KindRun, Name: i.Name, Number: i.Number, Status: wire.OpFailed, Attempts: 1,
			Error: &wire.Error{Name: "StepInterruptedError", Message: "the step was cut off while it ran: whether it took effect is not known"},
		}, nil)
		return outcome{wire.ItemOutcome{Status: wire.ItemStands}}
	}
	r.starts[i.ref()] = p
	return outcome{wire.ItemOutcome{Status: wire.ItemStarted, Again: before != nil}}
}

func (w *world) retry(r *run, i *item) outcome {
	rest := pause(i.Attempt, i.RetryAfterMs)
	at := slices.IndexFunc(r.retries, func(t *retry) bool { return t.ref == i.ref() })
	if at < 0 {
		at = len(r.retries)
		r.retries = append(r.retries, &retry{ref: i.ref()})
	}
	r.retries[at].attempt, r.retries[at].due = i.Attempt, w.now().Add(rest)
	return outcome{wire.ItemOutcome{Status: wire.ItemRetrying, Attempt: i.Attempt, RetryInMs: rest.Milliseconds()}}
}

// claim takes a key for a run; it gives the run that owns it then.
func (w *world) claim(r *run, i *item) string {
	if slices.Contains(w.options.claimed, i.Key) {
		return "run_of_another"
	}
	key := fmt.Sprintf("%q %q %q %q", r.app, r.workflow, i.Name, i.Key)
	if c := w.claims[key]; c != nil && c.owner != r && !c.free(w.now()) {
		return c.owner.id
	}
	w.claims[key] = &claim{owner: r, freedWhen: i.Until, hold: time.Duration(i.ForMs) * time.Millisecond}
	return r.id
}

// free is true where an ended owner's key passes on by its own rule (K3).
func (c *claim) free(now time.Time) bool {
	if !c.owner.hasEnded() {
		return false
	}
	return c.freedWhen == "failed" && c.owner.status == nelkap.StatusFailed ||
		c.hold > 0 && !now.Before(c.owner.endedAt.Add(c.hold))
}

func (w *world) makeCallback(r *run, i *item) json.RawMessage {
	token := contact.Nonce()
	c := &callback{ref: i.ref(), token: token, url: "http://127.0.0.1:6355/callbacks/" + token}
	if i.TimeoutMs != nil {
		c.due = w.now().Add(time.Duration(*i.TimeoutMs) * time.Millisecond)
	}
	r.callbacks = append(r.callbacks, c)
	return fmt.Appendf(nil, `{"url":%q,"token":%q}`, c.url, c.token)
}
