package nelkap_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// schedules answers requests for schedules with answers, one after the other, and keeps what was asked.
func schedules(s *fakeServer, answers ...*http.Response) func() []string {
	var asked []string
	s.fault = func(r *http.Request, body []byte) *http.Response {
		asked = append(asked, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
		answer := answers[0]
		answers = answers[1:]
		return answer
	}
	return func() []string { return asked }
}

const nightly = `{"id":"a/b","workflow":"w","app":"shop","schedule":"@daily","timezone":"UTC","catchUp":"last","payload":{"n":1},
	"declared":false,"paused":true,"nextAt":null,"createdAt":"2027-01-01T00:00:00.000Z"}`

func TestSchedulesAreMadeAndChanged(t *testing.T) {
	s := newServer(t, nelkap.Options{URL: "http://testschedulesaremadeandchanged.test", App: "shop"})
	one := func() *http.Response { return respondText(200, "application/json", nightly) }
	page := func(next string) *http.Response {
		return respondText(200, "application/json", `{"data":[`+nightly+`],"nextCursor":`+next+`}`)
	}
	asked := schedules(s, one(), one(), one(), one(), page(`"c=1"`), page(`null`), respondText(204, "", ""),
		respondText(404, "application/problem+json", `{"status":404,"code":"not_found","detail":"there is no schedule"}`))
	all, ctx := s.app.Schedules(), t.Context()
	want := &nelkap.ScheduleRecord{
		ID: "a/b", Workflow: "w", App: "shop", Expression: "@daily", Timezone: "UTC", CatchUp: nelkap.CatchUpLast,
		Payload: json.RawMessage(`{"n":1}`), Paused: true, CreatedAt: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	put := nelkap.Schedule{Workflow: "w", Expression: "@daily", CatchUp: nelkap.CatchUpLast, Payload: map[string]int{"n": 1}, Paused: true}
	for what, call := range map[string]func() (*nelkap.ScheduleRecord, error){
		"put":    func() (*nelkap.ScheduleRecord, error) { return all.Put(ctx, "a/b", put) },
		"get":    func() (*nelkap.ScheduleRecord, error) { return all.Get(ctx, "a/b") },
		"pause":  func() (*nelkap.ScheduleRecord, error) { return all.Pause(ctx, "a/b") },
		"resume": func() (*nelkap.ScheduleRecord, error) { return all.Resume(ctx, "a/b") },
	} {
		got, err := call()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s gave %v (-want +got):\n%s", what, err, diff)
		}
	}
	if list, err := all.List(ctx); err != nil || len(list) != 2 || list[1].ID != "a/b" {
		t.Errorf("the list is %v, %v", list, err)
	}
	if err := all.Delete(ctx, "a/b"); err != nil {
		t.Errorf("removing it gave %v", err)
	}
	var refused *nelkap.APIError
	if err := all.Delete(ctx, "gone"); !errors.As(err, &refused) || refused.Code != "not_found" {
		t.Errorf("removing one that is not there gave %v", err)
	}
	requests := map[string]bool{}
	for _, r := range asked() {
		requests[r] = true
	}
	for _, r := range []string{
		`PUT /v1/schedules/a%2Fb {"workflow":"w","app":"shop","schedule":"@daily","catchUp":"last","payload":{"n":1},"paused":true}`,
		"GET /v1/schedules/a%2Fb", "POST /v1/schedules/a%2Fb/pause", "POST /v1/schedules/a%2Fb/resume",
		"GET /v1/schedules?limit=100", "GET /v1/schedules?cursor=c%3D1&limit=100", "DELETE /v1/schedules/a%2Fb", "DELETE /v1/schedules/gone",
	} {
		if !requests[r] {
			t.Errorf("no request %s in %v", r, requests)
		}
	}
}

func TestAScheduleThatCantBeSentIsRefused(t *testing.T) {
	all := nelkap.New(nelkap.Options{App: "shop"}).Schedules()
	for want, put := range map[string]func() (*nelkap.ScheduleRecord, error){
		"the schedule needs one": func() (*nelkap.ScheduleRecord, error) { return all.Put(t.Context(), "", nelkap.Schedule{}) },
		"payload is a chan": func() (*nelkap.ScheduleRecord, error) {
			return all.Put(t.Context(), "x", nelkap.Schedule{Payload: make(chan int)})
		},
	} {
		if _, err := put(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("refused with %v, want %s", err, want)
		}
	}
	for what, err := range map[string]error{
		"get": second(all.Get(t.Context(), "")), "pause": second(all.Pause(t.Context(), "")), "resume": second(all.Resume(t.Context(), "")),
		"delete": all.Delete(t.Context(), ""),
	} {
		if err == nil || !strings.Contains(err.Error(), "the schedule needs one") {
			t.Errorf("%s of no schedule: %v", what, err)
		}
	}
}

func second(_ *nelkap.ScheduleRecord, err error) error { return err }

// The answer to the first try is lost: the second finds nothing, which is what was asked for.
func TestAScheduleIsRemovedThoughItsAnswerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{URL: "http://testascheduleisremovedthoughitsanswerislost.test", App: "shop"})
		schedules(s, broken(), respondText(404, "application/problem+json", `{"status":404,"code":"not_found"}`))
		if err := s.app.Schedules().Delete(t.Context(), "x"); err != nil {
			t.Errorf("removing it gave %v", err)
		}
	})
}

// Code that is played again, after a step that was cut off or outside steps, finds nothing where it removed the schedule before.
func TestAScheduleIsRemovedTwiceInARun(t *testing.T) {
	s := newServer(t, nelkap.Options{App: "shop"})
	s.fault = func(r *http.Request, _ []byte) *http.Response {
		if r.Method != http.MethodDelete {
			return nil
		}
		return respondText(404, "application/problem+json", `{"status":404,"code":"not_found"}`)
	}
	nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ any) (string, error) {
		if err := s.app.Schedules().Delete(ctx, "x"); err != nil {
			return "", err
		}
		return step.Run(ctx, "stop", func(ctx context.Context) (string, error) { return "gone", s.app.Schedules().Delete(ctx, "y") })
	})
	if a := s.call("w", nil); string(a.Output) != `"gone"` {
		t.Errorf("it came to %+v", a)
	}
}

func TestATickHasItsSchedulesPayload(t *testing.T) {
	s := newServer(t, nelkap.Options{App: "shop"})
	nelkap.NewWorkflow(s.app, "w", func(_ context.Context, tick nelkap.Tick) (string, error) { return string(tick.Payload), nil })
	payload := map[string]any{"schedule": "@daily", "time": "2027-01-01T00:00:00.000Z", "payload": map[string]int{"n": 1}}
	if a := s.call("w", payload); string(a.Output) != `"{\"n\":1}"` {
		t.Errorf("the payload is %s", a.Output)
	}
	delete(payload, "payload")
	if a := s.call("w", payload); string(a.Output) != `""` {
		t.Errorf("without one it is %s", a.Output)
	}
}
