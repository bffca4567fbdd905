package step

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/value"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// sleepMax is the longest sleep: the server's limit.
const sleepMax = 366 * 24 * time.Hour

// yearMax is the last year that an instant of the protocol can name.
const yearMax = 9999

// SleepOption is an option of Sleep and SleepUntil.
type SleepOption interface{ sleepOption(*waitOptions) }

// Sleep lets the run rest for d. Nothing of it is held meanwhile: the call ends, and the run goes on in another one. The time counts
// from when the server learns of it. It may be a year at most.
func Sleep(ctx context.Context, name string, d time.Duration, opts ...SleepOption) error {
	terms := &wire.Terms{Op: wire.OpWait, Kind: wire.KindSleep, Delay: d}
	switch {
	case d < 0:
		return sleep(ctx, name, terms, opts, fmt.Errorf("nelkap: a sleep can't take %v: give 0 or more, or leave the step out", d))
	case d > sleepMax:
		return sleep(ctx, name, terms, opts, fmt.Errorf("nelkap: a sleep takes a year at most, not %v: sleep several times, each under a name of its own", d))
	}
	return sleep(ctx, name, terms, opts, nil)
}

// SleepUntil lets the run rest until t, by the server's clock. It returns at once where t is past, and fails where t is more than a
// year away.
func SleepUntil(ctx context.Context, name string, t time.Time, opts ...SleepOption) error {
	terms := &wire.Terms{Op: wire.OpWait, Kind: wire.KindSleep, Until: t}
	if t.IsZero() || t.Year() > yearMax || t.Year() < 0 {
		return sleep(ctx, name, terms, opts, fmt.Errorf("nelkap: a sleep can't last until %v: give an instant within a year from now", t))
	}
	return sleep(ctx, name, terms, opts, nil)
}

func sleep(ctx context.Context, name string, terms *wire.Terms, opts []SleepOption, err error) error {
	o := waitOptions{request: play.Request{Name: name, Terms: terms}, err: err}
	for _, option := range opts {
		option.sleepOption(&o)
	}
	_, err = o.ask(ctx)
	return err
}

// WaitForEvent waits for one event of that name and gives its payload; ok is false when the time of Timeout ran out.
//
// Events count from the run's creation on, so that one that came before the wait is not missed; SinceWait changes that. The event that
// started the run never counts, and no event ends two waits of a run. A wait that lost a race stays open and may still have an event,
// which a later wait then has not: give it a Timeout.
func WaitForEvent[T any](ctx context.Context, name, event string, opts ...WaitOption) (payload T, ok bool, err error) {
	received, err := WaitForAny(ctx, name, []string{event}, opts...)
	if err != nil || received == nil {
		return payload, false, err
	}
	err = decode(name, received.Payload, &payload)
	return payload, err == nil, err
}

// WaitForAny waits for the first of several events; the event is nil when the time of Timeout ran out. Else it is as WaitForEvent.
func WaitForAny(ctx context.Context, name string, events []string, opts ...WaitOption) (*nelkap.ReceivedEvent, error) {
	o := waitOptions{request: play.Request{Name: name, Terms: &wire.Terms{
		Op: wire.OpWait, Kind: wire.KindEvent, Events: slices.Clone(events),
	}}}
	if len(events) == 0 {
		o.err = errors.New("nelkap: a wait needs the name of an event, or several")
	}
	for _, event := range events {
		o.fail(play.CheckName("event", event))
	}
	for _, option := range opts {
		option.waitOption(&o)
	}
	output, err := o.ask(ctx)
	if err != nil {
		return nil, err
	}
	var event *nelkap.ReceivedEvent
	return event, decode(name, output, &event)
}

// Callback is a URL for someone outside, who ends the wait for it by a POST with a payload in JSON, once; Token is the part of the URL
// that makes it theirs. It is made by NewCallback, in each call of the run anew: don't keep it in a step's result.
type Callback[T any] struct {
	URL   string
	Token string

	name   string
	number int
}

// NewCallback makes a callback: give its URL away in a step, then Wait for it. It may be used before that. Timeout counts from here.
func NewCallback[T any](ctx context.Context, name string, opts ...WaitOption) (*Callback[T], error) {
	o := waitOptions{request: play.Request{Name: name, Terms: &wire.Terms{Op: wire.OpCallback, Kind: wire.KindCallback}}}
	for _, option := range opts {
		option.waitOption(&o)
	}
	output, err := o.ask(ctx)
	if err != nil {
		return nil, err
	}
	var made struct{ URL, Token string }
	if err := decode(name, output, &made); err != nil {
		return nil, err
	}
	c := &Callback[T]{URL: made.URL, Token: made.Token}
	c.name, c.number = o.request.Identity()
	return c, nil
}

// Wait waits until the callback is used, and gives the payload; ok is false when its time ran out. It is a step of its own, of the
// callback's name.
func (c *Callback[T]) Wait(ctx context.Context) (payload T, ok bool, err error) {
	o := waitOptions{request: play.Request{Name: c.name, Terms: &wire.Terms{Op: wire.OpWait, Kind: wire.KindCallback, Of: c.number}}}
	if c.number == 0 {
		o.request.Name = "callback"
		o.err = errors.New("nelkap: only a callback of NewCallback can be waited for, not one that was put together or read from JSON")
	}
	output, err := o.ask(ctx)
	if err != nil {
		return payload, false, err
	}
	var posted *struct{ Payload json.RawMessage }
	if err := decode(c.name, output, &posted); err != nil || posted == nil {
		return payload, false, err
	}
	err = decode(c.name, posted.Payload, &payload)
	return payload, err == nil, err
}

// WaitOption is an option of WaitForEvent, WaitForAny and NewCallback.
type WaitOption interface{ waitOption(*waitOptions) }

// waitOptions are a step without a body that is being put together.
type waitOptions struct {
	request play.Request
	err     error
}

type waitOption func(*waitOptions)

func (w waitOption) waitOption(o *waitOptions) { w(o) }

// fail keeps the first error.
func (o *waitOptions) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

// ask asks for the step.
func (o *waitOptions) ask(ctx context.Context) (json.RawMessage, error) {
	f := play.From(ctx)
	if f == nil {
		return nil, notInRun(o.request.Name)
	}
	return ask(f, &o.request, o.err)
}

// ofEvents fails for an option that only a wait for events has.
func (o *waitOptions) ofEvents(option string) {
	if o.request.Terms.Kind != wire.KindEvent {
		o.fail(fmt.Errorf("nelkap: a callback has no events to choose from: leave out %s", option))
	}
}

// If takes only events for which the filter, a CEL expression over the event (payload, event) and its run (run.id, run.key,
// run.payload), is true. Never build a filter from text that others
// gave; Match is quicker and safe.
func If(filter string) WaitOption {
	return waitOption(func(o *waitOptions) {
		o.ofEvents("If")
		if filter == "" || !utf8.ValidString(filter) {
			o.fail(fmt.Errorf("nelkap: the filter %q is no CEL expression: give one such as %q, or leave out If", filter, "payload.total > 0"))
		}
		o.request.Terms.If = filter
	})
}

// Match takes only events that have value at path, such as payload.id. Given several times, all must fit.
func Match(path string, v any) WaitOption {
	return waitOption(func(o *waitOptions) {
		o.ofEvents("Match")
		if !leadsSomewhere(path) {
			o.fail(fmt.Errorf("nelkap: Match needs a path such as %q, not %q", "payload.id", path))
		}
		for _, m := range o.request.Terms.Match {
			if m.Path == path {
				o.fail(fmt.Errorf("nelkap: Match has two values for %s, and no event has both: give one", path))
			}
		}
		text, err := value.EncodeAny("match", v)
		if err != nil {
			o.fail(fmt.Errorf("nelkap: the value that %s must match can't be sent: %w", path, err))
		} else if text[0] == '{' || text[0] == '[' {
			o.fail(fmt.Errorf("nelkap: the value that %s must match is a %T: give a text, a number, true, false or nil", path, v))
		}
		o.request.Terms.Match = append(o.request.Terms.Match, wire.Match{Path: path, Value: text})
	})
}

// leadsSomewhere tells whether the server takes a path: another would match nothing in a test, and fail the wait there.
func leadsSomewhere(path string) bool {
	parts := strings.Split(path, ".")
	return parts[0] == "payload" && !slices.Contains(parts, "") && utf8.ValidString(path) && !strings.ContainsFunc(path, unicode.IsControl)
}

// SinceWait takes only events that came after the wait began, not those since the run's creation.
func SinceWait() WaitOption {
	return waitOption(func(o *waitOptions) {
		o.ofEvents("SinceWait")
		o.request.Terms.Since = "wait"
	})
}

func (t TimeoutOption) waitOption(o *waitOptions) {
	o.request.Terms.Timeout = &t.d
	if t.d < 0 {
		o.err = t.refusal()
	}
}

func (w WasOption) sleepOption(o *waitOptions) { w.waitOption(o) }

func (w WasOption) waitOption(o *waitOptions) { o.request.Was, o.err = w.name, w.check(o.err) }
