package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
)

// What a client does.
const (
	opStart  = "start"
	opEmit   = "emit"
	opHook   = "hook"
	opCancel = "cancel"
	opReplay = "replay"
	opRead   = "read"
	opWait   = "wait"
	opSteps  = "steps"
	opPost   = "post"
	opKeyed  = "request with a key"
)

// errNoRun: the client knows no run yet, and asks for nothing.
var errNoRun = errors.New("no run is known")

// client asks for things, one after the other, through the Go SDK, and remembers what it was promised.
type client struct {
	actor
	app  *nelkap.App
	http *http.Client
	runs []string // that it was told of
	// posts is how often it has posted to callbacks.
	posts int
}

func (w *world) newClient(i int) *client {
	c := &client{actor: newActor(w, fmt.Sprintf("client%d", i+1))}
	c.http = &http.Client{Transport: newLine(w, &c.actor)}
	c.app = nelkap.New(nelkap.Options{App: "client", URL: serverURL, APIKey: apiKey, HTTPClient: c.http, Logger: slog.New(slog.DiscardHandler)})
	return c
}

// play does the operations in order. Each may fail for good: what was acknowledged counts, and nothing else.
func (c *client) play(operations []operation) {
	for i, o := range operations {
		rest(o.after)
		_, d := c.world.name(c.name + " does")
		rest(d.between(1, 1000))
		c.world.trace.add(c.name, fmt.Sprintf("%d %s", i, o.kind), o.key)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := c.do(ctx, o)
		cancel()
		if errors.Is(err, errNoRun) {
			continue
		}
		c.world.report.operation(err == nil)
		if err != nil {
			c.world.trace.add(c.name, fmt.Sprintf("%d %s failed", i, o.kind), err.Error())
		}
	}
}

func (c *client) do(ctx context.Context, o operation) error {
	t := c.world.witness
	switch o.kind {
	case opStart:
		var options []nelkap.RunOption
		if o.key != "" {
			options = append(options, nelkap.Key(o.key))
		}
		if o.keyFor > 0 {
			options = append(options, nelkap.KeyFor(o.keyFor))
		}
		if o.delay > 0 {
			options = append(options, nelkap.Delay(o.delay))
		}
		asked := time.Now()
		h, err := nelkap.Run(ctx, nelkap.Ref[payload, string](c.app, o.workflow.name, nelkap.InApp(o.workflow.app)), payload{}, options...)
		if err == nil {
			c.runs = append(c.runs, h.ID)
			t.started(o, h.ID, h.Created, asked)
		}
		return err
	case opEmit:
		event := nelkap.Event{Name: o.name, ID: o.key, Payload: payload{Tag: o.tag}}
		if o.later > 0 {
			event.At = time.Now().Add(o.later)
		}
		list, err := c.app.Emit(ctx, event)
		if err == nil {
			t.emitted(o.name, list[0].ID, list[0].Created, event.At)
		}
		return err
	case opHook:
		return c.hook(ctx, o.name)
	case opPost:
		return c.post(ctx, o)
	case opKeyed:
		return c.foreign(ctx, o)
	}
	if len(c.runs) == 0 {
		return errNoRun
	}
	return c.ask(ctx, o, c.runs[o.target%len(c.runs)])
}

// ask is an operation on a run that the client knows.
func (c *client) ask(ctx context.Context, o operation, run string) error {
	t := c.world.witness
	switch o.kind {
	case opCancel:
		t.asked(run, o.force)
		if o.force {
			return c.force(ctx, run)
		}
		r, err := c.app.Cancel(ctx, run)
		if err == nil {
			t.cancelled(r)
		}
		return err
	case opReplay:
		return c.replay(ctx, o, run)
	case opRead:
		r, err := c.app.Get(ctx, run)
		if err == nil {
			t.read(r)
		}
		return err
	case opWait:
		return c.get(ctx, fmt.Sprintf("/v1/runs/%s?waitMs=%d", run, o.wait.Milliseconds()))
	case opSteps:
		return c.get(ctx, "/v1/runs/"+run+"/steps")
	}
	return nil
}

// force asks for a run's final status at once: the SDK has no such request.
func (c *client) force(ctx context.Context, run string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, serverURL+"/v1/runs/"+run+"/cancel?force=true", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+apiKey)
	r.Header.Set("Content-Type", "application/json")
	if err := c.request(r); err != nil {
		return err
	}
	c.world.witness.forcedEnd(run)
	return nil
}

// replay replays a run: the whole, or from one of its workflow's steps, and at times with a payload of its own.
func (c *client) replay(ctx context.Context, o operation, run string) error {
	var options []nelkap.ReplayOption
	asked := replayAsked{original: run, at: time.Now(), newEvents: o.newEvents}
	if o.from > 0 {
		if asked.from = c.world.witness.nameOf(run, o.from); asked.from != "" {
			options = append(options, nelkap.FromStep(asked.from))
		}
	}
	if asked.keepKeys = (asked.from != "") != o.otherKeys; o.otherKeys {
		options = append(options, nelkap.KeepKeys(asked.keepKeys))
	}
	if o.newEvents {
		options = append(options, nelkap.NewEvents())
	}
	if o.tag != "" {
		options = append(options, nelkap.WithPayload(payload{Tag: o.tag}))
	}
	r, err := c.app.Replay(ctx, run, options...)
	if err == nil {
		c.runs = append(c.runs, r.ID)
		c.world.witness.replayed(&asked, r)
	}
	return err
}

func (c *client) get(ctx context.Context, path string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, serverURL+path, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+apiKey)
	return c.request(r)
}

// hook sends a webhook, as somebody else's server does: once.
func (c *client) hook(ctx context.Context, name string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, serverURL+"/hooks/"+name, strings.NewReader(`{"order":1}`))
	if err != nil {
		return err
	}
	return c.request(r)
}

// answeredError is an answer's status that is no success.
type answeredError int

func (e answeredError) Error() string { return fmt.Sprintf("answered %d", int(e)) }

// request makes a request once, and fails unless it is answered as asked.
func (c *client) request(r *http.Request) error {
	answer, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		return answeredError(answer.StatusCode)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}
