package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/apptest"
	"github.com/nelkap/nelkap/internal/wire"
)

func TestAScheduleIsMadePausedAndRemoved(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.Workflow{Name: "report", Play: echo})
	put := func(body string) answer {
		return s.do(raw{method: http.MethodPut, path: "/v1/schedules/user-1", body: body, header: map[string]string{"Content-Type": "application/json"}})
	}
	made := put(`{"workflow":"report","schedule":"0 9 * * 1-5","timezone":"Europe/Berlin","payload":{"user":1}}`)
	if made.status != http.StatusOK || !strings.Contains(made.body, `"catchUp":"none"`) || !strings.Contains(made.body, `"declared":false`) {
		t.Fatalf("%d %s", made.status, made.body)
	}
	if paused := s.post("/v1/schedules/user-1/pause", ""); paused.status != http.StatusOK || !strings.Contains(paused.body, `"nextAt":null`) {
		t.Errorf("%d %s", paused.status, paused.body)
	}
	if resumed := s.post("/v1/schedules/user-1/resume", ""); resumed.status != http.StatusOK || strings.Contains(resumed.body, `"nextAt":null`) {
		t.Errorf("%d %s", resumed.status, resumed.body)
	}
	if list := s.do(raw{method: http.MethodGet, path: "/v1/schedules"}); !strings.Contains(list.body, `"id":"user-1"`) {
		t.Errorf("%d %s", list.status, list.body)
	}
	for body, says := range map[string]string{
		`{"workflow":"report","schedule":"0 9 30 2 *"}`:                      "never ticks",
		`{"workflow":"report","schedule":"0 9 * * *","timezone":"Mars/Sea"}`: "Mars/Sea",
	} {
		if p := put(body).problem(t, http.StatusUnprocessableEntity, "bad_schedule"); !strings.Contains(p.Detail, says) {
			t.Errorf("%s: %s", body, p.Detail)
		}
	}
	put(`{"workflow":"nobody","schedule":"0 9 * * *"}`).problem(t, http.StatusUnprocessableEntity, "workflow_unknown")
	if gone := s.do(raw{method: http.MethodDelete, path: "/v1/schedules/user-1"}); gone.status != http.StatusNoContent {
		t.Errorf("%d %s", gone.status, gone.body)
	}
	s.do(raw{method: http.MethodDelete, path: "/v1/schedules/user-1"}).problem(t, http.StatusNotFound, "not_found")
}

func TestARunAndAnEventForLaterAreAcknowledgedNow(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.Workflow{Name: "report", Play: echo})
	at := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, body := range []string{`{"workflow":"report","at":"` + at + `"}`, `{"workflow":"report","delayMs":3600000}`} {
		if a := s.post("/v1/runs", body); a.status != http.StatusCreated || !strings.Contains(a.body, `"status":"queued"`) || !strings.Contains(a.body, "to start later") {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if a := s.post("/v1/events", `{"event":"paid","at":"`+at+`"}`); a.status != http.StatusOK || !strings.Contains(a.body, `"created":true`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.post("/v1/runs", `{"workflow":"report","at":"`+at+`","delayMs":1}`).problem(t, http.StatusUnprocessableEntity, "invalid")
	s.post("/v1/events", `{"event":"paid","at":"2999-01-01T00:00:00Z"}`).problem(t, http.StatusUnprocessableEntity, "invalid")
}

// A schedule that is made can be asked for, and a list goes on after it.
func TestAScheduleHasAnIDThatCanBeAskedFor(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.Workflow{Name: "report"})
	at := func(method, id, body string) answer {
		return s.do(raw{method: method, path: "/v1/schedules/" + id, body: body, header: map[string]string{"Content-Type": "application/json"}})
	}
	const daily = `{"workflow":"report","schedule":"0 9 * * *"}`
	for _, id := range []string{"a%00b", "%ff", "%2e", "%2e%2e", strings.Repeat("%C3%A4", 129)} {
		at(http.MethodPut, id, daily).problem(t, http.StatusUnprocessableEntity, "invalid")
	}
	for _, id := range []string{"a%2Fb", "...", "%20", strings.Repeat("%C3%A4", 128)} {
		if made, got := at(http.MethodPut, id, daily), at(http.MethodGet, id, ""); made.status != http.StatusOK || got.body != made.body {
			t.Errorf("%s: %d %s, then %d %s", id, made.status, made.body, got.status, got.body)
		}
	}
}

// asks is a workflow that makes a callback and waits for it; it gives the callback away.
func asks(s *server, made chan<- string) func(context.Context, *apptest.Call) wire.End {
	return func(ctx context.Context, c *apptest.Call) wire.End {
		for _, e := range c.Steps.Entries {
			if e.Name == "approval" && e.Number == 2 {
				return apptest.Completed(e.Output)
			}
		}
		fence := c.Fence()
		out := s.engine.Save(ctx, wire.Saves{Process: "p", Saves: []wire.Save{{Fence: fence, Items: []wire.Item{{Op: wire.OpCallback, Kind: "callback", Name: "approval", Number: 1}}}}})
		var callback struct {
			Token string `json:"token"`
		}
		if err := json.Unmarshal(out.Saves[0].Items[0].Output, &callback); err != nil {
			s.t.Error(err)
		}
		made <- callback.Token
		return wire.End{
			Type: wire.Suspended, Seen: 1, Waits: []wire.Tree{{Wait: &wire.StepRef{Name: "approval", Number: 2}}},
			Register: []wire.Item{{Op: wire.OpWait, Kind: "callback", Name: "approval", Number: 2, Of: 1}},
		}
	}
}

func TestACallbackTakesOneAnswerWithoutAKey(t *testing.T) {
	for _, c := range []struct{ outcome, query, kind, body, output string }{
		{"JSON", "", "application/json", `{"by":"ann"}`, `{"payload":{"by":"ann"}}`},
		{"any JSON", "", "application/json", `{"a":1,"a":"\ud800"}`, `{"payload":{"a":1,"a":"\ud800"}}`},
		{"a form", "", "application/x-www-form-urlencoded", `by=ann&ok=yes`, `{"payload":{"by":"ann","ok":"yes"}}`},
		{"a query", "?by=ann", "", ``, `{"payload":{"by":"ann"}}`},
		{"a query, with a form of no fields", "?by=ann", "application/x-www-form-urlencoded", ``, `{"payload":{"by":"ann"}}`},
		{"nothing", "", "", ``, `{}`},
	} {
		t.Run(c.outcome, func(t *testing.T) {
			s := start(t)
			made := make(chan string, 10)
			s.app("shop", apptest.Workflow{Name: "ask", Play: asks(s, made)})
			run := s.post("/v1/runs", `{"workflow":"ask"}`)
			token := <-made
			path := "/callbacks/" + token + c.query
			page := s.do(raw{method: http.MethodGet, path: path, header: map[string]string{"Authorization": ""}})
			if page.status != http.StatusOK || !strings.Contains(page.body, `<form method="post">`) || page.header.Get("Content-Security-Policy") == "" {
				t.Fatalf("a link's page: %d %s", page.status, page.body)
			}
			// A browser says what origin the page's form is of, but for a page without a referrer; without TLS nothing else tells.
			if policy := page.header.Get("Referrer-Policy"); policy != "same-origin" {
				t.Errorf("the page's referrer policy is %q", policy)
			}
			post := raw{method: http.MethodPost, path: path, body: c.body, header: map[string]string{"Authorization": "", "Content-Type": c.kind, "Origin": s.url}}
			if a := s.do(post); a.status != http.StatusOK {
				t.Fatalf("%d %s", a.status, a.body)
			}
			s.do(post).problem(t, http.StatusGone, "callback_over")
			var started struct {
				ID string `json:"id"`
			}
			if err := json.Unmarshal([]byte(run.body), &started); err != nil {
				t.Fatal(err)
			}
			ended := s.do(raw{method: http.MethodGet, path: "/v1/runs/" + started.ID + "?waitMs=30000"})
			if !strings.Contains(ended.body, `"output":`+c.output) {
				t.Errorf("the run: %s", ended.body)
			}
			s.do(raw{method: http.MethodPost, path: "/callbacks/another"}).problem(t, http.StatusNotFound, "not_found")
		})
	}
}

// An answer is held to what every payload is held to; one that is refused leaves the callback open.
func TestAnAnswerToACallbackIsCheckedAsAPayloadIs(t *testing.T) {
	s := start(t)
	made := make(chan string, 10)
	s.app("shop", apptest.Workflow{Name: "ask", Play: asks(s, made)})
	s.post("/v1/runs", `{"workflow":"ask"}`)
	path := "/callbacks/" + <-made
	for _, c := range []struct {
		outcome, kind, body string
		status              int
		code                string
	}{
		{"bytes that are no text", "application/json", "{\"a\":\"\xff\"}", http.StatusBadRequest, "bad_request"},
		{"no JSON", "application/json", `{"a":`, http.StatusBadRequest, "bad_request"},
		{"too deep", "application/json", strings.Repeat("[", 300) + strings.Repeat("]", 300), http.StatusUnprocessableEntity, "payload_too_deep"},
		{"a form that is too large as JSON", "application/x-www-form-urlencoded", "a=" + strings.Repeat("\x01", 512<<10), http.StatusRequestEntityTooLarge, "payload_too_large"},
	} {
		t.Run(c.outcome, func(t *testing.T) {
			s.do(raw{method: http.MethodPost, path: path, body: c.body, header: map[string]string{"Authorization": "", "Content-Type": c.kind}}).problem(t, c.status, c.code)
		})
	}
	if a := s.do(raw{method: http.MethodPost, path: path, body: `1`, header: map[string]string{"Authorization": ""}}); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
}
