package httpapi_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/apptest"
	"github.com/nelkap/nelkap/internal/client"
)

// withoutKey are the routes that nobody needs a key for, and why. Everything else is closed.
var withoutKey = map[string]string{
	"GET /livez": "load balancers", "GET /healthz": "load balancers", "GET /health": "load balancers", "GET /readyz": "load balancers", "POST /hooks/x": "senders of webhooks have none",
	"POST /v1/saves": "bears its calls' tokens", "POST /v1/heartbeats": "bears its calls' tokens", "POST /v1/ends": "bears its calls' tokens",
	"GET /v1/calls/x/steps": "bears its call's token",
}

// paths are all that are served, and some that are not.
func paths(t *testing.T, s *server) []string {
	t.Helper()
	var described struct {
		Paths map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal([]byte(s.do(raw{method: http.MethodGet, path: "/openapi.json"}).body), &described); err != nil || len(described.Paths) == 0 {
		t.Fatalf("no paths: %v", err)
	}
	list := []string{
		"/", "/livez", "/healthz", "/health", "/readyz", "/livez/", "/health/x", "/hooks/x", "/hooks/", "/v1/saves", "/v1/heartbeats", "/v1/ends", "/v1/calls/x/steps", "/v1/calls/x",
		"/openapi.json", "/openapi.yaml", "/openapi-3.0.json", "/docs", "/schemas/Run.json", "/metrics", "/v1", "/v1/", "/v1/nothing", "/debug/pprof/",
		"//v1/runs", "/hooks/../v1/runs", "/healthz/../v1/runs", "/v1/saves/../runs", "/hooks/x/y", "/HEALTHZ", "/healthz/",
	}
	for path := range described.Paths {
		list = append(list, strings.NewReplacer("{id}", "x", "{name}", "x").Replace(path))
	}
	slices.Sort(list)
	return list
}

func TestEverythingIsClosedThatIsNotOpenForAReason(t *testing.T) {
	s := start(t)
	methods := []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodTrace, "PROPFIND",
	}
	open := 0
	for _, path := range paths(t, s) {
		for _, method := range methods {
			for _, key := range []string{"", "Bearer", "Bearer wrong-key-0123456789abcdefghijklmnop", "Basic " + apiKey, apiKey, "Bearer " + apiKey + "x"} {
				a := s.do(raw{method: method, path: path, header: map[string]string{"Authorization": key}})
				route := method + " " + path
				if method == http.MethodHead {
					route = "GET " + path
				}
				if withoutKey[route] != "" {
					if open++; a.status == http.StatusUnauthorized {
						t.Errorf("%s needs a key", route)
					}
					continue
				}
				if a.status != http.StatusUnauthorized || a.header.Get("WWW-Authenticate") == "" {
					t.Fatalf("%s %s with %q is answered %d: %s", method, path, key, a.status, a.body)
				}
				if method != http.MethodHead {
					a.problem(t, http.StatusUnauthorized, "unauthorized")
				}
			}
		}
	}
	if open < len(withoutKey) {
		t.Errorf("only %d open routes were tried", open)
	}
}

// A message of an app without its call's token does nothing, with or without a key.
func TestOpenRoutesGiveNothingWithoutATokenOfTheirs(t *testing.T) {
	s := start(t)
	h := newHeld()
	s.app("shop", apptest.On("held", h.play))
	run := s.start(client.StartRun{Workflow: "held"})
	c := h.await(t)
	fence := `"call":"` + c.Fence().Call + `","token":"` + run.ID + `.00000000000000000000000000000000","nonce":"n"`
	saves := s.post("/v1/saves", `{"process":"p","saves":[{`+fence+`,"seen":0,"items":[{"op":"completed","kind":"run","name":"a","number":1,"attempt":1}]}]}`)
	ends := s.post("/v1/ends", `{"process":"p","ends":[{`+fence+`,"end":{"type":"completed"}}]}`)
	beats := s.post("/v1/heartbeats", `{"process":"p","waitMs":0,"calls":[{`+fence+`}]}`)
	for _, a := range []answer{saves, ends, beats} {
		if a.status != http.StatusOK || !strings.Contains(a.body, `"superseded"`) {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	steps := s.do(raw{method: http.MethodGet, path: "/v1/calls/" + c.Fence().Call + "/steps?after=0", header: map[string]string{"Nelkap-Token": run.ID + ".0", "Authorization": ""}})
	steps.problem(t, http.StatusConflict, "superseded")
	h.release <- apptest.Completed(nil)
	if list, err := s.Steps(t.Context(), s.ended(run.ID).ID, client.Page{}); err != nil || len(list.Data) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	for _, path := range []string{"/v1/saves", "/v1/ends", "/v1/heartbeats"} {
		s.post(path, `{"saves":[`).problem(t, http.StatusBadRequest, "bad_request")
		s.post(path, `{}`).problem(t, http.StatusBadRequest, "bad_request")
		s.post(path, `{"process":"`+strings.Repeat("x", 257)+`"}`).problem(t, http.StatusBadRequest, "bad_request")
	}
	s.do(raw{method: http.MethodGet, path: "/v1/calls/x/steps"}).problem(t, http.StatusBadRequest, "bad_request")
}

func TestAnotherMethodIsRefusedWithThoseThatThereAre(t *testing.T) {
	s := start(t)
	for path, want := range map[string]string{
		"/v1/runs": "GET, POST", "/v1/runs/x": "GET", "/v1/runs/x/cancel": "POST", "/v1/events": "GET, POST", "/v1/apps": "GET, PUT", "/v1/workflows": "GET",
		"/hooks/x": "POST", "/healthz": "GET", "/v1/saves": "POST",
	} {
		a := s.do(raw{method: http.MethodDelete, path: path})
		a.problem(t, http.StatusMethodNotAllowed, "method_not_allowed")
		if got := a.header.Get("Allow"); got != want {
			t.Errorf("%s allows %q, want %q", path, got, want)
		}
	}
}

func TestHealthNeedsNoKey(t *testing.T) {
	s := start(t)
	for path, want := range map[string]string{"/livez": `{"status":"ok"}`, "/healthz": `{"status":"ok"}`, "/health": `{"status":"ok"}`, "/readyz": `{"status":"ready","version":"test"}`} {
		if a := s.do(raw{method: http.MethodGet, path: path, header: map[string]string{"Authorization": ""}}); a.status != http.StatusOK || a.body != want {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// A page in a browser can reach a server on this machine, under a name of its own or by a request across origins. Neither does
// anything.
func TestDevAnswersToNoPage(t *testing.T) {
	s := startWith(t, true)
	s.app("shop", apptest.On("echo", echo))
	for _, host := range []string{"evil.example", "evil.example:6355", "127.0.0.1.evil.example", "localhost.evil.example", "169.254.169.254", "[fe80::1]:80", "0.0.0.0:6355", "192.168.1.5", "127.0.0.1@evil.example"} {
		s.do(raw{method: http.MethodGet, path: "/v1/runs", header: map[string]string{"Host": host}}).problem(t, http.StatusForbidden, "host_not_allowed")
	}
	for _, host := range []string{"localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.2:80", "[::1]:80", "[::1]"} {
		if a := s.do(raw{method: http.MethodGet, path: "/v1/runs", header: map[string]string{"Host": host}}); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", host, a.status, a.body)
		}
	}
	start := raw{method: http.MethodPost, path: "/v1/runs", body: `{"workflow":"echo"}`}
	for name, header := range map[string]map[string]string{
		"another origin": {"Origin": "https://evil.example"}, "another port": {"Origin": "http://localhost:3000"}, "no origin": {"Origin": "null"},
		"another site": {"Sec-Fetch-Site": "cross-site"}, "the same site": {"Sec-Fetch-Site": "same-site"},
	} {
		t.Run(name, func(t *testing.T) {
			start.header = header
			s.do(start).problem(t, http.StatusForbidden, "cross_origin")
		})
	}
	start.header = map[string]string{"Origin": s.url}
	decode[apitype.StartedRun](t, s.do(start), http.StatusCreated)
	if list, err := s.Runs(t.Context(), client.RunQuery{}); err != nil || len(list.Data) != 1 {
		t.Errorf("%d runs, %v", len(list.Data), err)
	}
}

func TestASilentServerOfProductionIsReachedByAnyName(t *testing.T) {
	s := start(t)
	if a := s.do(raw{method: http.MethodGet, path: "/v1/runs", header: map[string]string{"Host": "nelkap.example.com"}}); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.do(raw{method: http.MethodPost, path: "/v1/runs", body: `{}`, header: map[string]string{"Origin": "https://evil.example"}}).problem(t, http.StatusForbidden, "cross_origin")
}
