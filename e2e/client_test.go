package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nelkap/nelkap/e2e/history"
	"github.com/nelkap/nelkap/e2e/plan"
	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/id"
)

// Bounds of the clients.
const (
	// answerWithin is when a client gives a try up: sooner than a long stop ends.
	answerWithin = 2 * time.Second
	answerBytes  = 16 << 20
	// triesMax bounds how often a request is sent; the pauses between make it a minute or two, longer than all faults together last.
	triesMax      = 100
	pauseMax      = 200 * time.Millisecond
	waitEndMs     = 500
	keyNeighbours = 3 // a client takes one of the last so many keys, which others take too
)

// caller sends each request once: a history needs the times of every try.
type caller struct {
	url, key string
	http     *http.Client
	tries    atomic.Int64
	lost     atomic.Int64
}

// heard is what came of one try.
type heard struct {
	span   history.Span
	sent   bool // false: it provably never arrived
	status int  // zero without an answer
	body   []byte
}

// try sends a request. Answers by which a server says that it can't do it now, or that something went wrong, count as none.
func (c *chaos) try(method, path string, body any) heard {
	c.caller.tries.Add(1)
	h := heard{sent: true, span: history.Span{Asked: c.history.Now()}}
	status, text, err := c.caller.once(c.t.Context(), method, path, body)
	h.span.Heard = c.history.Now()
	var dial *net.OpError
	switch {
	case err != nil:
		h.sent = !errors.As(err, &dial) || dial.Op != "dial"
		c.caller.lost.Add(1)
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		c.caller.lost.Add(1)
	case status >= http.StatusInternalServerError:
		c.violate("%s %s was answered %d: %s", method, path, status, text)
	default:
		h.status, h.body = status, text
	}
	return h
}

func (c *caller) once(ctx context.Context, method, path string, body any) (status int, text []byte, err error) {
	limited, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(limited, method, c.url+path, content)
	if err != nil {
		return 0, nil, err
	}
	request.GetBody = nil // the transport sends nothing twice by itself
	request.Header.Set("Authorization", "Bearer "+c.key)
	request.Header.Set("Content-Type", "application/json")
	answer, err := c.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(io.LimitReader(answer.Body, answerBytes))
	return answer.StatusCode, text, err
}

// loader is one client: it does one thing after another, drawn from the seed.
type loader struct {
	*chaos
	app    string
	random *rand.Rand
}

// work does things until the faults are over.
func (l *loader) work(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-l.t.Context().Done():
			return
		default:
			l.act()
		}
	}
}

func (l *loader) act() {
	n := l.random.IntN(100)
	if n < 55 && l.asked.open(l.app) >= openMax {
		n = 99 // enough is under way
	}
	switch {
	case n < 28:
		l.start("")
	case n < 40:
		l.keyed()
	case n < 48:
		l.emit()
	case n < 53:
		l.hook()
	case n < 55:
		l.replay()
	case n < 56:
		l.cancel()
	case n < 70:
		l.read(l.asked.some(l.random), 0)
	case n < 85:
		l.readSteps(l.asked.some(l.random))
	default:
		l.read(l.asked.someOpen(l.app, l.random), waitEndMs)
	}
}

// chaosPlans are what runs do: the load's, one that fails at last, and one of longer bodies.
var chaosPlans = append([]plan.Plan{
	{Steps: []plan.Step{{Name: "one"}, {Name: "fails", Throws: 1_000, TakesMs: 5}, {Name: "never"}}},
	{Steps: []plan.Step{{Name: "one", TakesMs: 150}, {Name: "two", TakesMs: 50}, {Name: "three", TakesMs: 150}, {Name: "four", TakesMs: 10}, {Name: "five", TakesMs: 150}}},
	{Steps: []plan.Step{{Name: "one"}, {Name: "two"}, {Name: "three"}, {Name: "four"}, {Name: "five"}, {Name: "six"}, {Name: "seven"}, {Name: "eight"}}},
}, loadPlans...)

// again sends a request until it is answered; some clients give up after the first try whose answer is lost. record notes each try
// that may have arrived.
func (l *loader) again(path string, body any, record func(h heard)) (answered heard, ok bool) {
	patient := l.random.IntN(10) > 0
	for range triesMax {
		h := l.try(http.MethodPost, path, body)
		if h.sent {
			record(h)
		}
		if h.status != 0 {
			return h, true
		}
		if (h.sent && !patient) || l.t.Context().Err() != nil {
			return h, false
		}
		l.pause()
	}
	return heard{}, false
}

// pause is what a client does before it tries again.
func (l *loader) pause() { pass(l.t.Context(), time.Duration(l.random.Int64N(int64(pauseMax)))) }

// keyed starts a run with a key that other clients use at the same time.
func (l *loader) keyed() {
	n := l.keys.Load()
	if l.random.IntN(3) == 0 {
		n = l.keys.Add(1)
	}
	key := fmt.Sprintf("key %d", max(0, n-l.random.Int64N(keyNeighbours)))
	l.start(key)
	if l.random.IntN(4) == 0 {
		l.start(key)
	}
}

func (l *loader) start(key string) {
	which := l.random.IntN(len(chaosPlans))
	mine := id.New(id.Run)
	register, value := "run id "+mine, strconv.Itoa(which)
	if key != "" {
		register = "run key " + l.app + "/" + key
	}
	body := map[string]any{"workflow": plan.Planned, "app": l.app, "payload": chaosPlans[which], "id": mine}
	if key != "" {
		body["key"] = key
	}
	l.started("/v1/runs", body, register, history.Claim{ID: mine, Value: value, Drawn: true})
}

// replay replays a run that has ended.
func (l *loader) replay() {
	of := l.asked.someEnded(l.random)
	if of == "" {
		return
	}
	mine := id.New(id.Run)
	l.started("/v1/runs/"+of+"/replay", map[string]any{"id": mine}, "run id "+mine, history.Claim{ID: mine, Drawn: true})
}

func (l *loader) started(path string, body any, register string, want history.Claim) {
	l.asked.proposed(want.ID)
	answered, ok := l.again(path, body, func(h heard) {
		if h.status == 0 {
			l.history.Claim(h.span, register, want, nil)
			l.history.Start(h.span, want.ID, false)
			return
		}
		run, ok := read[apitype.StartedRun](l.chaos, h, register)
		if !ok {
			return
		}
		l.history.Claim(h.span, register, want, &history.Claimed{ID: run.ID, Created: run.Created, Differs: run.PayloadDiffers})
		l.history.Start(h.span, run.ID, true)
		l.saw(h.span, run.Run)
	})
	if ok && answered.status < http.StatusBadRequest {
		run, _ := read[apitype.StartedRun](l.chaos, answered, register)
		l.asked.acknowledged(l.app, run.Run)
		switch {
		case !run.Created:
			l.counts.found.Add(1)
		case run.ReplayOf != nil:
			l.counts.replays.Add(1)
		default:
			l.counts.started.Add(1)
		}
	}
}

// read reads an answer. One that is none of the kind is a violation.
func read[T any](c *chaos, h heard, what string) (value T, ok bool) {
	if h.status >= http.StatusBadRequest {
		c.violate("%s was answered %d: %s", what, h.status, h.body)
		return value, false
	}
	if err := json.Unmarshal(h.body, &value); err != nil {
		c.violate("%s was answered %s", what, h.body)
		return value, false
	}
	return value, true
}

// emit emits an event, with an id that others may use too, and sometimes twice.
func (l *loader) emit() {
	n := l.events.Load()
	if l.random.IntN(2) == 0 {
		n = l.events.Add(1)
	}
	eventID := fmt.Sprintf("event %d", max(0, n-l.random.Int64N(keyNeighbours)))
	small := plan.Plan{Steps: []plan.Step{{Name: "small"}}, Parent: fmt.Sprintf("client %d", l.random.IntN(2))}
	body := map[string]any{"event": plan.Event(l.app), "id": eventID, "payload": small}
	want := history.Claim{ID: eventID, Value: small.Parent}
	l.asked.proposed(l.app + "/" + eventID)
	for range 1 + l.random.IntN(2) {
		answered, ok := l.again("/v1/events", body, func(h heard) {
			if h.status == 0 {
				l.history.Claim(h.span, "event "+l.app+"/"+eventID, want, nil)
			} else if e, ok := read[apitype.EmittedEvent](l.chaos, h, eventID); ok {
				l.history.Claim(h.span, "event "+l.app+"/"+eventID, want, &history.Claimed{ID: e.ID, Created: e.Created, Differs: e.PayloadDiffers})
			}
		})
		if ok && answered.status < http.StatusBadRequest {
			l.asked.emitted(l.app, eventID)
			l.counts.emits.Add(1)
		}
	}
}

// hook sends a webhook. It has no id, so it is never sent again; its plan says which one it was.
func (l *loader) hook() {
	name := "hook " + id.New(id.Event)
	h := l.try(http.MethodPost, "/hooks/"+l.app, plan.Plan{Steps: []plan.Step{{Name: "small"}}, Parent: name})
	if h.status >= http.StatusBadRequest {
		l.violate("a webhook was answered %d: %s", h.status, h.body)
	}
	if h.sent {
		l.asked.hooked(name, h.status != 0)
		l.counts.hooks.Add(1)
	}
}

func (l *loader) read(run string, waitMs int) {
	if run == "" {
		return
	}
	path := "/v1/runs/" + url.PathEscape(run)
	if waitMs > 0 {
		path += "?waitMs=" + strconv.Itoa(waitMs)
	}
	h := l.try(http.MethodGet, path, nil)
	if h.status == 0 {
		l.pause()
		return
	}
	l.counts.reads.Add(1)
	l.sawAnswer(h, run)
}

// sawAnswer notes what a read shows, also that the run is not there.
func (c *chaos) sawAnswer(h heard, run string) {
	if h.status == http.StatusNotFound {
		c.history.Read(h.span, run, history.Seen{})
		return
	}
	if shown, ok := read[apitype.Run](c, h, run); ok {
		c.saw(h.span, shown)
	}
}

// saw notes what a read shows of a run.
func (c *chaos) saw(span history.Span, run apitype.Run) {
	seen := history.Seen{Found: true, Status: run.Status, CancelAsked: run.CancelRequestedAt != nil}
	if run.EndedAt != nil {
		seen.Final = fmt.Sprintf("%s at %v with %s %s", run.Status, run.EndedAt, run.Output, asJSON(c.t, run.Error))
		c.asked.ended(run.ID)
	}
	c.history.Read(span, run.ID, seen)
}

func (l *loader) readSteps(run string) {
	if run == "" {
		return
	}
	h := l.try(http.MethodGet, "/v1/runs/"+url.PathEscape(run)+"/steps?limit=100", nil)
	if h.status == 0 || h.status == http.StatusNotFound {
		l.pause()
		return
	}
	if list, ok := read[apitype.List[apitype.Step]](l.chaos, h, run); ok {
		l.counts.reads.Add(1)
		l.sawSteps(h.span, run, list.Data, l.asked.stepsOf(run))
	}
}

// sawSteps notes which of a run's steps a read shows with a result, and which not.
func (c *chaos) sawSteps(span history.Span, run string, list []apitype.Step, names []string) {
	shown := map[string]string{}
	for _, s := range list {
		if s.Entry != nil {
			shown[s.Name] = fmt.Sprintf("%d %s %s %s", *s.Entry, s.Status, s.Output, asJSON(c.t, s.Error))
		}
	}
	for _, name := range names {
		c.history.Saved(span, history.Step{Run: run, Name: name}, shown[name])
	}
}

func (l *loader) cancel() {
	run := l.asked.someOpen(l.app, l.random)
	if run == "" {
		return
	}
	l.again("/v1/runs/"+url.PathEscape(run)+"/cancel", nil, func(h heard) {
		switch h.status {
		case 0:
			l.history.Cancel(h.span, run, false)
		case http.StatusNotFound:
			l.sawAnswer(h, run)
		default:
			l.history.Cancel(h.span, run, true)
			l.counts.cancels.Add(1)
			l.sawAnswer(h, run)
		}
	})
}
