package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/apptest"
	"github.com/nelkap/nelkap/internal/auth"
	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/httpapi"
	"github.com/nelkap/nelkap/internal/signature"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
)

// Secrets that must never be seen again (see secrets_test.go).
const (
	apiKey     = "canary-api-key-0123456789abcdefghij"
	signingKey = "canary-signing-key-0123456789abcdefgh"
	hookSecret = "canary-hook-secret-0123456789abcdefgh"
	hookOlder  = "canary-hook-older-0123456789abcdefghi"
)

// server is a whole server on loopback: API, engine and a store in memory, with a client that has the key.
type server struct {
	*client.Client
	t      *testing.T
	url    string
	engine *engine.Engine
	log    *logBuffer
	stop   func()
}

// logBuffer gathers a log at its most talkative.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func start(t *testing.T) *server { return startWith(t, false) }

func startWith(t *testing.T, dev bool) *server { return startOn(t, memory.New(), dev) }

func startOn(t *testing.T, kept store.Store, dev bool) *server {
	t.Helper()
	signing, err := signature.ParseKeys(signingKey)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := auth.New(apiKey)
	if err != nil {
		t.Fatal(err)
	}
	if dev {
		keys = auth.Keys{}
	}
	caller := call.New(call.Options{Keys: signing, Version: "test"})
	listening := httptest.NewUnstartedServer(nil)
	s := &server{t: t, url: "http://" + listening.Listener.Addr().String(), log: &logBuffer{}}
	log := slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s.engine = engine.New(kept, caller, engine.Options{URL: s.url, RunsFor: engine.RunsForMin, Logger: log})
	listening.Config.Handler = httpapi.New(httpapi.Options{Engine: s.engine, Reader: kept, Keys: keys, Hooks: hooks(t), Dev: dev, Version: "test", Logger: log})
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.engine.Run(ctx, func() { close(ready) }) }()
	<-ready
	listening.Start()
	if s.Client, err = client.New(client.Options{URL: s.url, Key: apiKey}); err != nil {
		t.Fatal(err)
	}
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the engine ended: %v", err)
		}
	})
	t.Cleanup(func() {
		s.stop()
		s.Close()
		caller.Close()
		listening.Close()
	})
	return s
}

// app serves an app on loopback and makes it known, as an operator would.
func (s *server) app(name string, workflows ...apptest.Workflow) string {
	s.t.Helper()
	serving := httptest.NewServer(apptest.New(name, workflows...))
	s.t.Cleanup(serving.Close)
	if _, err := s.engine.PutApp(s.t.Context(), engine.DefaultEnv, engine.AppRequest{URL: serving.URL}, true); err != nil {
		s.t.Fatal(err)
	}
	return serving.URL
}

// echo gives its payload back.
func echo(_ context.Context, c *apptest.Call) wire.End { return apptest.Completed(c.Run.Payload) }

// held is a workflow that waits until it is let go.
type held struct {
	reached chan *apptest.Call
	release chan wire.End
}

func newHeld() *held {
	return &held{reached: make(chan *apptest.Call, 100), release: make(chan wire.End, 100)}
}

func (h *held) play(ctx context.Context, c *apptest.Call) wire.End {
	h.reached <- c
	select {
	case end := <-h.release:
		return end
	case <-ctx.Done():
		return wire.End{Type: wire.Yielded}
	}
}

// await gets the next call of a held workflow.
func (h *held) await(t *testing.T) *apptest.Call {
	t.Helper()
	select {
	case c := <-h.reached:
		return c
	case <-time.After(10 * time.Second):
		t.Fatal("no call came")
		return nil
	}
}

func (s *server) start(r client.StartRun) apitype.StartedRun {
	s.t.Helper()
	started, err := s.StartRun(s.t.Context(), r)
	if err != nil {
		s.t.Fatal(err)
	}
	return started
}

// ended waits for a run's end.
func (s *server) ended(runID string) apitype.Run {
	s.t.Helper()
	run, err := s.Run(s.t.Context(), runID, 30*time.Second)
	if err != nil {
		s.t.Fatal(err)
	}
	if run.EndedAt == nil {
		s.t.Fatalf("run %s has not ended: %+v", runID, run)
	}
	return run
}

// answer is what a raw request was answered.
type answer struct {
	status int
	header http.Header
	body   string
}

// raw is a request that no client of ours would send.
type raw struct {
	method, path, body string
	header             map[string]string // Host sets the host; Authorization is the key's unless it is given, also as empty
}

func (s *server) do(r raw) answer {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), r.method, s.url+r.path, strings.NewReader(r.body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+apiKey)
	if r.body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.header {
		switch {
		case name == "Host":
			request.Host = value
		case value == "":
			request.Header.Del(name)
		default:
			request.Header.Set(name, value)
		}
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(text)}
}

func (s *server) post(path, body string) answer {
	s.t.Helper()
	return s.do(raw{method: http.MethodPost, path: path, body: body})
}

// problem checks that an answer is a problem of a status and a code, in every part that RFC 9457 and we ask for.
func (a answer) problem(t *testing.T, status int, code string) apitype.Problem {
	t.Helper()
	var p apitype.Problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("status %d, and no problem: %q", a.status, a.body)
	}
	if a.status != status || p.Status != status || p.Code != code {
		t.Fatalf("got %d %s (%s), want %d %s", a.status, p.Code, p.Detail, status, code)
	}
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type %q", got)
	}
	if p.Type == "" || p.Title == "" || p.Detail == "" || p.RequestID == "" || p.RequestID != a.header.Get("X-Request-Id") {
		t.Errorf("a part is missing: %+v, X-Request-Id %q", p, a.header.Get("X-Request-Id"))
	}
	return p
}

// decode reads an answer's JSON.
func decode[T any](t *testing.T, a answer, status int) T {
	t.Helper()
	var out T
	if a.status != status {
		t.Fatalf("got %d, want %d: %s", a.status, status, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &out); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return out
}

// problemOf checks that an error is a problem of a code.
func problemOf(t *testing.T, err error, status int, code string) *apitype.Problem {
	t.Helper()
	var p *apitype.Problem
	if !errors.As(err, &p) || p.Status != status || p.Code != code {
		t.Fatalf("got %v, want %d %s", err, status, code)
	}
	return p
}
