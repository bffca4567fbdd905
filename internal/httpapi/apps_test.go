package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/apptest"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/wire"
)

func TestAppsAndWorkflowsAreListed(t *testing.T) {
	s := start(t)
	retries := 2
	pay := apptest.On("pay", echo, "order.paid")
	pay.Retries, pay.TimeoutMs, pay.LeaseMs = &retries, 7_200_000, 10_000
	url := s.app("shop", pay, apptest.On("refund", echo))
	s.app("bank", apptest.On("pay", echo))
	apps, err := s.Apps(t.Context())
	if err != nil || len(apps.Data) != 2 || *apps.Data[0].Name != "bank" || *apps.Data[1].Name != "shop" {
		t.Fatalf("%+v, %v", apps, err)
	}
	shop := apps.Data[1]
	if shop.URL != url || shop.Status != "ready" || shop.Reason != nil || shop.SDK.Language != "apptest" || shop.Concurrency != 100 || len(shop.Workflows) != 2 || shop.SeenAt == nil {
		t.Errorf("%+v", shop)
	}
	all, err := s.Workflows(t.Context(), "")
	if err != nil || len(all.Data) != 3 {
		t.Errorf("%+v, %v", all, err)
	}
	list, err := s.Workflows(t.Context(), "shop")
	if err != nil || len(list.Data) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	if w := list.Data[0]; w.Name != "pay" || w.App != "shop" || *w.Retries != 2 || *w.TimeoutMs != 7_200_000 || *w.LeaseMs != 10_000 || w.Triggers[0].Event != "order.paid" || w.GoneSince != nil {
		t.Errorf("%+v", w)
	}
	if w := list.Data[1]; w.Retries != nil || w.TimeoutMs != nil || w.LeaseMs != nil || len(w.Triggers) != 0 {
		t.Errorf("%+v", w)
	}
}

// Rule D1.
func TestAnAppIsPut(t *testing.T) {
	s := startWith(t, true)
	serving := httptest.NewServer(apptest.New("shop", apptest.On("pay", echo)))
	t.Cleanup(serving.Close)
	app, err := s.PutApp(t.Context(), serving.URL, 7)
	if err != nil || *app.Name != "shop" || app.Concurrency != 7 {
		t.Fatalf("%+v, %v", app, err)
	}
	again, err := s.PutApp(t.Context(), serving.URL, 0)
	if err != nil || again.Concurrency != 7 {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestAnAppThatCannotBeUsedIsRefused(t *testing.T) {
	s := startWith(t, true)
	page := func(status int, header map[string]string, body string) string {
		serving := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for name, value := range header {
				w.Header().Set(name, value)
			}
			w.WriteHeader(status)
			w.Write([]byte(body))
		}))
		t.Cleanup(serving.Close)
		return serving.URL
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, url := range map[string]string{
		"HTML": page(200, nil, "<html>"), "a redirect": page(302, map[string]string{"Location": "http://127.0.0.1:1/"}, ""), "404": page(404, nil, ""),
		"nobody": gone.URL, "no URL": "x", "another scheme": "ftp://127.0.0.1/", "metadata": "http://169.254.169.254/",
		"a broken manifest": page(200, map[string]string{wire.HeaderSDK: "x/1", "Content-Type": wire.ContentType}, `{"app":"x"}`),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.PutApp(t.Context(), url, 0)
			problemOf(t, err, http.StatusUnprocessableEntity, "app_unusable")
		})
	}
	s.do(raw{method: http.MethodPut, path: "/v1/apps", body: `{"url":""}`}).problem(t, http.StatusUnprocessableEntity, "invalid")
	s.do(raw{method: http.MethodPut, path: "/v1/apps", body: `{"url":"http://127.0.0.1/","concurrency":10001}`}).problem(t, http.StatusUnprocessableEntity, "invalid")
	if apps, err := s.Apps(t.Context()); err != nil || len(apps.Data) != 0 {
		t.Errorf("a refused address stays: %+v, %v", apps, err)
	}
}

// Whoever has an API key may not have the server call into the network that it stands in.
func TestAPrivateAddressIsTheOperatorsAlone(t *testing.T) {
	s := start(t)
	asked := make(chan struct{}, 1)
	serving := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }))
	t.Cleanup(serving.Close)
	_, err := s.PutApp(t.Context(), serving.URL, 0)
	if p := problemOf(t, err, http.StatusUnprocessableEntity, "app_unusable"); !strings.Contains(p.Detail, "--app") {
		t.Errorf("it does not say what to do: %s", p.Detail)
	}
	select {
	case <-asked:
		t.Error("a private address was asked")
	default:
	}
}

func TestTheKeysAreNeverSeenAgain(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("steps", func(ctx context.Context, c *apptest.Call) wire.End {
		if _, err := c.Save(ctx, apptest.Step("a", []byte(`1`))); err != nil {
			return apptest.Failed("Error", err.Error())
		}
		return apptest.Failed("TypeError", "no")
	}, "order.paid"))
	run := s.start(client.StartRun{Workflow: "steps"})
	s.ended(run.ID)
	seen := s.post("/hooks/x", "{}").body
	genuine := s.deliver("github", signedGitHub(hookSecret, `{"action":"opened"}`, "d1"))
	forged := s.deliver("github", signedGitHub("another", `{"action":"opened"}`, "d2"))
	seen += genuine.body + forged.body + s.deliver("payments", raw{body: "{}"}).body + fmt.Sprintf("%v %+v %#v", hooks(t), hooks(t), hooks(t))
	delivery := decode[apitype.EmittedEvent](t, genuine, http.StatusOK).DeliveryID
	for _, r := range []raw{
		{method: "GET", path: "/v1/deliveries"},
		{method: "GET", path: "/v1/deliveries/" + delivery},
		{method: "POST", path: "/v1/deliveries/" + delivery + "/redeliver"},
		{method: "GET", path: "/v1/runs"},
		{method: "GET", path: "/v1/runs/" + run.ID},
		{method: "GET", path: "/v1/runs/" + run.ID + "/steps"},
		{method: "GET", path: "/v1/events"},
		{method: "GET", path: "/v1/apps"},
		{method: "GET", path: "/v1/workflows"},
		{method: "GET", path: "/openapi.json"},
		{method: "GET", path: "/readyz"},
		{method: "GET", path: "/v1/runs?cursor=%%%"},
		{method: "POST", path: "/v1/runs", body: "{"},
		{method: "PUT", path: "/v1/apps", body: `{"url":"http://127.0.0.1:1/"}`},
		{method: "GET", path: "/none", header: map[string]string{"X-Request-Id": "x"}},
		{method: "GET", path: "/v1/runs", header: map[string]string{"Authorization": "Bearer " + apiKey + "x"}},
	} {
		a := s.do(r)
		seen += a.body
		for name, values := range a.header {
			seen += name + strings.Join(values, "")
		}
	}
	for where, text := range map[string]string{"the answers": seen, "the log": s.log.String()} {
		for _, secret := range []string{apiKey, signingKey, "canary"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s show %s", where, secret)
			}
		}
	}
	if !strings.Contains(s.log.String(), "step saved") {
		t.Error("the log of this test is not the talkative one")
	}
}

func TestStepsAreListedInPages(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("steps", func(ctx context.Context, c *apptest.Call) wire.End {
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			if _, err := c.Save(ctx, apptest.Step(name, nil)); err != nil {
				return apptest.Failed("Error", err.Error())
			}
		}
		return apptest.Completed(nil)
	}))
	run := s.ended(s.start(client.StartRun{Workflow: "steps"}).ID)
	for limit := 1; limit <= 6; limit++ {
		got, page := "", client.Page{Limit: limit}
		for range 7 {
			list, err := s.Steps(t.Context(), run.ID, page)
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range list.Data {
				got += step.Name
			}
			if list.NextCursor == nil {
				break
			}
			page.Cursor = *list.NextCursor
		}
		if got != "abcde" {
			t.Errorf("by %d: %s", limit, got)
		}
	}
}

// A step that is running or due again stands behind those that are saved.
func TestAStepThatThrewIsShownUntilItRunsAgain(t *testing.T) {
	s := start(t)
	h := newHeld()
	s.app("shop", apptest.On("held", h.play))
	run := s.start(client.StartRun{Workflow: "held"})
	c := h.await(t)
	threw := apptest.Step("b", nil)
	threw.Op, threw.Error, threw.Retriable, threw.Retries = wire.OpFailed, &wire.Error{Name: "Error", Message: "once"}, true, 4
	if out, err := c.Save(t.Context(), apptest.Step("a", []byte(`1`)), threw); err != nil || out.Status != wire.Accepted {
		t.Fatalf("%+v, %v", out, err)
	}
	list, err := s.Steps(t.Context(), run.ID, client.Page{})
	if err != nil || len(list.Data) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	b := list.Data[1]
	if b.Name != "b" || b.Status != "retrying" || b.Entry != nil || len(b.Attempts) != 1 || b.Attempts[0].Error.Message != "once" {
		t.Errorf("%+v", b)
	}
	h.release <- apptest.Completed(nil)
	s.ended(run.ID)
}

// What answers is not removed by mistake; what is gone, is removed once.
func TestAnAppIsRemoved(t *testing.T) {
	s := startWith(t, true)
	serving := httptest.NewServer(apptest.New("shop", apptest.On("pay", echo)))
	t.Cleanup(serving.Close)
	if _, err := s.PutApp(t.Context(), serving.URL, 0); err != nil {
		t.Fatal(err)
	}
	remove := raw{method: http.MethodDelete, path: "/v1/apps/shop"}
	if p := s.do(remove).problem(t, http.StatusConflict, "app_used"); !strings.Contains(p.Detail, serving.URL) {
		t.Errorf("it does not say what uses it: %s", p.Detail)
	}
	serving.CloseClientConnections()
	serving.Close()
	run := s.start(client.StartRun{Workflow: "pay"})
	for run.WaitingFor == nil || !strings.Contains(run.WaitingFor.Reason, "can't be used") {
		var err error
		if run.Run, err = s.Run(t.Context(), run.ID, 10*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.RemoveApp(t.Context(), "shop"); err != nil {
		t.Errorf("it is not removed: %v", err)
	}
	s.do(remove).problem(t, http.StatusNotFound, "not_found")
	s.do(raw{method: http.MethodDelete, path: "/v1/apps/other"}).problem(t, http.StatusNotFound, "not_found")
	if apps, err := s.Apps(t.Context()); err != nil || len(apps.Data) != 0 {
		t.Errorf("%+v, %v", apps, err)
	}
}
