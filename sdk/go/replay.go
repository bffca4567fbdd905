package nelkap

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/value"
)

// ReplayOption is an option of App.Replay.
type ReplayOption interface{ replayOption(*replayMessage) }

type replayOption func(*replayMessage)

func (o replayOption) replayOption(m *replayMessage) { o(m) }

// replayMessage is the body of POST /v1/runs/{id}/replay.
type replayMessage struct {
	From     string          `json:"from,omitempty"`
	Payload  json.RawMessage `json:"payload,omitempty"`
	KeepKeys *bool           `json:"keepKeys,omitempty"`
	Events   string          `json:"events,omitempty"`
	err      error           // the first option that does not fit
}

// FromStep keeps the results that were saved before the first of that name; without it every step runs again.
func FromStep(name string) ReplayOption {
	return replayOption(func(m *replayMessage) {
		m.From = name
		if m.err == nil {
			m.err = play.CheckName("step", name)
		}
	})
}

// WithPayload gives the replay another payload; p is encoded as that of Run.
func WithPayload(p any) ReplayOption {
	return replayOption(func(m *replayMessage) {
		payload, err := value.EncodeAny("payload", p)
		if err != nil && m.err == nil {
			m.err = fmt.Errorf("nelkap: the payload of a replay can't be sent: %w", err)
		}
		m.Payload = payload
	})
}

// KeepKeys says whether steps have the original's idempotency keys, so that a provider knows them again. Without it they do in a replay
// from a step, and not in a whole one.
func KeepKeys(keep bool) ReplayOption {
	return replayOption(func(m *replayMessage) { m.KeepKeys = &keep })
}

// NewEvents has the replay's waits take only events that come after it began. Without it they find those of the original again.
func NewEvents() ReplayOption {
	return replayOption(func(m *replayMessage) { m.Events = "new" })
}

// Replay starts a new run of the same workflow, with the same payload unless WithPayload says otherwise. The original stays as it was.
func (a *App) Replay(ctx context.Context, runID string, opts ...ReplayOption) (*RunRecord, error) {
	var m replayMessage
	for _, o := range opts {
		o.replayOption(&m)
	}
	if m.err != nil {
		return nil, m.err
	}
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("nelkap: encoding a replay: %w", err)
	}
	return a.command(ctx, runID, "/replay", body)
}
