package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/apptest"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/httpapi"
	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
)

const mebi = 1 << 20

// text is a JSON text of a number of bytes.
func text(bytes int) string { return `"` + strings.Repeat("x", bytes-2) + `"` }

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

func TestBadRequestsAreRefusedWithWhatToDo(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("echo", echo))
	run := s.start(client.StartRun{Workflow: "echo"}).ID
	for name, c := range map[string]struct {
		path, body string
		status     int
		code       string
	}{
		"malformed":                   {"/v1/runs", `{"workflow":`, 400, "bad_request"},
		"something behind":            {"/v1/runs", `{"workflow":"echo"} x`, 400, "bad_request"},
		"two values":                  {"/v1/runs", `{"workflow":"echo"}{"workflow":"echo"}`, 400, "bad_request"},
		"not UTF-8":                   {"/v1/runs", "{\"workflow\":\"echo\",\"payload\":\"\xff\"}", 400, "bad_request"},
		"half a character in a key":   {"/v1/runs", `{"workflow":"echo","key":"a\ud83d"}`, 400, "bad_request"},
		"half a character in a name":  {"/v1/events", `{"event":"\udc00"}`, 400, "bad_request"},
		"half a character in an id":   {"/v1/events", `[{"event":"a","id":"a"},{"event":"a","id":"a\ud83d"}]`, 400, "bad_request"},
		"no body":                     {"/v1/runs", ``, 400, "bad_request"},
		"an array":                    {"/v1/runs", `[]`, 422, "invalid"},
		"no workflow":                 {"/v1/runs", `{}`, 422, "invalid"},
		"an empty workflow":           {"/v1/runs", `{"workflow":""}`, 422, "invalid"},
		"a workflow of another type":  {"/v1/runs", `{"workflow":1}`, 422, "invalid"},
		"an unknown field":            {"/v1/runs", `{"workflow":"echo","paylod":1}`, 422, "invalid"},
		"a field in another case":     {"/v1/runs", `{"workflow":"echo","Payload":1}`, 422, "invalid"},
		"a long key":                  {"/v1/runs", `{"workflow":"echo","key":` + text(600) + `}`, 422, "invalid"},
		"an empty key":                {"/v1/runs", `{"workflow":"echo","key":""}`, 422, "invalid"},
		"a life of no key":            {"/v1/runs", `{"workflow":"echo","keyForMs":1}`, 422, "invalid"},
		"an empty id":                 {"/v1/runs", `{"workflow":"echo","id":""}`, 422, "invalid"},
		"a negative life of the key":  {"/v1/runs", `{"workflow":"echo","key":"k","keyForMs":-1}`, 422, "invalid"},
		"a life past all durations":   {"/v1/runs", `{"workflow":"echo","key":"k","keyForMs":18446744073710}`, 422, "invalid"},
		"a payload too large":         {"/v1/runs", `{"workflow":"echo","payload":` + text(4*mebi+1) + `}`, 413, "payload_too_large"},
		"a body too large":            {"/v1/runs", `{"workflow":"echo","payload":` + text(5*mebi) + `}`, 413, "body_too_large"},
		"a payload too deep":          {"/v1/runs", `{"workflow":"echo","payload":` + nested(201) + `}`, 422, "payload_too_deep"},
		"a payload deep past parsing": {"/v1/runs", `{"workflow":"echo","payload":` + nested(20_000) + `}`, 400, "bad_request"},
		"replay: an unknown field":    {"/v1/runs/" + run + "/replay", `{"form":"x"}`, 422, "invalid"},
		"replay: an empty id":         {"/v1/runs/" + run + "/replay", `{"id":""}`, 422, "invalid"},
		"replay: an empty step":       {"/v1/runs/" + run + "/replay", `{"from":""}`, 422, "invalid"},
		"replay: a payload too large": {"/v1/runs/" + run + "/replay", `{"payload":` + text(4*mebi+1) + `}`, 413, "payload_too_large"},
		"replay: malformed":           {"/v1/runs/" + run + "/replay", `{`, 400, "bad_request"},
		"event: malformed":            {"/v1/events", `{"event":`, 400, "bad_request"},
		"event: something behind":     {"/v1/events", `{"event":"a"} x`, 400, "bad_request"},
		"event: not UTF-8":            {"/v1/events", "{\"event\":\"a\",\"payload\":\"\xff\"}", 400, "bad_request"},
		"event: no body":              {"/v1/events", ``, 400, "bad_request"},
		"event: of another type":      {"/v1/events", `"a"`, 400, "bad_request"},
		"event: no name":              {"/v1/events", `{}`, 422, "invalid"},
		"event: an unknown field":     {"/v1/events", `{"event":"a","at":"2030-01-01T00:00:00Z"}`, 422, "invalid"},
		"event: an empty id":          {"/v1/events", `{"event":"a","id":""}`, 422, "invalid"},
		"event: too large":            {"/v1/events", `{"event":"a","payload":` + text(mebi+1) + `}`, 413, "payload_too_large"},
		"event: a body too large":     {"/v1/events", `{"event":"a","payload":` + text(9*mebi) + `}`, 413, "body_too_large"},
		"event: too deep":             {"/v1/events", `{"event":"a","payload":` + nested(201) + `}`, 422, "payload_too_deep"},
	} {
		t.Run(name, func(t *testing.T) {
			p := s.do(raw{method: http.MethodPost, path: c.path, body: c.body, header: map[string]string{"Content-Type": "application/json"}}).problem(t, c.status, c.code)
			if c.status == http.StatusRequestEntityTooLarge && !strings.Contains(p.Detail, "send a reference") {
				t.Errorf("it does not say what to do: %s", p.Detail)
			}
		})
	}
	for _, body := range []string{`{"workflow":"echo","payload":` + text(4*mebi) + `}`, `{"workflow":"echo","payload":` + nested(200) + `}`} {
		decode[apitype.StartedRun](t, s.post("/v1/runs", body), http.StatusCreated)
	}
	decode[apitype.StartedRun](t, s.post("/v1/runs/"+run+"/replay", `{"payload":`+text(4*mebi)+`}`), http.StatusCreated)
	decode[apitype.EmittedEvent](t, s.post("/v1/events", `{"event":"a","payload":`+text(mebi)+`}`), http.StatusOK)
}

func TestAnotherContentTypeIsRefused(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("echo", echo))
	for path, body := range map[string]string{"/v1/runs": `{"workflow":"echo"}`, "/v1/events": `{"event":"a"}`} {
		for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml"} {
			p := s.do(raw{method: http.MethodPost, path: path, body: body, header: map[string]string{"Content-Type": kind}}).problem(t, http.StatusUnsupportedMediaType, "bad_content_type")
			if !strings.Contains(p.Detail, "Content-Type: application/json") {
				t.Errorf("%s does not say what to send: %s", path, p.Detail)
			}
		}
		if a := s.do(raw{method: http.MethodPost, path: path, body: body, header: map[string]string{"Content-Type": "application/json; charset=utf-8"}}); a.status >= 300 {
			t.Errorf("%s with a charset: %d %s", path, a.status, a.body)
		}
	}
	s.do(raw{method: http.MethodPost, path: "/v1/runs", body: "\x1f\x8b", header: map[string]string{"Content-Encoding": "gzip"}}).problem(t, http.StatusBadRequest, "bad_request")
}

func TestAnUnknownFieldOfAnEventIsNamed(t *testing.T) {
	s := start(t)
	for body, want := range map[string]string{`{"event":"a","paylod":1}`: "/paylod", `[{"event":"a"},{"event":"b","until":"x"}]`: "/1/until"} {
		p := s.post("/v1/events", body).problem(t, http.StatusUnprocessableEntity, "invalid")
		if !strings.Contains(p.Detail, want) || strings.Contains(p.Detail, "httpapi") {
			t.Errorf("%s is refused with %s", body, p.Detail)
		}
	}
}

func TestAnEventOfAnotherShapeIsRefusedInTheWordsOfTheAPI(t *testing.T) {
	s := start(t)
	for body, want := range map[string]string{
		`"a"`:                    "the body is a JSON string",
		`[1]`:                    "/0 is a JSON number",
		`{"event":5}`:            "/event is a JSON number",
		`{"event":"a","id":[]}`:  "/id is a JSON [",
		`{"event":"a","at":"x"}`: "/at is no time: give one such as 2027-01-31T09:00:00Z",
		`{"event":"a","at":"+010000-01-01T00:00:00.000Z"}`: "/at is no time",
		`{"event":"a","at":5}`:                             "/at is a JSON number",
		`{"event":"a","id":"\ud83d"}`:                      "half a character, a surrogate without the other one, in /id",
	} {
		p := s.post("/v1/events", body).problem(t, http.StatusBadRequest, "bad_request")
		if !strings.Contains(p.Detail, want) || strings.Contains(p.Detail, "Go ") {
			t.Errorf("%s is refused with %s", body, p.Detail)
		}
	}
}

func TestAMisspeltFilterIsRefused(t *testing.T) {
	s := start(t)
	for _, path := range []string{"/v1/runs?staus=failed", "/v1/events?name=a", "/v1/workflows?apps=x"} {
		s.do(raw{method: http.MethodGet, path: path}).problem(t, http.StatusUnprocessableEntity, "invalid")
	}
}

// A payload that is posted without what belongs around it may have any number of fields, none of which is known: what is said of them is
// bounded, and so is the work.
func TestABodyOfManyUnknownFieldsIsRefusedInShort(t *testing.T) {
	s := start(t)
	var fields strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&fields, `"sku-%d":%d,`, i, i)
	}
	some, _, _ := strings.Cut(fields.String(), `"sku-50"`)
	for _, body := range []string{`{"workflow":"echo",` + fields.String() + `"z":1}`, `{"workflow":"echo",` + some + `"z":1}`} {
		for _, path := range []string{"/v1/runs", "/v1/runs/x/replay", "/v1/events"} {
			if a := s.post(path, body); a.status < 400 || a.status >= 500 || len(a.body) > 4<<10 {
				t.Errorf("%s: %d with %d bytes: %.200s", path, a.status, len(a.body), a.body)
			}
		}
	}
	query := "?" + strings.ReplaceAll(strings.ReplaceAll(fields.String()[:20_000], `"`, ""), ",", "&")
	if a := s.do(raw{method: http.MethodGet, path: "/v1/runs" + strings.ReplaceAll(query, ":", "=") + "z=1"}); a.status != http.StatusUnprocessableEntity || len(a.body) > 4<<10 {
		t.Errorf("%d with %d bytes", a.status, len(a.body))
	}
}

// Nobody makes Go values of a payload's parts, which would take fifty times its bytes. What is counted is all that this process allocates
// meanwhile, client and app included, for a mebibyte.
func TestAPayloadOfManyValuesTakesLittleMemory(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("echo", echo))
	many := `[` + strings.Repeat(`{},`, mebi/3) + `{}]`
	for body, status := range map[string]int{`{"workflow":"echo","payload":` + many + `}`: http.StatusCreated, many: http.StatusUnprocessableEntity, `{"workflow":` + many + `}`: http.StatusUnprocessableEntity} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a := s.post("/v1/runs", body)
		runtime.ReadMemStats(&after)
		if took := (after.TotalAlloc - before.TotalAlloc) / mebi; a.status != status || took > 60 {
			t.Errorf("%.20s…: %d, and %d MiB were taken", body, a.status, took)
		}
	}
}

// Rule K6.
func TestAnIdempotencyKey(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("echo", echo, "order.paid"))
	send := func(path, body, key string) answer {
		return s.do(raw{method: http.MethodPost, path: path, body: body, header: map[string]string{"Idempotency-Key": key}})
	}
	first := send("/v1/runs", `{"workflow":"echo","payload":{"a":1}}`, "k1")
	run := decode[apitype.StartedRun](t, first, http.StatusCreated)
	if first.header.Get("Idempotent-Replayed") != "" {
		t.Error("the first is marked as replayed")
	}
	second := send("/v1/runs", `{"workflow":"echo","payload":{ "a":1 }}`, "k1")
	if again := decode[apitype.StartedRun](t, second, http.StatusCreated); again.ID != run.ID || !again.Created || second.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%+v, %v", again, second.header)
	}
	send("/v1/runs", `{"workflow":"echo","payload":{"a":2}}`, "k1").problem(t, http.StatusUnprocessableEntity, "idempotency_key_reused")
	send("/v1/runs", `{"workflow":"echo"}`, strings.Repeat("k", 513)).problem(t, http.StatusUnprocessableEntity, "invalid")
	for _, path := range []string{"/v1/runs", "/v1/events", "/v1/runs/" + run.ID + "/replay"} {
		s.empty(t, path).problem(t, http.StatusUnprocessableEntity, "invalid")
	}

	for _, body := range []string{`{"event":"order.paid"}`, `[{"event":"order.paid"},{"event":"b"}]`} {
		one, two := send("/v1/events", body, body), send("/v1/events", body, body)
		if one.status != http.StatusOK || one.body != two.body || two.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s\n%s %v", one.body, two.body, two.header)
		}
	}
	send("/v1/events", `{"event":"other"}`, `{"event":"order.paid"}`).problem(t, http.StatusUnprocessableEntity, "idempotency_key_reused")

	replay := "/v1/runs/" + run.ID + "/replay"
	one := decode[apitype.StartedRun](t, send(replay, "", "k1"), http.StatusCreated) // a key is of one path
	if two := decode[apitype.StartedRun](t, send(replay, "", "k1"), http.StatusCreated); two.ID != one.ID || one.ID == run.ID {
		t.Errorf("%s %s %s", run.ID, one.ID, two.ID)
	}
	list, err := s.Runs(t.Context(), client.RunQuery{})
	if err != nil || len(list.Data) != 4 { // one run, two by events, one replay
		t.Errorf("%d runs, %v", len(list.Data), err)
	}
}

// empty sends a request whose Idempotency-Key is there, and empty.
func (s *server) empty(t *testing.T, path string) answer {
	t.Helper()
	body := map[string]string{"/v1/runs": `{"workflow":"echo"}`, "/v1/events": `{"event":"order.paid"}`}[path]
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = http.Header{"Authorization": {"Bearer " + apiKey}, "Content-Type": {"application/json"}, "Idempotency-Key": {""}}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(text)}
}

func TestARequestHasAnID(t *testing.T) {
	s := start(t)
	path := "/v1/runs/" + id.New(id.Run)
	mine := s.do(raw{method: http.MethodGet, path: path, header: map[string]string{"X-Request-Id": "mine-1"}})
	if p := mine.problem(t, http.StatusNotFound, "not_found"); p.RequestID != "mine-1" {
		t.Errorf("%+v", p)
	}
	for _, bad := range []string{strings.Repeat("x", 129), "a b", "é"} {
		a := s.do(raw{method: http.MethodGet, path: path, header: map[string]string{"X-Request-Id": bad}})
		if p := a.problem(t, http.StatusNotFound, "not_found"); p.RequestID == bad {
			t.Errorf("%q was taken over", bad)
		}
	}
	if s.do(raw{method: http.MethodGet, path: "/healthz"}).header.Get("X-Request-Id") == "" {
		t.Error("an answer that is no problem has none")
	}
}

// failing is a store whose commits end as a test says.
type failing struct {
	store.Store
	err atomic.Pointer[error] // nil: they work
}

func (f *failing) Commit(ctx context.Context, changes []store.Change) ([]store.Result, error) {
	if err := f.err.Load(); err != nil {
		return nil, *err
	}
	return f.Store.Commit(ctx, changes)
}

func TestARequestWhoseOutcomeNobodyKnowsIsSafeToSendAgain(t *testing.T) {
	kept := &failing{Store: memory.New()}
	s := startOn(t, kept, false)
	s.app("shop", apptest.On("echo", echo))
	unknown := fmt.Errorf("disk: %w", store.ErrUnknown)
	kept.err.Store(&unknown)
	for path, body := range map[string]string{"/v1/runs": `{"workflow":"echo"}`, "/v1/events": `{"event":"paid"}`} {
		a := s.do(raw{method: http.MethodPost, path: path, body: body})
		a.problem(t, http.StatusServiceUnavailable, "outcome_unknown")
		if a.header.Get("Retry-After") == "" || strings.Contains(a.body, "disk") {
			t.Errorf("%s: Retry-After %q, %s", path, a.header.Get("Retry-After"), a.body)
		}
	}
}

// rowLocked is a store of which somebody has locked whatever is to be written.
type rowLocked struct {
	store.Store
	is atomic.Bool
}

func (r *rowLocked) Commit(ctx context.Context, changes []store.Change) ([]store.Result, error) {
	if !r.is.Load() {
		return r.Store.Commit(ctx, changes)
	}
	results := make([]store.Result, len(changes))
	for i := range results {
		results[i].Err = fmt.Errorf("run run_canary: %w", store.ErrRowLocked)
	}
	return results, nil
}

// Who asks for what somebody at the database holds up is told so, and when to ask again; whose run or key it is stands in the log alone.
func TestWhatSomebodyHasLockedIsSaid(t *testing.T) {
	kept := &rowLocked{Store: memory.New()}
	s := startOn(t, kept, false)
	s.app("shop", apptest.On("echo", echo))
	kept.is.Store(true)
	a := s.post("/v1/runs", `{"workflow":"echo"}`)
	a.problem(t, http.StatusServiceUnavailable, "store_unavailable")
	if a.header.Get("Retry-After") == "" || strings.Contains(a.body, "canary") || !strings.Contains(a.body, "pg_stat_activity") {
		t.Errorf("Retry-After %q, %s", a.header.Get("Retry-After"), a.body)
	}
}

// unreadable is a store whose records can't be read while it is away.
type unreadable struct {
	store.Store
	away atomic.Bool
}

func (u *unreadable) Record(ctx context.Context, env, runID string) (store.RunRecord, error) {
	if u.away.Load() {
		return store.RunRecord{}, fmt.Errorf("dial: %w", store.ErrUnavailable)
	}
	return u.Store.Record(ctx, env, runID)
}

// A run that is stored is answered as started, whatever becomes of the wait for its end: told that the store is away, who has no key would
// start it again.
func TestAStartWhoseWaitFailsIsAnsweredAsStarted(t *testing.T) {
	kept := &unreadable{Store: memory.New()}
	s := startOn(t, kept, false)
	h := newHeld()
	s.app("shop", apptest.On("held", h.play))
	kept.away.Store(true)
	a := s.post("/v1/runs?waitMs=1", `{"workflow":"held"}`)
	kept.away.Store(false)
	list, err := s.Runs(t.Context(), client.RunQuery{})
	if err != nil || len(list.Data) != 1 {
		t.Fatalf("%d runs, %v", len(list.Data), err)
	}
	h.await(t)
	h.release <- apptest.Completed(nil)
	s.ended(list.Data[0].ID)
	if started := decode[apitype.StartedRun](t, a, http.StatusCreated); started.ID != list.Data[0].ID || !started.Created {
		t.Errorf("%+v, and there is %s", started, list.Data[0].ID)
	}
}

// A value in the store that is no JSON is a fault of the server's. A run that has one is shown, and so is the page that it is on.
func TestARunWithAValueThatIsNoJSONIsShown(t *testing.T) {
	kept := memory.New()
	s := startOn(t, kept, false)
	s.app("shop", apptest.On("echo", echo))
	good := s.ended(s.start(client.StartRun{Workflow: "echo", Payload: []byte(`{"a":1}`)}).ID)
	record, err := kept.Record(t.Context(), engine.DefaultEnv, good.ID)
	if err != nil {
		t.Fatal(err)
	}
	bad := record.Run
	bad.ID, bad.Version = id.New(id.Run), 1
	if _, err := kept.Commit(t.Context(), []store.Change{{store.InsertRun{Run: bad, Payload: []byte(`{"a":`)}}}); err != nil {
		t.Fatal(err)
	}
	list, err := s.Runs(t.Context(), client.RunQuery{})
	if err != nil || len(list.Data) != 2 {
		t.Fatalf("%d runs, %v", len(list.Data), err)
	}
	if list.Data[0].ID != bad.ID || string(list.Data[0].Payload) != "null" || string(list.Data[1].Payload) != `{"a":1}` {
		t.Errorf("%+v", list.Data)
	}
	if !strings.Contains(s.log.String(), "a stored value of a run is no JSON") {
		t.Error("the log says nothing of it")
	}
}

// broken is a store whose events can't be written as an answer.
type broken struct{ store.Store }

func (broken) Events(context.Context, store.EventQuery) ([]store.Event, error) {
	return []store.Event{{Name: "paid", Payload: []byte(`{"a":`)}}, nil
}

// An answer that breaks once it has begun is broken off: it must not look whole.
func TestAnAnswerThatBreaksIsBrokenOff(t *testing.T) {
	kept := memory.New()
	s := startOn(t, kept, false)
	api := httptest.NewServer(httpapi.New(httpapi.Options{Engine: s.engine, Reader: broken{kept}, Dev: true}))
	defer api.Close()
	response, err := api.Client().Get(api.URL + "/v1/events")
	if err == nil {
		defer response.Body.Close()
		text, readErr := io.ReadAll(response.Body)
		if readErr == nil {
			t.Errorf("it looks whole: %d %s", response.StatusCode, text)
		}
	}
}

// A filter that is empty, as a shell's unset variable leaves it, that can't be read, or is there twice, must not be left out without a word: the list would be of other runs than were asked for.
func TestAFilterThatCantBeReadIsRefused(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("echo", echo))
	for _, key := range []string{"50%", "a;b", "a+b", "ü"} {
		s.start(client.StartRun{Workflow: "echo", Key: key})
	}
	for _, path := range []string{
		"/v1/runs?key=50%", "/v1/runs?key=50%25&key=a", "/v1/runs?limit=1&key=%zz", "/v1/runs?%zz=1", "/v1/events?event=%", "/v1/runs?ke%79=a&key=b", "/v1/runs?key=",
		"/v1/runs?status=failed&workflow=", "/v1/runs?key",
	} {
		s.do(raw{method: http.MethodGet, path: path}).problem(t, http.StatusBadRequest, "bad_request")
	}
	for path, key := range map[string]string{"/v1/runs?key=50%25": "50%", "/v1/runs?key=a;b": "a;b", "/v1/runs?key=a%2Bb&cursor=": "a+b", "/v1/runs?&key=ü": "ü"} {
		list := decode[apitype.List[apitype.Run]](t, s.do(raw{method: http.MethodGet, path: path}), http.StatusOK)
		if len(list.Data) != 1 || *list.Data[0].Key != key {
			t.Errorf("%s lists %+v", path, list.Data)
		}
	}
}
