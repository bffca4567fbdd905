package nelkap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/contact"
	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/typeid"
	"github.com/nelkap/nelkap/sdk/go/internal/value"
)

// resultHold is how long the server may hold a request for a run's end.
const resultHold = 30 * time.Second

// Handle is a run that was started. It may be a step's result: it comes back with its ID, and Result works on it again, inside
// the run.
type Handle[Out any] struct {
	ID       string
	Workflow string
	// Created is false when the key had a run already, which this is then.
	Created bool
	// PayloadDiffers is true where that run has another payload than the one given now.
	PayloadDiffers bool
	app            *App
}

// handleJSON is what of a Handle is saved.
type handleJSON struct {
	ID             string `json:"id"`
	Workflow       string `json:"workflow"`
	Created        bool   `json:"created"`
	PayloadDiffers bool   `json:"payloadDiffers,omitempty"`
}

// MarshalJSON is the handle as it is saved.
func (h Handle[Out]) MarshalJSON() ([]byte, error) {
	return json.Marshal(handleJSON{h.ID, h.Workflow, h.Created, h.PayloadDiffers})
}

// UnmarshalJSON reads a saved handle.
func (h *Handle[Out]) UnmarshalJSON(text []byte) error {
	var saved handleJSON
	if err := json.Unmarshal(text, &saved); err != nil {
		return err
	}
	h.ID, h.Workflow, h.Created, h.PayloadDiffers = saved.ID, saved.Workflow, saved.Created, saved.PayloadDiffers
	return nil
}

// RunOption is an option of Run.
type RunOption interface{ runOption(*runMessage) }

type runOption func(*runMessage)

func (o runOption) runOption(m *runMessage) { o(m) }

// Key makes the run the only one with that key: a second start answers the first run, with Created false.
func Key(key string) RunOption {
	return runOption(func(m *runMessage) {
		m.fail(play.CheckKey("a run", key))
		m.Key = key
	})
}

// KeyFor is how long Key holds, counted by the server; for ever unless given.
func KeyFor(d time.Duration) RunOption {
	return runOption(func(m *runMessage) {
		if d < time.Millisecond {
			m.fail(fmt.Errorf("nelkap: KeyFor can't be %v: leave it out for a key that holds for ever", d))
		}
		m.KeyForMs = d.Milliseconds()
	})
}

// At is when the run begins; at once where that is past.
func At(t time.Time) RunOption {
	return runOption(func(m *runMessage) {
		if t.IsZero() {
			m.fail(errors.New("nelkap: At can't be the zero time: give an instant, or leave it out to begin at once"))
		}
		m.At = instant(t)
	})
}

// Delay is how long from now, by the server's clock, the run begins.
func Delay(d time.Duration) RunOption {
	return runOption(func(m *runMessage) {
		if d < 0 {
			m.fail(fmt.Errorf("nelkap: Delay can't be %v: give 0 or more, or leave it out to begin at once", d))
		}
		m.DelayMs = (d + time.Millisecond - 1).Milliseconds()
	})
}

// instant is t for the server. It is never before t.
func instant(t time.Time) string {
	return t.Add(time.Millisecond - 1).UTC().Format("2006-01-02T15:04:05.000Z")
}

// runMessage is the body of POST /v1/runs.
type runMessage struct {
	Workflow string          `json:"workflow"`
	Payload  json.RawMessage `json:"payload,omitempty"`
	App      string          `json:"app,omitempty"`
	Key      string          `json:"key,omitempty"`
	KeyForMs int64           `json:"keyForMs,omitempty"`
	At       string          `json:"at,omitempty"`
	DelayMs  int64           `json:"delayMs,omitempty"`
	ID       string          `json:"id,omitempty"`
	Send     *play.Send      `json:"send,omitempty"`
	Err      error           `json:"-"` // the first option that does not fit
}

func (m *runMessage) fail(err error) {
	if m.Err == nil {
		m.Err = err
	}
}

// judge is what is wrong with the options.
func (m *runMessage) judge() error {
	switch {
	case m.Err != nil:
	case m.At != "" && m.DelayMs > 0:
		m.Err = errors.New("nelkap: At and Delay both say when the run begins: give one of them")
	case m.KeyForMs > 0 && m.Key == "":
		m.Err = errors.New("nelkap: KeyFor says how long a key holds, and there is none: give Key too")
	}
	return NonRetriable(m.Err)
}

// Run starts a run of wf, on the app that wf was declared on, and does not wait for it. In a step it starts one run, however
// often the step runs. In a workflow outside steps it starts one each time the code runs, and says so in the log.
//
// It fails with a *APIError where the server refuses, and with an error that names the path where JSON can't hold the payload, or says
// what is wrong with an option. While the server can't be reached it tries for half a minute, or until ctx ends; no try starts a second run.
func Run[In, Out any](ctx context.Context, wf *Workflow[In, Out], payload In, opts ...RunOption) (*Handle[Out], error) {
	if wf == nil || wf.app == nil {
		return nil, errors.New("nelkap: Run needs a workflow of NewWorkflow or Ref; workflows at package level that name each other need Ref")
	}
	raw, err := value.Encode("payload", &payload)
	if err != nil {
		return nil, NonRetriable(fmt.Errorf("nelkap: the payload for workflow %q can't be sent: %w", wf.name, err))
	}
	m := runMessage{Workflow: wf.name, Payload: raw, App: wf.target}
	if m.App == "" {
		m.App = wf.app.settings().app
	}
	for _, o := range opts {
		o.runOption(&m)
	}
	if err := m.judge(); err != nil {
		return nil, err
	}
	started, err := wf.app.start(ctx, &m)
	if err != nil {
		return nil, err
	}
	return &Handle[Out]{
		ID: started.ID, Workflow: wf.name, Created: started.Created, PayloadDiffers: started.PayloadDiffers, app: wf.app,
	}, nil
}

// started is what of the answer to a start is wanted.
type started struct {
	ID             string `json:"id"`
	Created        bool   `json:"created"`
	PayloadDiffers bool   `json:"payloadDiffers"`
}

func (a *App) start(ctx context.Context, m *runMessage) (*started, error) {
	where, err := a.beginSends(ctx, []play.SendName{{Kind: "run", Name: m.Workflow, Keyed: m.Key != ""}})
	if err != nil {
		return nil, err
	}
	defer where.done()
	if where.sends != nil {
		m.Send = &where.sends[0]
	} else {
		m.ID = typeid.New("run")
	}
	body, err := value.Encode("run", m)
	if err != nil {
		return nil, NonRetriable(fmt.Errorf("nelkap: the run can't be sent: %w", err))
	}
	if frozen(ctx) {
		return &started{ID: m.ID, Created: true}, nil
	}
	var answer started
	err = a.send(ctx, request{method: http.MethodPost, path: "/v1/runs", body: body}, &answer)
	return &answer, where.judge(err)
}

// Result waits for the run's end and gives its output. It fails with the run's *RunError, or with an error that is
// ErrCancelled or ErrSkipped; the *RunError of a skipped run names the owner of its key. In a workflow it holds the call open
// meanwhile, and says so in the log.
func (h *Handle[Out]) Result(ctx context.Context) (out Out, err error) {
	app := h.app
	if app == nil {
		app = FromContext(ctx)
	}
	if app == nil {
		return out, errors.New("nelkap: this handle came from JSON and belongs to no app here: use its ID with App.Get")
	}
	if inRun(ctx) {
		app.warnOnce(ctx, "nelkap: Result in a workflow holds the call open until the other run has ended")
	}
	record, err := app.ended(ctx, h.ID)
	if err != nil {
		return out, err
	}
	if err := record.failure(); err != nil {
		return out, err
	}
	if err := value.Decode(record.Output, &out); err != nil {
		return out, fmt.Errorf("nelkap: the output of run %s does not fit %T: %w", h.ID, out, err)
	}
	return out, nil
}

// ended waits until the run has ended.
func (a *App) ended(ctx context.Context, id string) (*RunRecord, error) {
	path := runPath(id) + "?waitMs=" + fmt.Sprint(resultHold.Milliseconds())
	for {
		asked := time.Now()
		record := &RunRecord{}
		if err := a.send(ctx, request{method: http.MethodGet, path: path, hold: resultHold}, record); err != nil {
			return nil, err
		}
		if record.Status.Ended() {
			return record, nil
		}
		// A server that does not hold the request must not be asked in a loop.
		if time.Since(asked) < time.Second {
			timer := time.NewTimer(time.Second)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return nil, context.Cause(ctx)
			}
		}
	}
}

var errNoRun = errors.New("nelkap: a run is named by its ID, and none was given: give that of the handle that Run gave")

func runPath(id string) string { return "/v1/runs/" + url.PathEscape(id) }

// Status is where a run stands.
type Status string

// The statuses of a run.
const (
	StatusQueued    Status = "queued"
	StatusRunning   Status = "running"
	StatusWaiting   Status = "waiting"
	StatusCompleted Status = "completed"
	StatusFailed    Status = "failed"
	StatusCancelled Status = "cancelled"
	StatusSkipped   Status = "skipped"
)

// Ended is true for the statuses that don't change any more.
func (s Status) Ended() bool {
	return s == StatusCompleted || s == StatusFailed || s == StatusCancelled || s == StatusSkipped
}

// RunRecord is a run as the API shows it.
type RunRecord struct {
	ID                string
	Workflow          string
	App               string
	Status            Status
	Payload           json.RawMessage // nil: none
	Output            json.RawMessage // nil: none, or none yet
	Error             *RunError
	Event             string // the event that started the run; empty for other triggers
	EventID           string
	Key               string
	ReplayOf          string
	Attempt           int
	CreatedAt         time.Time
	StartedAt         time.Time // zero until the first call
	EndedAt           time.Time // zero until the run has ended
	CancelRequestedAt time.Time // zero unless cancellation was asked for
	WaitingFor        *WaitingFor
}

// WaitingFor says why a run does not go on, and when it is looked at next.
type WaitingFor struct {
	Reason string
	NextAt time.Time
}

// failure is the error that a run's end is for those who wait for its result.
func (r *RunRecord) failure() error {
	switch r.Status {
	case StatusFailed:
		if r.Error != nil {
			return r.Error
		}
		return &RunError{Name: "Error", Message: "run " + r.ID + " failed"}
	case StatusCancelled:
		return fmt.Errorf("%w (%s)", ErrCancelled, r.ID)
	case StatusSkipped:
		if r.Error != nil { // it names the owner
			return fmt.Errorf("%w (%s): %w", ErrSkipped, r.ID, r.Error)
		}
		return fmt.Errorf("%w (%s)", ErrSkipped, r.ID)
	case StatusCompleted, StatusQueued, StatusRunning, StatusWaiting:
		return nil
	}
	return nil
}

// Get is the run as it is now.
func (a *App) Get(ctx context.Context, runID string) (*RunRecord, error) {
	if runID == "" {
		return nil, errNoRun
	}
	record := &RunRecord{}
	if err := a.send(ctx, request{method: http.MethodGet, path: runPath(runID)}, record); err != nil {
		return nil, err
	}
	return record, nil
}

// Cancel asks for the run's cancellation. No step begins after it has returned; bodies that run may still save.
func (a *App) Cancel(ctx context.Context, runID string) (*RunRecord, error) {
	return a.command(ctx, runID, "/cancel", []byte("{}"))
}

// command posts to a run. Its key makes a try again find what the first one did.
func (a *App) command(ctx context.Context, runID, verb string, body []byte) (*RunRecord, error) {
	if runID == "" {
		return nil, errNoRun
	}
	if frozen(ctx) {
		return &RunRecord{ID: runID}, nil
	}
	record := &RunRecord{}
	r := request{method: http.MethodPost, path: runPath(runID) + verb, body: body, key: contact.Nonce()}
	if err := a.send(ctx, r, record); err != nil {
		return nil, err
	}
	return record, nil
}

// RunInfo is the run that a context belongs to.
type RunInfo struct {
	ID, Workflow, App, Key, ReplayOf string
	// Attempt counts the tries of the code outside steps since the last saved step, from 1.
	Attempt   int
	Event     *ReceivedEvent // nil unless an event started the run
	CreatedAt time.Time
}

// CurrentRun is the run that ctx belongs to; ok is false outside a run.
func CurrentRun(ctx context.Context) (info RunInfo, ok bool) {
	f := play.From(ctx)
	if f == nil {
		return RunInfo{}, false
	}
	r := f.Playing.Run()
	info = RunInfo{
		ID: r.ID, Workflow: r.Workflow, App: r.App, Key: r.Key, ReplayOf: r.ReplayOf, Attempt: r.Attempt, CreatedAt: r.CreatedAt,
	}
	if e := r.Event; e != nil {
		info.Event = &ReceivedEvent{ID: e.ID, Name: e.Event, Payload: e.Payload, CreatedAt: e.CreatedAt}
	}
	return info, true
}

// CallOver is true once the call that ctx belongs to has ended, also while its deferred functions run at the end of a call
// that is not the run's, or in a branch of step.Parallel, Map or Race that nobody waits for any more. It is false outside a run.
func CallOver(ctx context.Context) bool {
	f := play.From(ctx)
	return f != nil && f.Over()
}
