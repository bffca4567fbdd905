package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/apptest"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/wire"
)

func TestARunIsStartedAndRead(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("fulfill", func(ctx context.Context, c *apptest.Call) wire.End {
		if _, err := c.Save(ctx, apptest.Step("charge", []byte(`{"id":"ch_1"}`)), apptest.Step("nothing", nil)); err != nil {
			return apptest.Failed("Error", err.Error())
		}
		return apptest.Completed(c.Run.Payload)
	}))
	a := s.post("/v1/runs", `{"workflow":"fulfill","payload":{"order":"o_1","n":1.50}}`)
	started := decode[apitype.StartedRun](t, a, http.StatusCreated)
	if !started.Created || started.PayloadDiffers || id.Check(id.Run, started.ID) != nil || started.App != "shop" || started.Workflow != "fulfill" {
		t.Fatalf("%s", a.body)
	}
	run := s.ended(started.ID)
	if run.Status != "completed" || string(run.Output) != `{"order":"o_1","n":1.50}` || run.StartedAt == nil || run.WaitingFor != nil || run.Error != nil {
		t.Fatalf("%+v", run)
	}
	steps, err := s.Steps(t.Context(), run.ID, client.Page{})
	if err != nil || len(steps.Data) != 2 || steps.NextCursor != nil {
		t.Fatalf("%+v, %v", steps, err)
	}
	charge, nothing := steps.Data[0], steps.Data[1]
	if charge.Name != "charge" || charge.Status != "completed" || string(charge.Output) != `{"id":"ch_1"}` || *charge.Entry != 1 || len(charge.Attempts) != 1 {
		t.Errorf("%+v", charge)
	}
	if nothing.Name != "nothing" || nothing.Output != nil {
		t.Errorf("undefined came back as %s", nothing.Output)
	}
}

// Each field is there, whatever its value.
func TestARunHasItsWholeShape(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("echo", echo))
	run := s.start(client.StartRun{Workflow: "echo", Payload: []byte(`1`), Key: "k"})
	s.ended(run.ID)
	fields := decode[map[string]json.RawMessage](t, s.do(raw{method: http.MethodGet, path: "/v1/runs/" + run.ID}), http.StatusOK)
	for _, name := range []string{"id", "workflow", "app", "status", "payload", "output", "error", "event", "eventId", "key", "replayOf", "attempt", "createdAt", "startedAt", "endedAt", "cancelRequestedAt", "waitingFor"} {
		if fields[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	for _, name := range []string{"createdAt", "startedAt", "endedAt"} {
		if _, err := time.Parse(`"2006-01-02T15:04:05.000Z"`, string(fields[name])); err != nil {
			t.Errorf("%s is %s, not RFC 3339 with milliseconds in UTC", name, fields[name])
		}
	}
	for _, name := range []string{"error", "event", "eventId", "replayOf", "cancelRequestedAt", "waitingFor"} {
		if string(fields[name]) != "null" {
			t.Errorf("%s is %s", name, fields[name])
		}
	}
	if string(fields["key"]) != `"k"` || string(fields["attempt"]) != "1" {
		t.Errorf("key %s, attempt %s", fields["key"], fields["attempt"])
	}
}

func TestUndefinedAndNullAreTwoThings(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("echo", echo))
	for payload, want := range map[string]string{
		`{"workflow":"echo"}`:                "",
		`{"workflow":"echo","payload":null}`: "null",
		`{"workflow":"echo","payload":0}`:    "0",
		`{"workflow":"echo","payload":""}`:   `""`,
	} {
		started := decode[apitype.StartedRun](t, s.post("/v1/runs", payload), http.StatusCreated)
		s.ended(started.ID)
		fields := decode[map[string]json.RawMessage](t, s.do(raw{method: http.MethodGet, path: "/v1/runs/" + started.ID}), http.StatusOK)
		if string(fields["output"]) != want || string(fields["payload"]) != want {
			t.Errorf("%s: payload %q, output %q", payload, fields["payload"], fields["output"])
		}
	}
}

// What JSON can say comes back as it was said.
func TestPayloadsKeepTheirBytes(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("echo", echo))
	for _, payload := range []string{
		`12345678901234567890123`, `1.0`, `1e400`, `{"b":1,"a":2,"b":3}`, `"\ud800"`, `"\u0000"`, `"\u0041"`, `"<&>  "`, `{"__proto__":{"x":1},"constructor":1}`, `[]`, `"𝒳"`,
	} {
		started := decode[apitype.StartedRun](t, s.post("/v1/runs", `{"workflow":"echo","payload":`+payload+`}`), http.StatusCreated)
		run := s.ended(started.ID)
		if string(run.Output) != payload || string(run.Payload) != payload {
			t.Errorf("%s came back as payload %s and output %s", payload, run.Payload, run.Output)
		}
	}
}

func TestAFailedRunTellsItsError(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("fail", func(context.Context, *apptest.Call) wire.End {
		return wire.End{Type: wire.Failed, Error: &wire.Error{Name: "TypeError", Message: "no", Stack: "at x", Cause: &wire.Error{Name: "Error", Message: "why"}}}
	}))
	run := s.ended(s.start(client.StartRun{Workflow: "fail"}).ID)
	if run.Status != "failed" || run.Error == nil || run.Error.Name != "TypeError" || run.Error.Message != "no" || run.Error.Stack != "at x" || run.Error.Cause.Message != "why" {
		t.Fatalf("%+v %+v", run, run.Error)
	}
	if string(run.Output) != "null" || run.Attempt != 1 {
		t.Errorf("a run that failed at its first try has the output %s and the attempt %d", run.Output, run.Attempt)
	}
}

func TestUnknownAndAmbiguousWorkflowsAreRefused(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("pay", echo))
	s.app("bank", apptest.On("pay", echo))
	_, err := s.StartRun(t.Context(), client.StartRun{Workflow: "nope"})
	if p := problemOf(t, err, http.StatusUnprocessableEntity, "workflow_unknown"); !strings.Contains(p.Detail, `"nope"`) || !strings.Contains(p.Detail, "start the app") {
		t.Errorf("it does not say what to do: %s", p.Detail)
	}
	_, err = s.StartRun(t.Context(), client.StartRun{Workflow: "pay", App: "none"})
	problemOf(t, err, http.StatusUnprocessableEntity, "workflow_unknown")
	_, err = s.StartRun(t.Context(), client.StartRun{Workflow: "pay"})
	p := problemOf(t, err, http.StatusUnprocessableEntity, "workflow_ambiguous")
	if !strings.Contains(p.Detail, `"shop"`) || !strings.Contains(p.Detail, `"bank"`) {
		t.Errorf("it does not list the apps: %s", p.Detail)
	}
	if run := s.ended(s.start(client.StartRun{Workflow: "pay", App: "bank"}).ID); run.App != "bank" {
		t.Errorf("%+v", run)
	}
}

// Rule K4.
func TestARunKeyHasOneRun(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("echo", echo), apptest.On("other", echo))
	first := decode[apitype.StartedRun](t, s.post("/v1/runs", `{"workflow":"echo","key":"k","payload":{"a":1}}`), http.StatusCreated)
	again := decode[apitype.StartedRun](t, s.post("/v1/runs", `{"workflow":"echo","key":"k","payload":{ "a": 1 }}`), http.StatusOK)
	if again.ID != first.ID || again.Created || again.PayloadDiffers {
		t.Errorf("the same payload: %+v", again)
	}
	differs := decode[apitype.StartedRun](t, s.post("/v1/runs", `{"workflow":"echo","key":"k","payload":2}`), http.StatusOK)
	if differs.ID != first.ID || differs.Created || !differs.PayloadDiffers || string(differs.Payload) != `{"a":1}` {
		t.Errorf("another payload: %+v", differs)
	}
	if other := s.start(client.StartRun{Workflow: "other", Key: "k"}); !other.Created {
		t.Error("a key is of one workflow, and another workflow's was taken for it")
	}
	list, err := s.Runs(t.Context(), client.RunQuery{Key: "k", Workflow: "echo"})
	if err != nil || len(list.Data) != 1 || list.Data[0].ID != first.ID {
		t.Errorf("%+v, %v", list, err)
	}
}

// A client that got no answer sends the same id again: it is told what its first try would have been (K6).
func TestAnIDThatIsSentAgainAnswersAsTheFirstTry(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("echo", echo))
	drawn := id.New(id.Run)
	for range 2 {
		if run := s.start(client.StartRun{Workflow: "echo", ID: drawn}); run.ID != drawn || !run.Created {
			t.Errorf("%+v", run)
		}
	}
	s.post("/v1/runs", `{"workflow":"echo","id":"run_1"}`).problem(t, http.StatusUnprocessableEntity, "invalid")
	s.post("/v1/runs", `{"workflow":"echo","id":"`+id.New(id.Event)+`"}`).problem(t, http.StatusUnprocessableEntity, "invalid")
}

func TestRunsAreListedInPages(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("echo", echo), apptest.On("other", echo))
	var want []string
	for range 5 {
		want = append([]string{s.start(client.StartRun{Workflow: "echo"}).ID}, want...)
		s.start(client.StartRun{Workflow: "other"})
	}
	var got []string
	query := client.RunQuery{Page: client.Page{Limit: 2}, Workflow: "echo"}
	for pages := 0; ; pages++ {
		list, err := s.Runs(t.Context(), query)
		if err != nil || len(list.Data) > 2 || pages > 5 {
			t.Fatalf("%+v, %v", list, err)
		}
		for _, run := range list.Data {
			got = append(got, run.ID)
		}
		if list.NextCursor == nil {
			break
		}
		query.Cursor = *list.NextCursor
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %v, want %v", got, want)
	}
	empty := s.do(raw{method: http.MethodGet, path: "/v1/runs?app=none"})
	if empty.body != "{\"data\":[],\"nextCursor\":null}\n" {
		t.Errorf("an empty list is %s", empty.body)
	}
	for path, code := range map[string]string{
		"/v1/runs?limit=0": "invalid", "/v1/runs?limit=101": "invalid", "/v1/runs?limit=x": "invalid", "/v1/runs?status=done": "invalid",
		"/v1/runs?cursor=zzz": "bad_cursor", "/v1/runs?cursor=cnVuX3g": "bad_cursor", "/v1/schedules?cursor=zzz": "bad_cursor", "/v1/schedules?cursor=AA": "bad_cursor",
		"/v1/deliveries?cursor=eA": "bad_cursor", "/v1/events?cursor=LTE": "bad_cursor",
		"/v1/runs?cursor=!!": "bad_cursor", "/v1/runs/" + want[0] + "/steps?cursor=" + "eA": "bad_cursor", "/v1/events?cursor=eA": "bad_cursor",
		"/v1/runs/" + want[0] + "?waitMs=30001": "invalid",
	} {
		s.do(raw{method: http.MethodGet, path: path}).problem(t, http.StatusUnprocessableEntity, code)
	}
}

func TestAVerificationsCursorIsARuns(t *testing.T) {
	start(t).post("/v1/verify", `{"url":"http://127.0.0.1:1","cursor":"zzz"}`).problem(t, http.StatusUnprocessableEntity, "bad_cursor")
}

func TestAStartMayWaitForItsRun(t *testing.T) {
	s := start(t)
	h := newHeld()
	s.app("shop", apptest.On("held", h.play))
	body := `{"workflow":"held"}`
	early := s.do(raw{method: http.MethodPost, path: "/v1/runs?waitMs=1", body: body})
	if early.status != http.StatusCreated || !strings.Contains(early.body, `"status":"running"`) {
		t.Fatalf("%d %s", early.status, early.body)
	}
	done := make(chan answer, 1)
	h.await(t)
	go func() { done <- s.do(raw{method: http.MethodPost, path: "/v1/runs?waitMs=30000", body: body}) }()
	h.await(t)
	h.release <- apptest.Completed([]byte(`"first"`))
	h.release <- apptest.Completed([]byte(`"second"`))
	select {
	case a := <-done:
		if a.status != http.StatusCreated || !strings.Contains(a.body, `"status":"completed"`) || !strings.Contains(a.body, `"created":true`) {
			t.Errorf("%d %s", a.status, a.body)
		}
	case <-time.After(20 * time.Second):
		t.Error("the start outlasted its run")
	}
	s.do(raw{method: http.MethodPost, path: "/v1/runs?waitMs=30001", body: body}).problem(t, http.StatusUnprocessableEntity, "invalid")
}

func TestWaitingEndsWithTheRun(t *testing.T) {
	s := start(t)
	h := newHeld()
	s.app("shop", apptest.On("held", h.play))
	run := s.start(client.StartRun{Workflow: "held"})
	h.await(t)
	early, err := s.Run(t.Context(), run.ID, time.Millisecond)
	if err != nil || early.Status != "running" || early.EndedAt != nil {
		t.Fatalf("%+v, %v", early, err)
	}
	done := make(chan apitype.Run, 1)
	go func() {
		run, err := s.Run(t.Context(), run.ID, 30*time.Second)
		if err != nil {
			t.Error(err)
		}
		done <- run
	}()
	h.release <- apptest.Completed([]byte(`"ok"`))
	select {
	case ended := <-done:
		if ended.Status != "completed" || string(ended.Output) != `"ok"` {
			t.Errorf("%+v", ended)
		}
	case <-time.After(20 * time.Second):
		t.Error("the wait outlasted its run")
	}
}

func TestAServerThatStopsAnswersThoseWhoWait(t *testing.T) {
	s := start(t)
	h := newHeld()
	s.app("shop", apptest.On("held", h.play))
	run := s.start(client.StartRun{Workflow: "held"})
	h.await(t)
	done := make(chan apitype.Run, 1)
	go func() {
		run, err := s.Run(context.WithoutCancel(t.Context()), run.ID, 30*time.Second)
		if err != nil {
			t.Error(err)
		}
		done <- run
	}()
	s.stop()
	select {
	case run := <-done:
		if run.Status != "running" {
			t.Errorf("%+v", run)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the wait outlasted the server")
	}
	refused := s.post("/v1/runs", `{"workflow":"held"}`)
	refused.problem(t, http.StatusServiceUnavailable, "stopping")
	if refused.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

func TestCancelling(t *testing.T) {
	s := start(t)
	h := newHeld()
	s.app("shop", apptest.On("held", h.play), apptest.On("echo", echo))
	run := s.start(client.StartRun{Workflow: "held"})
	h.await(t)
	for range 2 { // asked again, it changes nothing
		ending, err := s.Cancel(t.Context(), run.ID, false)
		if err != nil || ending.CancelRequestedAt == nil {
			t.Fatalf("%+v, %v", ending, err)
		}
	}
	h.release <- wire.End{Type: wire.Yielded}
	if ended := s.ended(run.ID); ended.Status != "cancelled" || ended.CancelRequestedAt == nil {
		t.Errorf("%+v", ended)
	}
	over := s.start(client.StartRun{Workflow: "echo"})
	s.ended(over.ID)
	if after, err := s.Cancel(t.Context(), over.ID, false); err != nil || after.Status != "completed" {
		t.Errorf("a run that has ended: %+v, %v", after, err)
	}
}

func TestAReplayHasTheSamePayloadByteForByte(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("echo", echo))
	const payload = `{"b": 1.0,"a":"A\ud800"}`
	first := decode[apitype.StartedRun](t, s.post("/v1/runs", `{"workflow":"echo","key":"k","payload":`+payload+`}`), http.StatusCreated)
	original := s.ended(first.ID)
	replayed, err := s.Replay(t.Context(), first.ID, client.ReplayOptions{})
	if err != nil || !replayed.Created || replayed.ID == first.ID || *replayed.ReplayOf != first.ID || replayed.Key != nil {
		t.Fatalf("%+v, %v", replayed, err)
	}
	again := s.ended(replayed.ID)
	if string(again.Payload) != string(original.Payload) || string(again.Output) != string(original.Output) || again.Status != "completed" {
		t.Errorf("%+v", again)
	}
	if now := s.ended(first.ID); now.Status != "completed" || !now.EndedAt.Equal(original.EndedAt.Time) {
		t.Errorf("the original changed: %+v", now)
	}
	drawn := id.New(id.Run)
	for range 2 {
		a := decode[apitype.StartedRun](t, s.post("/v1/runs/"+first.ID+"/replay", `{"id":"`+drawn+`"}`), http.StatusCreated)
		if a.ID != drawn || !a.Created {
			t.Errorf("%+v", a)
		}
	}
}

func TestARunWaitsForItsAppAndSaysSo(t *testing.T) {
	s := start(t)
	h := newHeld()
	s.app("shop", apptest.On("held", h.play))
	run := s.start(client.StartRun{Workflow: "held"})
	call := h.await(t)
	h.release <- wire.End{Type: wire.Failed, Error: &wire.Error{Name: "Error", Message: "no"}, Retriable: true, Retries: 4}
	waiting, err := s.Run(t.Context(), run.ID, time.Millisecond)
	for err == nil && waiting.Status == "running" {
		waiting, err = s.Run(t.Context(), run.ID, 10*time.Millisecond)
	}
	if err != nil || waiting.WaitingFor == nil || waiting.WaitingFor.Reason == "" || waiting.WaitingFor.NextAt == nil {
		t.Fatalf("%+v %+v, %v (call %s)", waiting, waiting.WaitingFor, err, call.Fence().Call)
	}
	h.release <- apptest.Completed(nil)
	if ended := s.ended(run.ID); ended.Status != "completed" {
		t.Errorf("%+v", ended)
	}
}

func TestWhatIsNotThere(t *testing.T) {
	s := start(t)
	missing := id.New(id.Run)
	for _, r := range []raw{
		{method: http.MethodGet, path: "/v1/runs/" + missing},
		{method: http.MethodGet, path: "/v1/runs/" + missing + "?waitMs=10"},
		{method: http.MethodGet, path: "/v1/runs/" + missing + "/steps"},
		{method: http.MethodPost, path: "/v1/runs/" + missing + "/replay"},
		{method: http.MethodPost, path: "/v1/runs/" + missing + "/cancel"},
		{method: http.MethodGet, path: "/v1/runs/%00%0a"},
		{method: http.MethodGet, path: "/v1/nothing"},
	} {
		if p := s.do(r).problem(t, http.StatusNotFound, "not_found"); strings.Contains(p.Detail, "store:") || !strings.Contains(p.Detail, "lists") {
			t.Errorf("%s: it does not say where to look: %s", r.path, p.Detail)
		}
	}
}

// An id that a client draws stands for one request. Told that another one was created, it would take a run that was never started for its own.
func TestAnIDOfAnotherRunIsRefused(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("echo", echo), apptest.On("charge", echo))
	drawn := id.New(id.Run)
	first, second := s.start(client.StartRun{Workflow: "echo", ID: drawn}), s.start(client.StartRun{Workflow: "echo"})
	if again := s.start(client.StartRun{Workflow: "echo", ID: drawn}); again.ID != first.ID || !again.Created {
		t.Errorf("a try again: %+v", again)
	}
	s.post("/v1/runs", `{"workflow":"charge","id":"`+drawn+`"}`).problem(t, http.StatusUnprocessableEntity, "invalid")
	s.post("/v1/runs/"+second.ID+"/replay", `{"id":"`+drawn+`"}`).problem(t, http.StatusUnprocessableEntity, "invalid")
	replay := `{"id":"` + id.New(id.Run) + `"}`
	one := decode[apitype.StartedRun](t, s.post("/v1/runs/"+first.ID+"/replay", replay), http.StatusCreated)
	if again := decode[apitype.StartedRun](t, s.post("/v1/runs/"+first.ID+"/replay", replay), http.StatusCreated); again.ID != one.ID || !again.Created {
		t.Errorf("a replay's try again: %+v", again)
	}
	s.post("/v1/runs/"+second.ID+"/replay", replay).problem(t, http.StatusUnprocessableEntity, "invalid")
}
