package nelkap_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// oneStep declares a workflow of one step that takes d.
func oneStep(s *fakeServer, bodies *int, d time.Duration) {
	nelkap.NewWorkflow(s.app, "one step", func(ctx context.Context, _ nelkap.None) (int, error) {
		return step.Run(ctx, "a", func(context.Context) (int, error) {
			*bodies++
			time.Sleep(d)
			return 1, nil
		})
	})
}

// faults are what may come in the place of a server's answer.
var faults = map[string]func() *http.Response{
	"closed":       broken,
	"503":          func() *http.Response { return respondText(503, "text/plain", "no") },
	"500":          func() *http.Response { return respond(500, map[string]string{"code": "internal"}) },
	"429":          func() *http.Response { return respond(429, map[string]string{"code": "busy"}) },
	"400":          func() *http.Response { return respond(400, map[string]string{"code": "bad_request"}) },
	"413":          func() *http.Response { return respondText(413, "text/html", "<h1>no</h1>") },
	"HTML":         func() *http.Response { return respondText(200, "text/html", "<h1>welcome</h1>") },
	"HTML as JSON": func() *http.Response { return respondText(200, "application/json", "<h1>welcome</h1>") },
	"no outcomes":  func() *http.Response { return respondText(200, "application/json", "{}") },
	"cut":          func() *http.Response { return respondText(200, "application/json", `{"saves":[{"call":`) },
	"redirect": func() *http.Response {
		r := respondText(307, "text/plain", "")
		r.Header.Set("Location", "http://elsewhere.test/v1/saves")
		return r
	},
	"later": func() *http.Response { return respondText(200, "application/json", `{"saves":[{"status":"later"}]}`) },
	"fewer items": func() *http.Response {
		return respondText(200, "application/json", `{"saves":[{"status":"accepted","items":[]}]}`)
	},
}

// Rule C1.
func TestSavesAreRepeatedUntilTheyAreAnswered(t *testing.T) {
	for name, fault := range faults {
		for _, effect := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", after taking effect", false: ""}[effect], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newServer(t, nelkap.Options{Logger: quiet, APIKey: "the api key"})
					bodies, failures := 0, 3
					oneStep(s, &bodies, 0)
					s.fault = func(r *http.Request, body []byte) *http.Response {
						if r.URL.Path != "/v1/saves" || failures == 0 {
							return nil
						}
						failures--
						if effect {
							s.mu.Unlock()
							s.save(body)
							s.mu.Lock()
						}
						return fault()
					}
					a := s.call("one step", nil)
					if a.Type != "completed" || bodies != 1 || failures != 0 {
						t.Errorf("answer %+v, %d bodies", a, bodies)
					}
					if len(s.entries) != 1 {
						t.Errorf("%d entries", len(s.entries))
					}
					synctest.Wait()
					s.checkRepeats()
				})
			})
		}
	}
}

// checkRepeats checks that saves were repeated unchanged, and that the call was named meanwhile (C1).
func (s *fakeServer) checkRepeats() {
	s.t.Helper()
	var first string
	polls := 0
	for _, r := range s.requests {
		if r.auth != "Bearer the api key" {
			s.t.Errorf("%s %s came with %q", r.method, r.path, r.auth)
		}
		if r.path == "/v1/heartbeats" {
			polls++
		}
		if r.path != "/v1/saves" {
			continue
		}
		if first == "" {
			first = string(r.body)
		}
		if string(r.body) != first {
			s.t.Errorf("a save was repeated as\n%s\nafter\n%s", r.body, first)
		}
	}
	if polls == 0 {
		s.t.Error("the call was not named while its save failed")
	}
}

// Rule C11.
func TestUnsavedResultsTravelInTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{Logger: quiet})
		bodies := 0
		oneStep(s, &bodies, 0)
		down := true
		s.fault = func(*http.Request, []byte) *http.Response {
			if down {
				return broken()
			}
			return nil
		}
		started := time.Now()
		a := s.call("one step", nil)
		if took := time.Since(started); took.Round(time.Millisecond) != 60*time.Second {
			t.Errorf("answered after %v", took)
		}
		if a.Type != "yielded" || len(a.Unsaved) != 1 || string(a.Unsaved[0].Output) != "1" {
			t.Errorf("answer %+v", a)
		}
		time.Sleep(10 * time.Second)
		s.mu.Lock()
		down = false
		s.mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(s.ends) != 1 || s.ends[0].End.Type != "yielded" || len(s.ends[0].End.Unsaved) != 1 {
			t.Errorf("the end through the API: %+v", s.ends)
		}
	})
}

// C11: the heartbeats of a long body that fail count too. Else its result would be ready before the lease ends, and be lost with it.
func TestSilenceDuringALongBodyCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{Logger: quiet})
		bodies := 0
		const takes = 4*time.Minute + 30*time.Second
		oneStep(s, &bodies, takes)
		down := true
		s.fault = func(*http.Request, []byte) *http.Response {
			if down {
				return broken()
			}
			return nil
		}
		started := time.Now()
		a := s.call("one step", nil)
		if took := time.Since(started); took != takes || a.Type != "yielded" || len(a.Unsaved) != 1 {
			t.Errorf("after %v answered %+v", took, a)
		}
		s.mu.Lock()
		down = false
		s.mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(s.ends) != 1 {
			t.Errorf("the end through the API: %+v", s.ends)
		}
	})
}

// Rule C11.
func TestWithoutConnectionSavesAreTriedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{Logger: quiet})
		bodies := 0
		oneStep(s, &bodies, time.Second)
		down := true
		s.fault = func(*http.Request, []byte) *http.Response {
			if down {
				return broken()
			}
			return nil
		}
		ctx, closeConnection := context.WithCancel(t.Context())
		go s.callWith(ctx, "one step", nil)
		time.Sleep(100 * time.Millisecond)
		closeConnection()
		time.Sleep(10 * time.Minute)
		s.mu.Lock()
		down = false
		s.mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(s.saves) != 1 || len(s.ends) != 1 || string(s.ends[0].End.Output) != "1" || s.ends[0].Nonce == "" {
			t.Errorf("saves %v, ends %+v", s.savedNames(), s.ends)
		}
	})
}

// away is a server that can't be reached, and from some moment on accepts each save, which must travel alone. It reads nothing.
type away struct {
	back     atomic.Bool
	accepted atomic.Int64
}

func (s *away) RoundTrip(r *http.Request) (*http.Response, error) {
	if !s.back.Load() || r.URL.Path != "/v1/saves" {
		return nil, errors.New("away")
	}
	s.accepted.Add(1)
	return respondText(200, "application/json", `{"saves":[{"status":"accepted","items":[{"status":"saved","entry":1}]}]}`), nil
}

// C11: seventeen results of 4 MiB are more than are kept, and the oldest are let go.
func TestResultsForAServerThatIsAwayAreBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		network := &away{}
		s := newServer(t, nelkap.Options{HTTPClient: &http.Client{Transport: network}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		result := json.RawMessage(`"` + strings.Repeat("x", 4<<20-2) + `"`)
		nelkap.NewWorkflow(s.app, "large", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			_, err := step.Run(ctx, "a", func(context.Context) (json.RawMessage, error) { return result, nil })
			return err
		}))
		const calls, fit = 17, 15
		answers := make(chan answer, calls)
		for range calls {
			go func() { answers <- s.call("large", nil) }()
		}
		time.Sleep(50 * time.Millisecond) // each save has failed once
		network.back.Store(true)
		got := map[string]int{}
		for range calls {
			got[(<-answers).Type]++
		}
		accepted := int(network.accepted.Load())
		if diff := cmp.Diff(map[string]int{"completed": fit, "over": calls - fit}, got); diff != "" || accepted != fit {
			t.Errorf("%d results were saved, want %d; answers (-want +got):\n%s", accepted, fit, diff)
		}
		if n := strings.Count(log.String(), "the oldest results are let go"); n != calls-fit {
			t.Errorf("the log says %d times that results are let go, want %d", n, calls-fit)
		}
	})
}

// Rule C10.
func TestEndsAreRepeatedUntilTheyAreFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{Logger: quiet})
		bodies, failures := 0, 0
		oneStep(s, &bodies, time.Second)
		s.fault = func(r *http.Request, _ []byte) *http.Response {
			if r.URL.Path != "/v1/ends" || failures == 4 {
				return nil
			}
			failures++
			return []*http.Response{
				broken(), respondText(503, "text/plain", ""), respondText(200, "application/json", `{"ends":[{"status":"later"}]}`),
				respondText(200, "text/html", "<p>"),
			}[failures-1]
		}
		ctx, closeConnection := context.WithCancel(t.Context())
		go s.callWith(ctx, "one step", nil)
		time.Sleep(100 * time.Millisecond)
		closeConnection()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if len(s.ends) != 1 || failures != 4 || s.polls == 0 {
			t.Errorf("ends %+v after %d failures, %d polls", s.ends, failures, s.polls)
		}
	})
}

// failingWriter is a connection that breaks when the answer is written.
type failingWriter struct{ header http.Header }

func (w *failingWriter) Header() http.Header       { return w.header }
func (w *failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
func (w *failingWriter) WriteHeader(int)           {}

// Rule C10.
func TestAnswerThatCanNotBeWrittenGoesThroughTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		bodies := 0
		oneStep(s, &bodies, 0)
		s.app.ServeHTTP(&failingWriter{http.Header{}}, signed(t.Context(), s.callMessage("one step", nil)))
		time.Sleep(time.Second)
		synctest.Wait()
		if len(s.ends) != 1 || s.ends[0].End.Type != "completed" || string(s.ends[0].End.Output) != "1" {
			t.Errorf("ends %+v", s.ends)
		}
	})
}

// C1, C10: what is not heard of is cut, and its code runs again.
func TestACallWhoseAnswerIsLostIsNamedUntilItsEndIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{Logger: quiet})
		bodies := 0
		oneStep(s, &bodies, 0)
		away := true
		s.fault = func(r *http.Request, _ []byte) *http.Response {
			if away && r.URL.Path == "/v1/ends" {
				return broken()
			}
			return nil
		}
		s.app.ServeHTTP(&failingWriter{http.Header{}}, signed(t.Context(), s.callMessage("one step", nil)))
		time.Sleep(30 * time.Second)
		if polls := s.pollCount(); polls < 6 {
			t.Errorf("%d polls in 30 s", polls)
		}
		s.mu.Lock()
		away = false
		s.mu.Unlock()
		time.Sleep(5 * time.Second)
		before := s.pollCount()
		time.Sleep(time.Minute)
		if len(s.ends) != 1 || s.pollCount() != before {
			t.Errorf("ends %+v, and %d polls after it", s.ends, s.pollCount()-before)
		}
	})
}

// Rule H5.
func TestPagesThatFailAreReadAgainAndThenCutTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{Logger: quiet})
		bodies := 0
		oneStep(s, &bodies, 0)
		s.pages = 1
		failures := 2
		s.fault = func(r *http.Request, _ []byte) *http.Response {
			if !strings.HasSuffix(r.URL.Path, "/steps") || failures == 0 {
				return nil
			}
			failures-- // below 0 for ever
			return broken()
		}
		if a := s.call("one step", nil); a.Type != "completed" {
			t.Errorf("answer %+v", a)
		}
		s.mu.Lock()
		failures = -1
		s.mu.Unlock()
		if a := s.call("one step", nil); a.Status != 500 || a.Code != "internal" {
			t.Errorf("answer %+v", a)
		}
		for status, want := range map[string]string{"superseded": "over", "ended": "over"} {
			s.mu.Lock()
			s.fault = func(r *http.Request, _ []byte) *http.Response { return respond(409, map[string]string{"code": status}) }
			s.mu.Unlock()
			if a := s.call("one step", nil); a.Type != want {
				t.Errorf("%s: answer %+v", status, a)
			}
		}
	})
}

func TestInvalidSaveFailsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		bodies := 0
		oneStep(s, &bodies, 0)
		s.fault = func(*http.Request, []byte) *http.Response {
			return respondText(200, "application/json", `{"saves":[{"status":"invalid","detail":"no such rule"}]}`)
		}
		if a := s.call("one step", nil); a.Type != "failed" || a.Retriable || !strings.Contains(a.Error.Message, "no such rule") {
			t.Errorf("answer %+v %+v", a, a.Error)
		}
	})
}

// Rule C7.
func TestShortCallsDoNotPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		bodies := 0
		oneStep(s, &bodies, 400*time.Millisecond)
		for range 10 {
			s.entries = nil
			s.call("one step", nil)
		}
		if polls := s.pollCount(); polls != 0 {
			t.Errorf("%d polls", polls)
		}
	})
}

// Rules C1, C7.
func TestLongCallsPollAndALostConnectionIsNamedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		bodies := 0
		oneStep(s, &bodies, time.Minute)
		ctx, closeConnection := context.WithCancel(t.Context())
		go s.callWith(ctx, "one step", nil)
		time.Sleep(100 * time.Millisecond)
		closeConnection()
		synctest.Wait()
		if polls := s.pollCount(); polls != 1 {
			t.Errorf("%d polls right after the connection closed", polls)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if polls := s.pollCount(); polls < 6 || polls > 8 {
			t.Errorf("%d polls in 30 s", polls)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(s.ends) != 1 {
			t.Errorf("ends %+v", s.ends)
		}
		before := s.pollCount()
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.pollCount() != before {
			t.Error("the process polls though it plays nothing")
		}
	})
}

// Rule C7.
func TestGrownListReplacesThePollAtMostTwiceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			return step.Do(ctx, "a", func(ctx context.Context) error { time.Sleep(8 * time.Second); return nil })
		}))
		for range 40 {
			go s.call("w", nil)
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		if polls := s.pollCount(); polls < 3 || polls > 9 {
			t.Errorf("%d polls in 4 s", polls)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}

func TestServerThatAlwaysHasNewsIsNotAskedInALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		bodies := 0
		oneStep(s, &bodies, 20*time.Second)
		s.fault = func(r *http.Request, _ []byte) *http.Response {
			if r.URL.Path == "/v1/heartbeats" {
				s.polls++
				return respondText(200, "application/json", `{"calls":[]}`)
			}
			return nil
		}
		s.call("one step", nil)
		synctest.Wait()
		if polls := s.pollCount(); polls > 50 {
			t.Errorf("%d polls in 20 s", polls)
		}
	})
}

func TestSecretsStayOutOfLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		s := newServer(t, nelkap.Options{Logger: slog.New(slog.NewTextHandler(&text, nil)), APIKey: "canary-api-key"})
		bodies := 0
		oneStep(s, &bodies, 0)
		s.fault = func(*http.Request, []byte) *http.Response { return broken() }
		s.leaseMs = 5000
		if a := s.call("one step", nil); a.Type != "yielded" {
			t.Errorf("answer %+v", a)
		}
		s.mu.Lock()
		s.fault = nil
		s.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if !strings.Contains(text.String(), "can't be reached") || strings.Contains(text.String(), "canary") || strings.Contains(text.String(), "token1") {
			t.Errorf("the log: %s", text.String())
		}
	})
}
