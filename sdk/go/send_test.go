package nelkap_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// sent is the body of a start or of one event.
type sent struct {
	Workflow, App, Event, Key, ID string
	Payload                       json.RawMessage
	KeyForMs, DelayMs             int64
	At                            string
	Send                          *struct {
		Call, Token, Nonce string
		Step               struct {
			Name   string
			Number int
		}
		Place int
	}
}

// answersSends has s answer starts and events, and gives what was sent.
func answersSends(s *fakeServer) func() []sent {
	var all []sent
	s.fault = func(r *http.Request, body []byte) *http.Response {
		switch r.URL.Path {
		case "/v1/runs":
			var one sent
			json.Unmarshal(body, &one)
			all = append(all, one)
			return respond(201, map[string]any{"id": "run_child", "workflow": one.Workflow, "created": true})
		case "/v1/events":
			var many []sent
			json.Unmarshal(body, &many)
			all = append(all, many...)
			emitted := []map[string]any{}
			for range many {
				emitted = append(emitted, map[string]any{"id": "evt_1", "created": false, "payloadDiffers": true})
			}
			return respond(200, emitted)
		}
		return nil
	}
	return func() []sent {
		s.mu.Lock()
		defer s.mu.Unlock()
		return all
	}
}

func child(app *nelkap.App) *nelkap.Workflow[string, int] {
	return nelkap.NewWorkflow(app, "child", func(_ context.Context, s string) (int, error) { return len(s), nil })
}

func TestOptionsOfRunTravel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{URL: "http://testoptionsofruntravel.test", App: "shop"})
		sends := answersSends(s)
		wf := child(s.app)
		at := time.Date(2027, 1, 1, 1, 0, 0, 1, time.FixedZone("", 3600))
		for _, opts := range [][]nelkap.RunOption{
			{nelkap.Key("k"), nelkap.KeyFor(time.Hour), nelkap.Delay(1500 * time.Microsecond)}, {nelkap.At(at)},
		} {
			if _, err := nelkap.Run(t.Context(), wf, "x", opts...); err != nil {
				t.Error(err)
			}
		}
		if _, err := s.app.Emit(t.Context(), nelkap.Event{Name: "e", At: at}, nelkap.Event{Name: "e"}); err != nil {
			t.Error(err)
		}
		got := sends()
		for i := range got {
			got[i].ID = ""
		}
		want := []sent{
			{Workflow: "child", App: "shop", Payload: json.RawMessage(`"x"`), Key: "k", KeyForMs: 3600000, DelayMs: 2},
			{Workflow: "child", App: "shop", Payload: json.RawMessage(`"x"`), At: "2027-01-01T00:00:00.001Z"},
			{Event: "e", At: "2027-01-01T00:00:00.001Z"},
			{Event: "e"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
	})
}

// The payload of an event is any only since its type is the receiver's to know: a number of its own is as wide as it is.
func TestNumbersOfAnEventsPayloadTravelWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{URL: "http://testnumbersofaneventspayloadtravelwhole.test"})
		sends := answersSends(s)
		if _, err := s.app.Emit(t.Context(), nelkap.Event{Name: "e", Payload: struct{ ID int64 }{1<<53 + 1}}); err != nil {
			t.Error(err)
		}
		if got := sends(); len(got) != 1 || string(got[0].Payload) != `{"ID":9007199254740993}` {
			t.Errorf("sent %+v", got)
		}
		_, err := s.app.Emit(t.Context(), nelkap.Event{Name: "e", Payload: map[string]any{"id": int64(1<<53 + 1)}})
		if err == nil || !strings.Contains(err.Error(), `payload["id"] is the whole number`) {
			t.Errorf("error %v", err)
		}
	})
}

func TestOptionsOfRunThatDoNotFitAreRefused(t *testing.T) {
	app := nelkap.New(nelkap.Options{})
	wf := child(app)
	for want, opts := range map[string][]nelkap.RunOption{
		"Delay can't be -1s: give 0 or more": {nelkap.Delay(-time.Second)},
		"At can't be the zero time":          {nelkap.At(time.Time{})},
		"give one of them":                   {nelkap.At(time.Now()), nelkap.Delay(time.Second)},
		"KeyFor can't be 0s":                 {nelkap.Key("k"), nelkap.KeyFor(0)},
		"give Key too":                       {nelkap.KeyFor(time.Hour)},
		"the key of a run is empty":          {nelkap.Key("")},
	} {
		if _, err := nelkap.Run(t.Context(), wf, "x", opts...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Rule K1.
func TestSendsInAStepHaveTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{App: "shop"})
		all := answersSends(s)
		wf := child(s.app)
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (string, error) {
			h, err := step.Run(ctx, "send", func(ctx context.Context) (*nelkap.Handle[int], error) {
				nelkap.Run(ctx, wf, "a<&>")
				s.app.Emit(ctx, nelkap.Event{Name: "x", Payload: 1}, nelkap.Event{Name: "y", ID: "given"}, nelkap.Event{Name: "x"})
				return nelkap.Run(ctx, wf, "b", nelkap.Key("k"), nelkap.KeyFor(time.Hour))
			})
			return h.ID, err
		})
		// Three unkeyed events of which two have one name, in one request: they have an order, and are no overlap.
		a := s.call("w", nil)
		if a.Type != "completed" || string(a.Output) != `"run_child"` {
			t.Fatalf("answer %+v %+v", a, a.Error)
		}
		var got []string
		for _, one := range all() {
			if one.Send == nil || one.Send.Step.Name != "send" || one.Send.Step.Number != 1 || one.Send.Nonce == "" || one.Send.Token != "token1" {
				t.Errorf("sent %+v", one)
			}
			got = append(got, strings.Join([]string{one.Workflow, one.App, one.Event, one.Key, one.ID, string(one.Payload), string(rune('0' + one.Send.Place))}, "|"))
		}
		want := []string{`child|shop||||"a<&>"|1`, "||x|||1|1", "||y||given||1", "||x||||2", `child|shop||k||"b"|2`}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if ms := all()[4].KeyForMs; ms != 3600000 {
			t.Errorf("keyForMs %d", ms)
		}
		if saved := string(s.saves[0].Output); saved != `{"id":"run_child","workflow":"child","created":true}` {
			t.Errorf("the handle was saved as %s", saved)
		}
	})
}

// Rule K1.
func TestOverlappingSendsFailTheStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{Logger: quiet})
		answersSends(s)
		inner := s.fault
		s.fault = func(r *http.Request, body []byte) *http.Response {
			if r.URL.Path == "/v1/runs" {
				s.mu.Unlock()
				time.Sleep(time.Second)
				s.mu.Lock()
			}
			return inner(r, body)
		}
		wf := child(s.app)
		send := func(opts ...nelkap.RunOption) func(ctx context.Context) error {
			return func(ctx context.Context) error {
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() { nelkap.Run(ctx, wf, "x", opts...) })
				}
				wg.Wait()
				return nil
			}
		}
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			if err := step.Do(ctx, "keyed", send(nelkap.Key("k"))); err != nil {
				t.Errorf("keyed sends: %v", err)
			}
			err := step.Do(ctx, "unkeyed", send())
			if err == nil || !strings.Contains(err.Error(), "give each an id or a key") {
				t.Errorf("unkeyed sends: %v", err)
			}
			return nil
		}))
		if a := s.call("w", nil); a.Type != "completed" || s.saves[1].Retriable {
			t.Errorf("answer %+v", a)
		}
	})
}

// Rule K1.
func TestServersWordOnAmbiguousSendsFailsTheStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		s.fault = func(r *http.Request, _ []byte) *http.Response {
			if r.URL.Path == "/v1/events" {
				return respond(409, map[string]any{"status": 409, "code": "ambiguous_send", "detail": "places"})
			}
			return nil
		}
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			return step.Do(ctx, "a", func(ctx context.Context) error {
				s.app.Emit(ctx, nelkap.Event{Name: "x"}) // the error is not looked at, and the step fails nevertheless
				return nil
			})
		}))
		if a := s.call("w", nil); a.Type != "failed" || a.Retriable || !strings.Contains(a.Error.Message, "give each an id or a key") {
			t.Errorf("answer %+v %+v", a, a.Error)
		}
	})
}

func TestSendsOutsideStepsActEachTimeAndWarnOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := newServer(t, nelkap.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		all := answersSends(s)
		wf := child(s.app)
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			_, err := nelkap.Run(ctx, wf, "x")
			return err
		}))
		s.call("w", nil)
		s.call("w", nil)
		starts := all()
		if len(starts) != 2 || starts[0].ID == starts[1].ID || starts[0].Send != nil {
			t.Errorf("sent %+v", starts)
		}
		if n := strings.Count(log.String(), "place them in a step"); n != 1 || !strings.Contains(log.String(), "send_test.go:") {
			t.Errorf("warned %d times: %s", n, log.String())
		}
	})
}

// Rule K2.
func TestSendsAfterTheStepActAsOutsideAnyRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := newServer(t, nelkap.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		all := answersSends(s)
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			var late context.Context
			err := step.Do(ctx, "a", func(ctx context.Context) error { late = ctx; return nil }) //nolint:fatcontext // the context of a step that has ended is what is tested
			s.app.Emit(context.WithoutCancel(late), nelkap.Event{Name: "late"})
			return err
		}))
		s.call("w", nil)
		if sends := all(); len(sends) != 1 || sends[0].Send != nil || !strings.HasPrefix(sends[0].ID, "evt_") {
			t.Errorf("sent %+v", sends)
		}
		if !strings.Contains(log.String(), "step that has ended") {
			t.Errorf("the log: %s", log.String())
		}
	})
}

// Rule K2.
func TestLostContextIsWarnedOfInDev(t *testing.T) {
	t.Setenv("NELKAP_DEV", "1")
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := newServer(t, nelkap.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		s.app.Emit(timedOut(t), nelkap.Event{Name: "x"})
		if log.Len() > 0 {
			t.Errorf("the log: %s", log.String())
		}
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			return step.Do(ctx, "a", func(context.Context) error {
				s.app.Emit(timedOut(t), nelkap.Event{Name: "x"})
				return nil
			})
		}))
		s.call("w", nil)
		if n := strings.Count(log.String(), "give it the step's context"); n != 1 {
			t.Errorf("warned %d times: %s", n, log.String())
		}
	})
}

// timedOut is a context without a run that lets nothing be tried for long.
func timedOut(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestResultInAWorkflowWarns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := newServer(t, nelkap.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		answersSends(s)
		inner := s.fault
		s.fault = func(r *http.Request, body []byte) *http.Response {
			if r.Method == http.MethodGet {
				return respondText(200, "application/json", `{"id":"run_child","status":"completed","output":4}`)
			}
			return inner(r, body)
		}
		wf := child(s.app)
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (int, error) {
			h, err := step.Run(ctx, "a", func(ctx context.Context) (nelkap.Handle[int], error) {
				h, err := nelkap.Run(ctx, wf, "text")
				return *h, err
			})
			if err != nil {
				return 0, err
			}
			return h.Result(ctx) // a handle that came back from JSON
		})
		if a := s.call("w", nil); string(a.Output) != "4" || !strings.Contains(log.String(), "holds the call open") {
			t.Errorf("answer %+v %+v, the log: %s", a, a.Error, log.String())
		}
		if saved := string(s.saves[0].Output); saved != `{"id":"run_child","workflow":"child","created":true}` {
			t.Errorf("the handle was saved as %s", saved)
		}
	})
}

// K6: every try of one start has the same body, and the id in it was drawn before the first.
func TestRunOutsideIsTriedAgainWithTheSameBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{URL: "http://testrunoutsideistriedagainwiththesamebody.test/", APIKey: "key"})
		tries := []*http.Response{broken(), respondText(503, "text/html", "<p>"), respondText(429, "", ""), respondText(504, "", ""), respondText(502, "", "")}
		s.fault = func(*http.Request, []byte) *http.Response {
			if len(tries) == 0 {
				return respond(200, map[string]any{"id": "run_x", "created": false, "payloadDiffers": true})
			}
			next := tries[0]
			tries = tries[1:]
			return next
		}
		h, err := nelkap.Run(t.Context(), child(s.app), "x")
		if err != nil || h.ID != "run_x" || h.Created || !h.PayloadDiffers {
			t.Fatalf("%+v, %v", h, err)
		}
		if len(s.requests) != 6 || !regexp.MustCompile(`"id":"run_[0-9a-z]{26}"`).Match(s.requests[0].body) {
			t.Errorf("%d requests, the first %s", len(s.requests), s.requests[0].body)
		}
		for _, r := range s.requests {
			if string(r.body) != string(s.requests[0].body) || r.auth != "Bearer key" {
				t.Errorf("request %s with %s", r.body, r.auth)
			}
		}
	})
}

func TestAServerThatIsBusySaysWhenToTryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{URL: "http://testaserverthatisbusysayswhentotryagain.test"})
		wf := child(s.app)
		for _, c := range []struct {
			status int
			after  string
			want   time.Duration
		}{
			{429, "3", 3 * time.Second},
			{503, "1", time.Second},
			{429, "3600", 5 * time.Second},
			{429, "0", 100 * time.Millisecond},
			{503, "", 100 * time.Millisecond},
			{503, "Thu, 01 Jan 2026 00:00:00 GMT", 100 * time.Millisecond},
			{429, "-5", 100 * time.Millisecond},
			{502, "3", 100 * time.Millisecond},
		} {
			tries := 0
			s.fault = func(*http.Request, []byte) *http.Response {
				if tries++; tries > 1 {
					return respond(200, map[string]any{"id": "run_x", "created": true})
				}
				answer := respondText(c.status, "", "")
				answer.Header.Set("Retry-After", c.after)
				return answer
			}
			started := time.Now()
			_, err := nelkap.Run(t.Context(), wf, "x")
			if took := time.Since(started); err != nil || tries != 2 || took != c.want {
				t.Errorf("%d with Retry-After %q: %d tries in %v, want 2 in %v (%v)", c.status, c.after, tries, took, c.want, err)
			}
		}
	})
}

func TestRefusedSendsAreNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{URL: "http://testrefusedsendsarenottriedagain.test"})
		s.fault = func(*http.Request, []byte) *http.Response {
			return respond(404, map[string]any{"status": 404, "code": "workflow_unknown", "title": "no", "detail": "no such workflow"})
		}
		_, err := nelkap.Run(t.Context(), child(s.app), "x")
		refused, ok := errors.AsType[*nelkap.APIError](err)
		if !ok || refused.Status != 404 || refused.Code != "workflow_unknown" || len(s.requests) != 1 {
			t.Errorf("%v after %d requests", err, len(s.requests))
		}
		if _, err := nelkap.Run(t.Context(), child(nelkap.New(nelkap.Options{})), "a\xff"); err == nil || !strings.Contains(err.Error(), "payload is text") {
			t.Errorf("a payload that is not UTF-8: %v", err)
		}
		if _, err := s.app.Emit(t.Context(), nelkap.Event{Name: "x", Payload: map[string]any{"f": func() {}}}); err == nil || !strings.Contains(err.Error(), `payload["f"]`) {
			t.Errorf("a payload that is no JSON: %v", err)
		}
		if len(s.requests) != 1 {
			t.Error("a bad payload was sent")
		}
	})
}

func TestResultWaitsForTheRunsEnd(t *testing.T) {
	for _, c := range []struct {
		name, record string
		is           error
		message      string
	}{
		{"completed", `{"id":"run_x","status":"completed","output":3}`, nil, ""},
		{"failed", `{"id":"run_x","status":"failed","error":{"name":"TypeError","message":"no card","cause":{"name":"E","message":"deep"}}}`, nil, "no card"},
		{"cut off", `{"id":"run_x","status":"failed","error":{"name":"StepCutOffError","message":"cut"}}`, nelkap.ErrStepCutOff, "cut"},
		{"timed out", `{"id":"run_x","status":"failed","error":{"name":"TimeoutError","message":"late"}}`, nelkap.ErrTimeout, "late"},
		{"cancelled", `{"id":"run_x","status":"cancelled"}`, nelkap.ErrCancelled, "run_x"},
		{"skipped", `{"id":"run_x","status":"skipped"}`, nelkap.ErrSkipped, "run_x"},
		{"skipped for another", `{"id":"run_x","status":"skipped","error":{"name":"RunSkippedError","message":"the run was skipped: run run_0 owns its key","fields":{"owner":"run_0"}}}`, nelkap.ErrSkipped, "run_0"},
		{"other output", `{"id":"run_x","status":"completed","output":"text"}`, nil, "does not fit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nelkap.Options{URL: "http://server.test"})
				s.url = "http://server.test"
				polls := 0
				s.fault = func(r *http.Request, _ []byte) *http.Response {
					if r.Method == http.MethodPost {
						return respond(201, map[string]any{"id": "run_x", "created": true})
					}
					if r.URL.String() != "http://server.test/v1/runs/run_x?waitMs=30000" {
						t.Errorf("asked for %s", r.URL)
					}
					if polls++; polls < 3 {
						return respond(200, map[string]any{"id": "run_x", "status": "running"})
					}
					return respondText(200, "application/json", c.record)
				}
				h, err := nelkap.Run(t.Context(), child(s.app), "x")
				if err != nil {
					t.Fatal(err)
				}
				out, err := h.Result(t.Context())
				if c.message == "" {
					if err != nil || out != 3 {
						t.Errorf("%d, %v", out, err)
					}
					return
				}
				if err == nil || !strings.Contains(err.Error(), c.message) || c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

func TestCommandsOnRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{URL: "http://commands.test"})
		s.url = "http://commands.test"
		var seen []string
		var keys []string
		failed := false
		s.fault = func(r *http.Request, _ []byte) *http.Response {
			seen = append(seen, r.Method+" "+r.URL.EscapedPath())
			if r.Method == http.MethodPost {
				keys = append(keys, r.Header.Get("Idempotency-Key"))
			}
			if strings.HasSuffix(r.URL.Path, "/replay") && !failed {
				failed = true
				return broken()
			}
			return respondText(200, "application/json", `{"id":"run_1","workflow":"w","app":"shop","status":"waiting","payload":{"a":1},
				"event":"order.paid","eventId":"evt_1","key":null,"replayOf":"run_0","attempt":2,"createdAt":"2026-01-02T03:04:05.678Z",
				"startedAt":null,"waitingFor":{"reason":"app unreachable","nextAt":"2026-01-02T03:05:05.000Z"}}`)
		}
		record, err := s.app.Get(t.Context(), "run/1")
		if err != nil || record.ID != "run_1" || record.Status != nelkap.StatusWaiting || record.EventID != "evt_1" || record.Attempt != 2 ||
			record.CreatedAt.UnixMilli()%1000 != 678 || !record.StartedAt.IsZero() || record.WaitingFor.Reason != "app unreachable" {
			t.Errorf("%+v, %v", record, err)
		}
		s.app.Cancel(t.Context(), "run_1")
		var sent string
		answer := s.fault
		s.fault = func(r *http.Request, body []byte) *http.Response { sent = string(body); return answer(r, body) }
		s.app.Replay(t.Context(), "run_1", nelkap.FromStep("email"), nelkap.WithPayload(7), nelkap.KeepKeys(false), nelkap.NewEvents())
		if sent != `{"from":"email","payload":7,"keepKeys":false,"events":"new"}` {
			t.Errorf("a replay is asked for with %s", sent)
		}
		for _, option := range []nelkap.ReplayOption{nelkap.FromStep(""), nelkap.WithPayload(make(chan int))} {
			if _, err := s.app.Replay(t.Context(), "run_1", option); err == nil {
				t.Error("a replay that can't be was asked for")
			}
		}
		for what, call := range map[string]func() (*nelkap.RunRecord, error){
			"get":    func() (*nelkap.RunRecord, error) { return s.app.Get(t.Context(), "") },
			"cancel": func() (*nelkap.RunRecord, error) { return s.app.Cancel(t.Context(), "") },
			"replay": func() (*nelkap.RunRecord, error) { return s.app.Replay(t.Context(), "") },
		} {
			if _, err := call(); err == nil || !strings.Contains(err.Error(), "none was given") {
				t.Errorf("%s of no run: %v", what, err)
			}
		}
		want := []string{"GET /v1/runs/run%2F1", "POST /v1/runs/run_1/cancel", "POST /v1/runs/run_1/replay", "POST /v1/runs/run_1/replay"}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if keys[0] == "" || keys[0] == keys[1] || keys[1] != keys[2] {
			t.Errorf("keys %q", keys)
		}
	})
}

// Rule C9.
func TestSendsOfACallGoWhereTheCallCameFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{APIKey: "the key"})
		all := answersSends(s)
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			return step.Do(ctx, "a", func(ctx context.Context) error {
				_, err := s.app.Emit(ctx, nelkap.Event{Name: "x"})
				return err
			})
		}))
		if a := s.call("w", nil); a.Type != "completed" || len(all()) != 1 || s.requests[0].auth != "Bearer the key" {
			t.Errorf("answer %+v %+v", a, a.Error)
		}
	})
}

func TestLogHasRunStepAndAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := newServer(t, nelkap.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			nelkap.Log(ctx).Info("code")
			return step.Do(ctx, "a", func(ctx context.Context) error { nelkap.Log(ctx).Info("body"); return nil })
		}))
		s.call("w", nil)
		for _, want := range []string{"msg=code run=run_1 attempt=1\n", "msg=body run=run_1 step=a attempt=1\n"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log has no %q: %s", want, log.String())
			}
		}
	})
}

func TestAnAppInThePlaceOfTheServerSaysSo(t *testing.T) {
	there := httptest.NewServer(nelkap.New(nelkap.Options{}))
	defer there.Close()
	app := nelkap.New(nelkap.Options{URL: there.URL})
	_, err := app.Emit(t.Context(), nelkap.Event{Name: "e"})
	_, ofGet := app.Get(t.Context(), "run_1")
	for _, err := range []error{err, ofGet} {
		if err == nil || !strings.Contains(err.Error(), "an app answers at "+there.URL) {
			t.Errorf("error %v", err)
		}
	}
}
