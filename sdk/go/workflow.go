package nelkap

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime/debug"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/value"
)

// None is the payload or the result of a workflow that has none.
type None = struct{}

// Workflow is a workflow with its types. Make one with NewWorkflow, or name one that lives elsewhere with Ref.
type Workflow[In, Out any] struct {
	app    *App
	name   string
	target string
}

// Name is the workflow's name.
func (w *Workflow[In, Out]) Name() string { return w.name }

// App is the name of the app that the workflow lives in; empty for the app that declares it.
func (w *Workflow[In, Out]) App() string { return w.target }

// AppSeenFrom is the app of the workflow as a run of f's app names it: empty for that app itself. It is for package step.
func (w *Workflow[In, Out]) AppSeenFrom(f *play.Frame) string {
	if w.target != "" || w.app == nil || f.Playing.Client() == w.app {
		return w.target
	}
	return w.app.settings().app
}

// defaultRetries is how many tries beyond the first steps and code outside steps have.
const defaultRetries = 4

// leaseMin is the shortest lease that leaves time for heartbeats.
const leaseMin = 5 * time.Second

// What the server takes in a manifest, which it refuses as a whole where one workflow has more.
const (
	durationMax    = 3_155_760_000_000 * time.Millisecond // 100 years
	filterBytesMax = 4 << 10
)

// definition is a workflow as its app keeps it.
type definition struct {
	name     string
	triggers []trigger
	cancelOn []trigger
	retries  *int
	timeout  time.Duration
	lease    time.Duration
	once     any // what Once was given; nil: nothing
	// onceKey is the key that only one run may own, for a payload; nil: there is none.
	onceKey             func(payload json.RawMessage) (string, error)
	onFailure, onCancel any // what they were given; nil: nothing
	// failed and cancelled call them; nil: there is none.
	failed, cancelled func(ctx context.Context, c *closed) error
	// play runs the function on a payload and gives its output, nil for undefined.
	play func(ctx context.Context, payload json.RawMessage) (json.RawMessage, error)
}

// trigger is a trigger as the manifest has it, or an event that cancels.
type trigger struct {
	Event    string      `json:"event,omitempty"`
	Webhook  string      `json:"webhook,omitempty"`
	Schedule string      `json:"schedule,omitempty"`
	Timezone string      `json:"timezone,omitempty"`
	CatchUp  CatchUpRule `json:"catchUp,omitempty"`
	If       *string     `json:"if,omitempty"`
}

func (d *definition) retriesOr(n int) int {
	if d.retries != nil {
		return *d.retries
	}
	return n
}

// NewWorkflow declares a workflow on app. It panics when the name is taken or an option does not fit, as http.Handle does.
//
// The function is called for each call of a run, from its top. A payload that does not fit In fails the run. Two workflows
// that name each other at package level are an initialization cycle: name one of them with Ref.
func NewWorkflow[In, Out any](app *App, name string, fn func(ctx context.Context, payload In) (Out, error), opts ...WorkflowOption) *Workflow[In, Out] {
	if app == nil || fn == nil {
		panic("nelkap: NewWorkflow needs an app and a function")
	}
	d := &definition{name: name, play: func(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
		var payload In
		if err := value.Decode(raw, &payload); err != nil {
			return nil, NonRetriable(fmt.Errorf("the payload does not fit workflow %q: %w", name, err))
		}
		out, err := fn(ctx, payload)
		if err != nil {
			return nil, err
		}
		output, err := value.Encode("output", &out)
		if err != nil {
			return nil, NonRetriable(fmt.Errorf("the output of workflow %q can't be saved: %w", name, err))
		}
		return output, nil
	}}
	if err := play.CheckName("workflow", name); err != nil {
		panic(err.Error())
	}
	for _, o := range opts {
		o.workflowOption(d)
	}
	d.onceKey = onceKey[In](d)
	d.failed, d.cancelled = onFailure[In](d), onCancel[In](d)
	app.declare(d)
	return &Workflow[In, Out]{app: app, name: name}
}

// Ref names a workflow that another app, another language or a later line declares. It panics for names that no workflow or app can have.
func Ref[In, Out any](app *App, name string, opts ...RefOption) *Workflow[In, Out] {
	var r reference
	if err := play.CheckName("workflow", name); err != nil {
		panic(err.Error())
	}
	for _, o := range opts {
		o.refOption(&r)
	}
	return &Workflow[In, Out]{app: app, name: name, target: r.app}
}

// NoResult makes a workflow's function of one that only can fail.
func NoResult[In any](fn func(ctx context.Context, payload In) error) func(context.Context, In) (None, error) {
	return func(ctx context.Context, payload In) (None, error) { return None{}, fn(ctx, payload) }
}

// WorkflowOption is an option of NewWorkflow.
type WorkflowOption interface{ workflowOption(*definition) }

// TriggerOption is an option of a trigger.
type TriggerOption interface{ triggerOption(*trigger) }

// RefOption is an option of Ref.
type RefOption interface{ refOption(*reference) }

type (
	workflowOption func(*definition)
	triggerOption  func(*trigger)
	refOption      func(*reference)
	reference      struct{ app string }
)

func (o workflowOption) workflowOption(d *definition) { o(d) }
func (o triggerOption) triggerOption(t *trigger)      { o(t) }
func (o refOption) refOption(r *reference)            { o(r) }

// OnEvent starts a run for each event of that name, with the event's payload.
func OnEvent(event string, opts ...TriggerOption) WorkflowOption {
	return addTrigger("event", event, trigger{Event: event}, opts)
}

// OnWebhook starts a run for each request to the webhook of that name.
func OnWebhook(name string, opts ...TriggerOption) WorkflowOption {
	return addTrigger("webhook", name, trigger{Webhook: name}, opts)
}

// OnSchedule starts a run at each tick of the cron expression, such as "0 9 * * 1-5" or "@daily"; its payload is a Tick. It counts in
// UTC, unless Timezone says otherwise. One tick starts one run.
func OnSchedule(cron string, opts ...TriggerOption) WorkflowOption {
	return addTrigger("schedule", cron, trigger{Schedule: cron}, opts)
}

// CancelOn cancels the workflow's runs when an event of that name comes; say with If which of them it means: a filter here sees the run
// too, as in `payload.id == run.payload.id`.
func CancelOn(event string, opts ...TriggerOption) WorkflowOption {
	return workflowOption(func(d *definition) {
		d.cancelOn = append(d.cancelOn, triggerOf("event", event, trigger{Event: event}, opts))
	})
}

func addTrigger(kind, name string, t trigger, opts []TriggerOption) WorkflowOption {
	return workflowOption(func(d *definition) {
		d.triggers = append(d.triggers, triggerOf(kind, name, t, opts))
	})
}

func triggerOf(kind, name string, t trigger, opts []TriggerOption) trigger {
	if err := play.CheckName(kind, name); err != nil {
		panic(err.Error())
	}
	for _, o := range opts {
		o.triggerOption(&t)
	}
	return t
}

// Tick is the payload of a run that a schedule started.
type Tick struct {
	Schedule string          `json:"schedule"`
	Time     time.Time       `json:"time"`              // when the tick was due
	Payload  json.RawMessage `json:"payload,omitempty"` // the schedule's own; nil where it has none
}

// If lets a trigger start runs only where the filter, a CEL expression over the event, is true. Never build a filter from
// text that others gave.
func If(filter string) TriggerOption {
	return triggerOption(func(t *trigger) {
		if filter == "" || len(filter) > filterBytesMax || !utf8.ValidString(filter) {
			panic(fmt.Sprintf("nelkap: the filter %.40q of %d bytes is none: give a CEL expression of at most %d bytes, such as %q, and decide the rest in the workflow",
				filter, len(filter), filterBytesMax, "payload.total > 0"))
		}
		t.If = &filter
	})
}

// Timezone is where a schedule's clock stands, such as Europe/Berlin; UTC unless given.
func Timezone(name string) TriggerOption {
	return triggerOption(func(t *trigger) {
		t.ofSchedule("Timezone")
		if err := play.CheckName("time zone", name); err != nil {
			panic(err.Error())
		}
		t.Timezone = name
	})
}

// CatchUpRule says what becomes of ticks that came while the server was down.
type CatchUpRule string

// The rules of CatchUp.
const (
	CatchUpNone CatchUpRule = "none" // they are passed over
	CatchUpLast CatchUpRule = "last" // the last of them starts its run late
	CatchUpAll  CatchUpRule = "all"  // each of them does, up to a thousand
)

// CatchUp is a schedule's rule for missed ticks; the server's default unless given.
func CatchUp(rule CatchUpRule) TriggerOption {
	return triggerOption(func(t *trigger) {
		t.ofSchedule("CatchUp")
		if rule != CatchUpNone && rule != CatchUpLast && rule != CatchUpAll {
			panic(fmt.Sprintf("nelkap: CatchUp can't be %q: give CatchUpNone, CatchUpLast or CatchUpAll", rule))
		}
		t.CatchUp = rule
	})
}

// ofSchedule panics for an option that only a schedule has.
func (t *trigger) ofSchedule(option string) {
	if t.Schedule == "" {
		panic("nelkap: " + option + " is an option of OnSchedule, and of no other trigger")
	}
}

// Once lets one run alone own the key that is made of its payload, for ever: the others end as skipped, and name the owner. An empty key
// fails the run. NewWorkflow panics where In is not the workflow's payload.
func Once[In any](key func(payload In) string) WorkflowOption {
	return workflowOption(func(d *definition) { d.once = key })
}

// onceKey is the workflow's key by payload, nil where it has none. A payload that does not fit has none: the function fails for it.
func onceKey[In any](d *definition) func(json.RawMessage) (string, error) {
	if d.once == nil {
		return nil
	}
	key, ok := d.once.(func(In) string)
	if !ok || key == nil {
		panic(fmt.Sprintf("nelkap: workflow %q: Once needs a func(%v) string, of the workflow's payload, and got a %T", d.name, reflect.TypeFor[In](), d.once))
	}
	return func(raw json.RawMessage) (made string, err error) {
		defer func() {
			if panicked := recover(); panicked != nil {
				err = &play.PanicError{Value: panicked, Stack: string(debug.Stack())}
			}
		}()
		var payload In
		if err := value.Decode(raw, &payload); err != nil {
			return "", NonRetriable(fmt.Errorf("the payload does not fit workflow %q: %w", d.name, err))
		}
		made = key(payload)
		return made, NonRetriable(play.CheckKey("workflow "+strconv.Quote(d.name), made))
	}
}

// Retries is how many tries beyond the first the workflow's steps, and its code outside steps, have: 4 unless given.
func Retries(n int) WorkflowOption {
	return workflowOption(func(d *definition) {
		if n < 0 {
			panic(fmt.Sprintf("nelkap: workflow %q: Retries can't be %d", d.name, n))
		}
		d.retries = &n
	})
}

// Timeout bounds a run from its start to its end.
func Timeout(d time.Duration) WorkflowOption {
	return workflowOption(func(def *definition) {
		if d < time.Millisecond || d > durationMax {
			panic(fmt.Sprintf("nelkap: workflow %q: Timeout can't be %v: give 100 years at most, or leave it out for none", def.name, d))
		}
		def.timeout = d
	})
}

// Lease is how long a call may be silent over an open connection before its run is picked up: 5 minutes unless given.
func Lease(d time.Duration) WorkflowOption {
	return workflowOption(func(def *definition) {
		if d < leaseMin || d > durationMax {
			panic(fmt.Sprintf("nelkap: workflow %q: Lease is at least %v and at most 100 years, not %v", def.name, leaseMin, d))
		}
		def.lease = d
	})
}

// InApp names the app that a workflow lives in.
func InApp(name string) RefOption {
	return refOption(func(r *reference) {
		if err := play.CheckName("app", name); err != nil {
			panic(err.Error())
		}
		r.app = name
	})
}
