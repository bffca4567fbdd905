package httpapi_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/httpapi"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
)

// heldApp is an app without a network: it holds every call, and shows the first one.
type heldApp struct {
	first chan wire.Call
}

func (a *heldApp) Describe(context.Context, call.Target) (*wire.Manifest, call.Outcome) {
	m := wire.Manifest{App: "shop", Protocol: wire.Version, Hash: "h", Workflows: []wire.Workflow{
		{Name: "w", Triggers: []wire.Trigger{{Event: "order.paid"}}}, {Name: "hook", Triggers: []wire.Trigger{{Event: "webhook.stripe"}}},
	}}
	return &m, call.Outcome{Kind: call.Answered}
}

func (a *heldApp) Verify(context.Context, call.Target, wire.Verify) (*wire.Verified, call.Outcome) {
	return &wire.Verified{Type: "verified"}, call.Outcome{Kind: call.Answered}
}

func (a *heldApp) Do(ctx context.Context, r call.Request) call.Outcome {
	r.Sent()
	var c wire.Call
	if err := wire.Decode(r.Body, &c); err == nil {
		select {
		case a.first <- c:
		default:
		}
	}
	<-ctx.Done()
	return call.Outcome{Kind: call.Ended, Err: ctx.Err()}
}

// fuzzed is a server whose handler is called without a socket. Its engine has one run in a call, at which words in a request stand:
// $RUN, $CALL and $TOKEN.
type fuzzed struct {
	handler http.Handler
	reader  store.Reader
	words   *strings.Replacer
	used    int
	stop    func()
}

// usesMax is after how many requests a server is made anew: each may leave something in its memory.
const usesMax = 2_000

func newFuzzed(t testing.TB) *fuzzed {
	kept, app := memory.New(), &heldApp{first: make(chan wire.Call, 1)}
	e := engine.New(kept, app, engine.Options{URL: "http://127.0.0.1:1"})
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- e.Run(ctx, func() { close(ready) }) }()
	<-ready
	s := &fuzzed{handler: httpapi.New(httpapi.Options{Engine: e, Reader: kept, Hooks: hooks(t), Version: "test"}), reader: kept, stop: func() { cancel(); <-ended }}
	if _, err := e.PutApp(ctx, engine.DefaultEnv, engine.AppRequest{URL: "http://shop.test/api/nelkap"}, true); err != nil {
		t.Fatal(err)
	}
	if _, err := e.StartRun(ctx, engine.StartRequest{Env: engine.DefaultEnv, Workflow: "w"}); err != nil {
		t.Fatal(err)
	}
	c := <-app.first
	s.ask(http.MethodPost, "/hooks/github", "", http.Header{}, []byte(`{"action":"opened"}`)) // rejected: it has no signature
	kinds, err := kept.Deliveries(ctx, store.DeliveryQuery{Env: engine.DefaultEnv, Limit: 1})
	if err != nil || len(kinds) != 1 {
		t.Fatalf("%+v, %v", kinds, err)
	}
	s.words = strings.NewReplacer("$DELIVERY", kinds[0].ID, "$RUN", c.Run.ID, "$CALL", c.Call.ID, "$TOKEN", c.Call.Token)
	return s
}

var (
	fuzzing sync.Mutex
	current *fuzzed
)

// fuzzedServer lends the server of this process; one target runs at a time.
func fuzzedServer(t testing.TB) *fuzzed {
	fuzzing.Lock()
	t.Cleanup(fuzzing.Unlock)
	if current != nil && current.used >= usesMax {
		current.stop()
		current = nil
	}
	if current == nil {
		current = newFuzzed(t)
	}
	current.used++
	return current
}

// stopAfter stops the last server when a target is done.
func stopAfter(f *testing.F) {
	f.Cleanup(func() {
		if current != nil {
			current.stop()
			current = nil
		}
	})
}

// ask sends one request, and ends it after a moment, since polls and waits are held.
func (s *fuzzed) ask(method, path, query string, header http.Header, body []byte) *httptest.ResponseRecorder {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer time.AfterFunc(20*time.Millisecond, cancel).Stop()
	r := httptest.NewRequestWithContext(ctx, method, "/", bytes.NewReader(body))
	r.URL = &url.URL{Path: path, RawQuery: query}
	r.Header = header
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// checkAnswer: an answer is JSON, or a problem in all its parts. The server never fails.
func checkAnswer(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	switch {
	case w.Code >= 500 || w.Code < 200:
		t.Fatalf("answered %d: %s", w.Code, w.Body)
	case w.Code >= 400:
		var p apitype.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Fatalf("status %d, and no problem: %q (%v)", w.Code, w.Body, err)
		}
		if p.Status != w.Code || p.Code == "" || p.Code == "internal" || p.Type == "" || p.Detail == "" || p.RequestID == "" || !utf8.ValidString(p.Detail) {
			t.Fatalf("status %d, and a part is missing: %+v", w.Code, p)
		}
	case w.Code < 300 && !json.Valid(w.Body.Bytes()):
		t.Fatalf("status %d, and no JSON: %q", w.Code, w.Body)
	}
}

// FuzzAPI: whatever a client sends to the API, it gets an answer that it can read.
func FuzzAPI(f *testing.F) {
	stopAfter(f)
	for _, seed := range []struct{ method, path, query, key, body string }{
		{"POST", "/v1/runs", "", "", `{"workflow":"w","payload":{"a":[1,"\ud800",1e400]}}`},
		{"POST", "/v1/runs", "waitMs=5", "again", `{"workflow":"w","key":"k","keyForMs":1}`},
		{"POST", "/v1/runs", "", "", `{"workflow":"w","id":"$RUN"}`},
		{"POST", "/v1/runs", "waitMs=-1", "", `{"workflow":"w","id":"run_","app":"shop","payload":null,"nope":1}`},
		{"POST", "/v1/runs", "", "", `{"workflow":"w","send":{"call":"$CALL","token":"$TOKEN","nonce":"n","step":{"name":"s","number":1},"place":0}}`},
		{"POST", "/v1/events", "", "", `{"event":"order.paid","payload":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`},
		{"POST", "/v1/events", "", "k", `[{"event":"order.paid","id":"\u0000"},{"event":"order.paid","id":"\u0000"}]`},
		{"POST", "/v1/events", "", "", `[]`},
		{"POST", "/v1/events", "", "", "{\"event\":\"\xff\"}"},
		{"GET", "/v1/runs", "limit=2&cursor=cnVuXw&status=running&workflow=w", "", ""},
		{"GET", "/v1/runs", "limit=101&status=%zz", "", ""},
		{"GET", "/v1/events", "cursor=" + base64.RawURLEncoding.EncodeToString([]byte("9223372036854775808")), "", ""},
		{"GET", "/v1/events", "cursor=-1&limit=1", "", ""},
		{"GET", "/v1/runs/$RUN", "waitMs=30000", "", ""},
		{"GET", "/v1/runs/$RUN/steps", "cursor=" + base64.RawURLEncoding.EncodeToString([]byte("-9223372036854775808")), "", ""},
		{"POST", "/v1/runs/$RUN/replay", "", "r", `{"id":""}`},
		{"POST", "/v1/runs/$RUN/cancel", "", "", ""},
		{"PUT", "/v1/apps", "", "", `{"url":"http://%zz","concurrency":0}`},
		{"PUT", "/v1/apps", "", "", `{"url":"http://shop.test/api/nelkap","concurrency":10000}`},
		{"GET", "/v1/workflows", "app=shop&app=x", "", ""},
		{"GET", "/v1/calls/$CALL/steps", "after=-1", "", ""},
		{"GET", "/v1/deliveries", "limit=1&status=rejected&hook=github", "", ""},
		{"GET", "/v1/deliveries", "cursor=" + base64.RawURLEncoding.EncodeToString([]byte("x")), "", ""},
		{"GET", "/v1/deliveries/$DELIVERY", "", "", ""},
		{"POST", "/v1/deliveries/$DELIVERY/redeliver", "", "k", `{"unverified":true}`},
		{"POST", "/v1/deliveries/$DELIVERY/redeliver", "", "", `{"id":"dlv_"}`},
		{"POST", "/hooks/github", "", "", `{"action":"opened"}`},
		{"DELETE", "/v1/runs/../../%2e%2e", "", "", ""},
		{"TRACE", "/healthz", ";", "", ""},
	} {
		f.Add(seed.method, seed.path, seed.query, seed.key, []byte(seed.body))
	}
	f.Fuzz(func(t *testing.T, method, path, query, key string, body []byte) {
		s := fuzzedServer(t)
		if !strings.HasPrefix(path, "/") || !token(method) || method == http.MethodConnect {
			return // the HTTP server lets no such request in
		}
		header := http.Header{"Content-Type": {"application/json"}}
		if key != "" {
			header.Set("Idempotency-Key", key)
		}
		for name, value := range map[string]string{wire.HeaderToken: "$TOKEN", wire.HeaderNonce: "n"} {
			header.Set(name, s.words.Replace(value))
		}
		w := s.ask(method, s.words.Replace(path), query, header, []byte(s.words.Replace(string(body))))
		checkAnswer(t, w)
		next := struct{ NextCursor string }{}
		if w.Code == http.StatusOK && method == http.MethodGet && json.Unmarshal(w.Body.Bytes(), &next) == nil && next.NextCursor != "" {
			if w := s.ask(method, s.words.Replace(path), "cursor="+next.NextCursor, header, nil); w.Code != http.StatusOK {
				t.Errorf("the next page is refused: %s", w.Body)
			}
		}
	})
}

// token tells whether text may be an HTTP method.
func token(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r < 'A' || r > 'Z' })
}

// FuzzMessages: whatever an app sends, each of its saves, ends and calls gets an outcome of its own, in order, or the request is refused
// as a whole with a sentence (N3).
func FuzzMessages(f *testing.F) {
	stopAfter(f)
	const fence = `"call":"$CALL","token":"$TOKEN","nonce":"n"`
	for _, seed := range []struct {
		kind int
		body string
	}{
		{0, `{"process":"p","saves":[{` + fence + `,"seen":0,"items":[{"op":"completed","kind":"run","name":"a","number":1,"attempt":1,"output":"\ud800"}]}]}`},
		{0, `{"process":"p","saves":[{` + fence + `,"seen":9223372036854775807,"items":[{"op":"failed","kind":"run","name":"b","number":2,"attempt":9223372036854775807,"error":{"name":"E","message":"m"},"retriable":true,"retries":9,"retryAfterMs":9223372036854775807}]}]}`},
		{0, `{"process":"p","saves":[{` + fence + `,"seen":-9223372036854775808,"items":[{"op":"start","kind":"run","name":"a","number":1,"attempt":1},{"op":"jump"}]},{"call":"c"},{` + fence + `,"items":null}]}`},
		{0, `{"process":"","saves":[]}`},
		{0, `{"process":"p","saves":[{` + fence + `,"seen":0,"items":[{"op":"completed","kind":"run","name":"c","number":1,"attempt":1,"startedAt":"0000-01-01T00:00:00Z","endedAt":"9999-12-31T23:59:59.999Z"}]}]}`},
		{1, `{"process":"p","ends":[{` + fence + `,"end":{"type":"yielded","seen":-1}}]}`},
		{1, `{"process":"p","ends":[{` + fence + `,"end":{"type":"suspended","waits":[{},{"retry":{"name":"x","number":0}}],"unsaved":[{"op":"completed","kind":"run","name":"z","number":1,"attempt":1}]}},{"end":{"type":"what"}}]}`},
		{1, `{"process":"p","ends":[{` + fence + `,"end":{"type":"failed","retriable":true,"retries":-5,"retryAfterMs":-1}}]}`},
		{2, `{"process":"p","calls":[{` + fence + `},{}],"waitMs":-1}`},
		{2, `{"process":"p","calls":null,"waitMs":9223372036854775807}`},
	} {
		f.Add(seed.kind, []byte(seed.body))
	}
	f.Fuzz(func(t *testing.T, kind int, body []byte) {
		s := fuzzedServer(t)
		path := []string{"/v1/saves", "/v1/ends", "/v1/heartbeats"}[((kind%3)+3)%3]
		body = []byte(s.words.Replace(string(body)))
		w := s.ask(http.MethodPost, path, "", http.Header{"Content-Type": {"application/json"}}, body)
		checkAnswer(t, w)
		if w.Code != http.StatusOK {
			return
		}
		switch path {
		case "/v1/saves":
			sameNumber(t, body, w.Body.Bytes(), func(m wire.Saves) int { return len(m.Saves) }, func(a wire.SavesAnswer) int { return len(a.Saves) })
		case "/v1/ends":
			sameNumber(t, body, w.Body.Bytes(), func(m wire.Ends) int { return len(m.Ends) }, func(a wire.EndsAnswer) int { return len(a.Ends) })
		}
		entriesHaveNoGaps(t, s)
	})
}

func sameNumber[M, A any](t *testing.T, body, text []byte, asked func(M) int, answered func(A) int) {
	var m M
	var a A
	if err := wire.Decode(body, &m); err != nil {
		t.Fatal(err)
	}
	if err := wire.Decode(text, &a); err != nil {
		t.Fatal(err)
	}
	if asked(m) != answered(a) {
		t.Errorf("%d were sent, and %d are answered: %s", asked(m), answered(a), text)
	}
}

// entriesHaveNoGaps reads the history of the run that messages are about (W9, W1).
func entriesHaveNoGaps(t *testing.T, s *fuzzed) {
	entries, err := s.reader.Entries(t.Context(), store.EntryQuery{RunID: s.words.Replace("$RUN"), EntriesMax: wire.StepsMax, BytesMax: wire.RunBytesMax})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, e := range entries {
		step, err := json.Marshal([]any{e.Name, e.Number})
		if err != nil {
			t.Fatal(err)
		}
		if e.Entry != int64(i+1) || seen[string(step)] {
			t.Fatalf("entry %d of the history is %+v", i+1, e)
		}
		seen[string(step)] = true
	}
}

// FuzzHook: a webhook is stored as it came, whatever it is, and its secrets are not.
func FuzzHook(f *testing.F) {
	stopAfter(f)
	for _, seed := range []struct{ name, query, contentType, body string }{
		{"stripe", "a=1&a=2&%ff=%ff", "application/json", `{"type":"paid"}`},
		{"stripe", "", "text/plain", "\xff\xfe not text"},
		{"x", ";&=", "application/json", strings.Repeat("[", 300) + strings.Repeat("]", 300)},
		{"é%2f", "", "", "\x00"},
		{strings.Repeat("n", 260), "", "", ""},
		{"json", "", "application/json", `{"a":1} {"b":2}`},
	} {
		f.Add(seed.name, seed.query, seed.contentType, []byte(seed.body))
	}
	f.Fuzz(func(t *testing.T, name, query, contentType string, body []byte) {
		s := fuzzedServer(t)
		w := s.ask(http.MethodPost, "/hooks/"+name, query, http.Header{"Content-Type": {contentType}, "Authorization": {"canary-secret"}, "Cookie": {"canary-secret"}}, body)
		checkAnswer(t, w)
		if w.Code != http.StatusOK {
			return
		}
		var emitted apitype.EmittedEvent
		if err := json.Unmarshal(w.Body.Bytes(), &emitted); err != nil {
			t.Fatal(err)
		}
		event, err := s.reader.Event(t.Context(), engine.DefaultEnv, emitted.Event.Event, emitted.ID)
		if err != nil {
			t.Fatalf("%q is acknowledged and not stored: %v", emitted.Event.Event, err)
		}
		var p struct {
			Body, BodyBase64 string
			JSON             json.RawMessage
		}
		if err := json.Unmarshal(event.Payload, &p); err != nil {
			t.Fatal(err)
		}
		got := []byte(p.Body)
		if p.BodyBase64 != "" {
			if got, err = base64.StdEncoding.DecodeString(p.BodyBase64); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, body) {
			t.Errorf("%q is stored as %q", body, got)
		}
		if p.JSON != nil && wire.Depth(p.JSON) > wire.DepthMax {
			t.Error("JSON is kept that is nested too deep to be read")
		}
		if bytes.Contains(event.Payload, []byte("canary-secret")) && !bytes.Contains(body, []byte("canary-secret")) {
			t.Error("a secret is stored")
		}
	})
}
