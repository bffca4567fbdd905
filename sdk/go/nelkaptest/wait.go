package nelkaptest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/typeid"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// event is a stored event.
type event struct {
	ID        string          `json:"id"`
	Event     string          `json:"event"`
	Payload   json.RawMessage `json:"payload,omitempty"`
	CreatedAt time.Time       `json:"createdAt"`
}

func (e *event) received() nelkap.ReceivedEvent {
	return nelkap.ReceivedEvent{ID: e.ID, Name: e.Event, Payload: e.Payload, CreatedAt: e.CreatedAt}
}

// timing says when what comes from outside comes.
type timing int

const (
	inTime timing = iota // as soon as it is waited for
	early                // an event as soon as the run exists, a post as soon as its callback does
	late                 // when nothing else can happen any more but that a wait times out
	twice                // in time, and once more right after that
)

// fromOutside is an event, a post to a callback by its step's name, or a cancellation when a step of that name is waited for.
type fromOutside struct {
	event    *event
	callback string
	payload  json.RawMessage
	cancelAt string
	came     bool // early, and is kept for waits that look back no further than to their own start: to them it comes now
}

// beginOutside brings what comes early: events, as soon as the run exists. They stay for waits that look back no further than to their own
// start. mu is held.
func (w *world) beginOutside() {
	for i := range w.outside {
		if o := &w.outside[i]; w.timing == early && o.event != nil {
			w.bring(o)
			o.came = true
		}
	}
}

// give brings the first that is waited for. mu is held.
func (w *world) give() bool {
	return w.giveFirst(w.awaited)
}

func (w *world) giveFirst(is func(*fromOutside) bool) bool {
	for i := range w.outside {
		o := w.outside[i]
		if !is(&o) {
			continue
		}
		w.outside = slices.Delete(w.outside, i, i+1)
		w.bring(&o)
		if w.timing == twice {
			w.bring(&o)
		}
		return true
	}
	return false
}

func (w *world) bring(o *fromOutside) {
	if o.event != nil {
		e := *o.event
		if o.came {
			w.hold(&e)
		} else {
			w.store(&e)
		}
		return
	}
	if o.cancelAt != "" {
		for _, r := range w.runs {
			if r.waitsFor(o.cancelAt) {
				w.cancel(r, wire.ReasonCancelled)
			}
		}
		return
	}
	for _, r := range w.runs {
		if w.post(r, o.callback, o.payload) {
			return
		}
	}
}

func (w *world) awaited(o *fromOutside) bool {
	return slices.ContainsFunc(w.runs, func(r *run) bool {
		if r.hasEnded() || !r.played {
			return false
		}
		if o.cancelAt != "" {
			return r.waitsFor(o.cancelAt)
		}
		if o.event != nil && w.timing != early && r.status == nelkap.StatusWaiting && w.cancels(r, o.event) {
			return true
		}
		return slices.ContainsFunc(r.waits, func(t *wait) bool {
			if o.event == nil {
				return t.item.Kind == wire.KindCallback && t.item.Name == o.callback
			}
			return (w.timing != early || t.item.Since == "wait") && w.fits(t, o.event)
		})
	})
}

// stored is the event of that name and id; nil where there is none. mu is held.
func (w *world) stored(name, id string) *event {
	if i := slices.IndexFunc(w.events, func(e *event) bool { return e.Event == name && e.ID == id }); i >= 0 {
		return w.events[i]
	}
	return nil
}

// store stores an event and gives it to those who wait for it. One whose id is there already is no other (K3). mu is held.
func (w *world) store(e *event) {
	if e.ID == "" {
		e.ID = typeid.New("evt")
	}
	if w.stored(e.Event, e.ID) == nil {
		w.hold(e)
	}
}

// hold stores an event, whatever came before. mu is held.
func (w *world) hold(e *event) {
	e.CreatedAt = w.now().UTC()
	at := len(w.events)
	w.events = append(w.events, e)
	for _, r := range w.runs {
		if r.hasEnded() {
			continue
		}
		if w.cancels(r, e) {
			w.cancel(r, wire.ReasonCancelled)
			continue
		}
		if i := slices.IndexFunc(r.waits, func(t *wait) bool { return at >= t.since && w.fits(t, e) }); i >= 0 {
			w.take(r, r.waits[i], at)
		}
	}
}

func (w *world) take(r *run, t *wait, at int) {
	r.used[at] = true
	text, err := json.Marshal(w.events[at])
	if err != nil {
		w.fail(err)
		return
	}
	w.come(r, t.item.ref(), wire.Entry{Status: wire.OpCompleted, Output: text})
}

// cancels is true for an event of the workflow's CancelOn.
func (w *world) cancels(r *run, e *event) bool {
	for _, on := range w.declared[r.workflow].CancelOn {
		if r.played && on.Event == e.Event && (on.If == "" || w.passes(on.If, e, "CancelOn of workflow "+r.workflow)) {
			return true
		}
	}
	return false
}

// fits is true where an open wait would take an event.
func (w *world) fits(t *wait, e *event) bool {
	if t.item.Kind != wire.KindEvent || !slices.Contains(t.item.Events, e.Event) {
		return false
	}
	for path, want := range t.item.Match {
		if !matches(e, path, want) {
			return false
		}
	}
	return t.item.If == "" || w.passes(t.item.If, e, fmt.Sprintf("the wait %q", t.item.Name))
}

func matches(e *event, path string, want json.RawMessage) bool {
	text, err := json.Marshal(e)
	var there, wanted any
	if err != nil || json.Unmarshal(text, &there) != nil || json.Unmarshal(want, &wanted) != nil {
		return false
	}
	for _, name := range strings.Split(path, ".") {
		members, ok := there.(map[string]any)
		if !ok {
			return false
		}
		if there, ok = members[name]; !ok {
			return false
		}
	}
	return reflect.DeepEqual(there, wanted)
}

func (w *world) passes(filter string, e *event, who string) bool {
	f := w.options.filters[filter]
	if f == nil {
		w.fail(fmt.Errorf("%s has the filter %q, and nelkaptest evaluates no CEL: say what it gives with Filter(%q, func(event nelkap.ReceivedEvent) bool { … })",
			who, filter, filter))
		return false
	}
	return f(e.received())
}

// register opens a wait, unless it is open or over. mu is held.
func (w *world) register(r *run, i *item) {
	open := slices.ContainsFunc(r.waits, func(t *wait) bool { return t.item.ref() == i.ref() })
	if open || r.entryOf(i.ref()) != nil {
		return
	}
	now := w.now()
	t := &wait{item: *i, since: r.since}
	if i.Since == "wait" {
		t.since = len(w.events)
	}
	if i.TimeoutMs != nil {
		t.due = now.Add(time.Duration(*i.TimeoutMs) * time.Millisecond)
	}
	r.waits = append(r.waits, t)
	switch i.Kind {
	case wire.KindSleep:
		t.due = now.Add(time.Duration(i.DelayMs) * time.Millisecond)
		if i.Until != "" {
			until, err := time.Parse(time.RFC3339, i.Until)
			if err != nil {
				w.fail(err)
			}
			t.due = until
		}
	case wire.KindEvent:
		for at := t.since; at < len(w.events); at++ {
			e := w.events[at]
			if !r.used[at] && (r.event == nil || e.ID != r.event.ID) && w.fits(t, e) {
				w.take(r, t, at)
				return
			}
		}
	case wire.KindInvoke:
		w.invoke(r, t)
	case wire.KindCallback:
		w.awaitCallback(r, t)
	}
}

func (w *world) invoke(r *run, t *wait) {
	app := t.item.App
	if app == "" {
		app = r.app
	}
	if !w.playable(app, t.item.Workflow) {
		w.fail(fmt.Errorf("the step %q invokes %q, which the app of the test does not declare: give it with FakeWorkflow", t.item.Name, t.item.Workflow))
		return
	}
	t.child = w.start(&run{workflow: t.item.Workflow, app: app, payload: t.item.Payload, parent: r, parentWait: t.item.ref()})
}

func (w *world) awaitCallback(r *run, t *wait) {
	made := ref{Name: t.item.Name, Number: t.item.Of}
	for _, c := range r.callbacks {
		if c.ref != made {
			continue
		}
		t.due = c.due
		if c.posted {
			w.posted(r, t, c)
		}
		return
	}
}

func (w *world) posted(r *run, t *wait, c *callback) {
	output := []byte(`{}`)
	if c.payload != nil {
		output = fmt.Appendf(nil, `{"payload":%s}`, c.payload)
	}
	w.come(r, t.item.ref(), wire.Entry{Status: wire.OpCompleted, Output: output})
}

// post posts to the first open callback of that name, token or URL; false where there is none. mu is held.
func (w *world) post(r *run, name string, payload json.RawMessage) bool {
	for _, c := range r.callbacks {
		over := c.posted || r.hasEnded() || !c.due.IsZero() && !w.now().Before(c.due)
		if over || c.Name != name && c.token != name && c.url != name {
			continue
		}
		c.posted, c.payload = true, payload
		for _, t := range r.waits {
			if t.item.Kind == wire.KindCallback && t.item.Name == c.Name && t.item.Of == c.Number {
				w.posted(r, t, c)
				break
			}
		}
		return true
	}
	return false
}

// come ends a wait. mu is held.
func (w *world) come(r *run, s ref, e wire.Entry) {
	if r.hasEnded() || r.entryOf(s) != nil {
		return
	}
	i := slices.IndexFunc(r.waits, func(t *wait) bool { return t.item.ref() == s })
	if i < 0 {
		return
	}
	e.Kind, e.Name, e.Number, e.Attempts = r.waits[i].item.Kind, s.Name, s.Number, 1
	r.append(e, nil)
	if p := r.process; p != nil {
		w.tell(r, wire.News{Status: wire.StatusEntries, Entries: r.wireEntries(p, int64(p.base))})
	}
	w.look(r)
}

// happening is something that time brings.
type happening struct {
	at      time.Time
	timeout bool // it ends what someone outside could have ended before
	fire    func()
}

// fire brings the first thing whose time has come; false where there is none. mu is held.
func (w *world) fire(now time.Time) bool {
	d, any := w.next()
	if !any || d.at.After(now) || w.problem != nil {
		return false
	}
	d.fire()
	return true
}

// next is what time brings next. mu is held.
func (w *world) next() (first happening, any bool) {
	add := func(d happening) {
		if !d.at.IsZero() && (!any || d.at.Before(first.at)) {
			first, any = d, true
		}
	}
	for i, e := range w.later {
		add(happening{e.CreatedAt, false, func() { w.later = slices.Delete(w.later, i, i+1); w.store(e) }})
	}
	for _, r := range w.runs {
		if r.hasEnded() || !r.played {
			continue
		}
		add(happening{r.due, false, func() { w.enqueue(r) }})
		if r.ending == nil && r.closing == nil {
			add(happening{r.timeoutAt, true, func() { w.cancel(r, wire.ReasonTimedOut) }})
		}
		add(happening{r.endingAt, false, func() { w.conclude(r) }})
		for _, t := range r.waits {
			add(happening{t.due, t.item.Kind != wire.KindSleep, func() { w.runOut(r, t) }})
		}
		for _, s := range r.retriesIn(r.trees) {
			add(happening{s.due, false, func() { w.enqueue(r) }})
		}
	}
	return first, any
}

// runOut ends a wait whose time is over.
func (w *world) runOut(r *run, t *wait) {
	e := wire.Entry{Status: wire.OpCompleted}
	switch t.item.Kind {
	case wire.KindSleep:
	case wire.KindInvoke:
		e = wire.Entry{Status: wire.OpFailed, Error: &wire.Error{Name: "TimeoutError", Message: "the child run took longer than it may"}}
	default:
		e.Output = json.RawMessage("null")
	}
	w.come(r, t.item.ref(), e)
	if t.child != nil {
		w.cancel(t.child, wire.ReasonCancelled)
	}
}
