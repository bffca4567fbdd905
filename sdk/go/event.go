package nelkap

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/typeid"
	"github.com/nelkap/nelkap/sdk/go/internal/value"
)

// Event is what Emit takes. Emitted again with the same ID it is the same event.
type Event struct {
	Name    string
	Payload any    // nil: none
	ID      string // any text up to 256 bytes; empty: each Emit makes a new event
	// At is when the event is to be there; at once where it is zero or past.
	At time.Time
}

// Emitted is Emit's answer for one event; Created is false when the event's ID was there already.
type Emitted struct {
	ID             string `json:"id"`
	Created        bool   `json:"created"`
	PayloadDiffers bool   `json:"payloadDiffers,omitempty"`
}

// ReceivedEvent is an event as Nelkap stored it.
type ReceivedEvent struct {
	ID        string          `json:"id"`
	Name      string          `json:"event"`
	Payload   json.RawMessage `json:"payload"`
	CreatedAt time.Time       `json:"createdAt"`
}

// Decode reads the payload into v.
func (e *ReceivedEvent) Decode(v any) error { return value.Decode(e.Payload, v) }

// eventMessage is one event in the body of POST /v1/events.
type eventMessage struct {
	Event   string          `json:"event"`
	Payload json.RawMessage `json:"payload,omitempty"`
	ID      string          `json:"id,omitempty"`
	At      string          `json:"at,omitempty"`
	Send    *play.Send      `json:"send,omitempty"`
}

// Emit stores the events, all or none, and answers in their order. In a step it emits once, however often the step runs. In a
// workflow outside steps it emits each time the code runs, and says so in the log.
//
// It fails as Run does. Without events it does nothing.
func (a *App) Emit(ctx context.Context, events ...Event) ([]Emitted, error) {
	if len(events) == 0 {
		return nil, nil
	}
	messages := make([]eventMessage, len(events))
	names := make([]play.SendName, len(events))
	for i, e := range events {
		if err := play.CheckName("event", e.Name); err != nil {
			return nil, NonRetriable(err)
		}
		messages[i] = eventMessage{Event: e.Name, ID: e.ID}
		if !e.At.IsZero() {
			messages[i].At = instant(e.At)
		}
		names[i] = play.SendName{Kind: "emit", Name: e.Name, Keyed: e.ID != ""}
		if e.Payload == nil {
			continue
		}
		var err error
		if messages[i].Payload, err = value.EncodeAny("payload", e.Payload); err != nil {
			return nil, NonRetriable(fmt.Errorf("nelkap: the payload of event %q can't be sent: %w", e.Name, err))
		}
	}
	return a.emit(ctx, messages, names)
}

func (a *App) emit(ctx context.Context, messages []eventMessage, names []play.SendName) ([]Emitted, error) {
	where, err := a.beginSends(ctx, names)
	if err != nil {
		return nil, err
	}
	defer where.done()
	for i := range messages {
		if where.sends != nil {
			messages[i].Send = &where.sends[i]
		} else if messages[i].ID == "" {
			messages[i].ID = typeid.New("evt")
		}
	}
	if frozen(ctx) {
		answer := make([]Emitted, len(messages))
		for i, m := range messages {
			answer[i] = Emitted{ID: m.ID, Created: true}
		}
		return answer, nil
	}
	body, err := value.Encode("events", &messages)
	if err != nil {
		return nil, NonRetriable(fmt.Errorf("nelkap: the events can't be sent: %w", err))
	}
	var answer []Emitted
	err = where.judge(a.send(ctx, request{method: http.MethodPost, path: "/v1/events", body: body}, &answer))
	if err == nil && len(answer) != len(messages) {
		err = fmt.Errorf("nelkap: the server answered %d events with %d", len(messages), len(answer))
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}
