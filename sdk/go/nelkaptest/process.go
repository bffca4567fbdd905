package nelkaptest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/contact"
	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// process is one call, played by the SDK as in a process of its own, which can be cut off: then nothing that it saves or sends is
// taken any more, its code unwinds, its bodies' contexts end, and what still runs of them comes to nothing.
type process struct {
	world   *world
	run     *run // nil: what is sent is sent from outside any run
	id      string
	token   string
	contact *contact.Process
	client  *http.Client
	gone    chan struct{} // closed when nothing of the playing is left
	left    chan struct{} // closed when the call has been answered, and nothing is left

	once sync.Once

	// Guarded by the world's mu.
	number  int // which call of the world it is, from 1
	base    int // how many entries came with the call
	playing *play.Playing
	cut     bool
	running int // bodies and checks that run
	held    int // requests that wait for another run's end
	places  map[string]int
}

func newProcess(w *world, r *run) *process {
	p := &process{
		world: w, run: r, id: "call_" + contact.Nonce(), token: contact.Nonce(), contact: contact.NewProcess(),
		gone: make(chan struct{}), left: make(chan struct{}), places: map[string]int{},
	}
	p.client = &http.Client{Transport: p}
	return p
}

// Client speaks to the world as this process. This and what follows is the SDK's stage.
func (p *process) Client() *http.Client { return p.client }

// Process is the SDK's contact, of which each process has one.
func (p *process) Process() *contact.Process { return p.contact }

// Met keeps the app.
func (p *process) Met(app http.Handler, name string) { p.world.met(app, name) }

// Done says that nothing of the playing is left.
func (p *process) Done() { p.once.Do(func() { close(p.gone) }) }

// Began keeps the playing, so that it can be told of news.
func (p *process) Began(playing *play.Playing) {
	p.world.mu.Lock()
	p.playing = playing
	cut := p.cut
	p.world.mu.Unlock()
	if cut {
		p.tell(&wire.News{Status: wire.StatusSuperseded})
	}
}

// tell gives the playing news. The world's mu must not be held.
func (p *process) tell(n *wire.News) {
	p.world.mu.Lock()
	playing := p.playing
	p.world.mu.Unlock()
	if playing != nil {
		playing.Tell(n)
	}
}

// Attempt runs the body or the check of a step, or its fake.
func (p *process) Attempt(ctx context.Context, a *play.Attempt, r *play.Request, check bool) (output json.RawMessage, ended bool, err error) {
	if err := p.bodyBegins(); err != nil {
		return nil, true, err
	}
	defer p.bodyEnds()
	fake := p.world.options.steps[a.Name]
	switch {
	case fake.run != nil && !check:
		output, err = fake.run(ctx)
		ended = true
	case fake.check != nil && check:
		output, ended, err = fake.check(ctx)
	default:
		output, ended, err = r.Perform(ctx, check)
	}
	what := "the body"
	if check {
		what = "the check"
	}
	p.cutOff(fmt.Sprintf("after %s of step %q had run and before its result was saved", what, a.Name))
	return output, ended, err
}

func (p *process) bodyBegins() error {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bodies++
	p.running++
	if most := w.options.bodiesMax; most > 0 && w.bodies > most {
		p.running--
		w.fail(fmt.Errorf("%w: more than %d bodies of steps ran in one scenario: does the run go round in circles?", errLimit, most))
		return w.problem
	}
	return nil
}

func (p *process) bodyEnds() {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.running--
}

// busy is true where something of the call may run that does not wait for another run's end. The world's mu is held.
func (p *process) busy() bool { return p.held == 0 || p.running > p.held }

// cutOff ends the goroutine where the call is to be cut off here.
func (p *process) cutOff(where string) {
	p.world.mu.Lock()
	cut := p.world.cuts(p, where)
	p.world.mu.Unlock()
	if cut {
		p.tell(&wire.News{Status: wire.StatusSuperseded})
		runtime.Goexit()
	}
}

// play has the app play the call, and waits until nothing of it is left.
func (p *process) play(app http.Handler, message []byte) {
	defer close(p.left)
	text, err := p.post(app, message)
	p.world.mu.Lock()
	began := p.playing != nil
	p.world.mu.Unlock()
	if began {
		timer := time.NewTimer(graceTime)
		defer timer.Stop()
		select {
		case <-p.gone:
		case <-timer.C: // a body that heeds no signal: the run goes on without it
		}
	}
	p.world.answered(p, text, err)
}

// post gives the app a request of the server's.
func (p *process) post(app http.Handler, message []byte) ([]byte, error) {
	r := httptest.NewRequestWithContext(play.WithStage(context.Background(), p), http.MethodPost, "/api/nelkap", bytes.NewReader(message))
	r.Header.Set("Content-Type", wire.ContentType)
	r.Header.Set("Nelkap-Protocol", wire.Version)
	recorder := httptest.NewRecorder()
	app.ServeHTTP(recorder, r)
	if recorder.Code != http.StatusOK {
		var refused struct{ Detail string }
		_ = json.Unmarshal(recorder.Body.Bytes(), &refused) // what is no problem document has no detail to tell
		return nil, fmt.Errorf("it answered %d: %s", recorder.Code, refused.Detail)
	}
	return recorder.Body.Bytes(), nil
}

// RoundTrip is the app's way to the world.
func (p *process) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	status, answer := p.respond(r, body)
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)), Request: r,
	}, nil
}

func (p *process) respond(r *http.Request, body []byte) (status int, answer any) {
	defer p.world.changed()
	id, verb, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/runs/"), "/")
	switch {
	case r.URL.Path == "/v1/saves":
		return p.saves(body)
	case r.URL.Path == "/v1/heartbeats":
		return p.heartbeat(r, body)
	case r.URL.Path == "/v1/runs":
		return p.startRun(body)
	case r.URL.Path == "/v1/events":
		return p.emit(body)
	case r.Method == http.MethodGet && verb == "":
		return p.getRun(r, id)
	case verb == "cancel":
		return p.cancelRun(id)
	}
	return problem(http.StatusNotImplemented, "not_played", "nelkaptest does not play "+r.Method+" "+r.URL.Path+": give the step a fake")
}

// heartbeat holds a poll for its time: what there is to say is told without it.
func (p *process) heartbeat(r *http.Request, body []byte) (status int, answer any) {
	var message struct{ WaitMs int64 }
	if err := json.Unmarshal(body, &message); err != nil {
		return problem(http.StatusBadRequest, "bad_request", err.Error())
	}
	timer := time.NewTimer(time.Duration(message.WaitMs) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
	return http.StatusOK, map[string]any{"time": time.Now().UTC(), "calls": []any{}}
}

func problem(status int, code, detail string) (int, any) {
	return status, map[string]any{"type": "about:blank", "status": status, "code": code, "detail": detail}
}
