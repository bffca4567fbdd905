package e2e

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nelkap/nelkap/e2e/plan"
)

// serverBytesMax is what a server may have held at most after it met answers without end: their limit is 16 MiB, the buffers of one
// that grew so far are a few times that, and the server itself takes some 40 MiB.
const serverBytesMax = 200 << 20

// endless answers for ever, until its connection closes.
func endless(header map[string]string) http.Handler {
	line := bytes.Repeat([]byte("<p>more</p>"), 1<<12)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range header {
			w.Header().Set(name, value)
		}
		for {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	})
}

// strangers are what answers in an app's place, and what a run's reason must say then.
var strangers = []struct {
	name   string
	answer http.Handler
	words  []string
}{
	{"a page", plainAnswer(200, map[string]string{"Content-Type": "text/html"}, "<html>Welcome to our shop"), []string{"text/html", "is the path right?", "Welcome"}},
	{"a redirect", plainAnswer(302, map[string]string{"Location": "https://shop.example/login"}, ""), []string{"302", "login", "exclude this path"}},
	{"nothing there", plainAnswer(404, nil, "404 page not found"), []string{"404", "/api/nelkap", "is the path right"}},
	{"a login", plainAnswer(401, nil, "who are you?"), []string{"401", "exclude this path"}},
	{"a page without end", endless(map[string]string{"Content-Type": "text/html"}), []string{"text/html", "is the path right?"}},
	{"an answer without end", endless(map[string]string{"Content-Type": "application/vnd.nelkap+json", "Nelkap-SDK": "go/0.1.0"}), []string{"larger than", "bytes"}},
	{"no JSON", plainAnswer(400, map[string]string{"Content-Type": "application/problem+json", "Nelkap-SDK": "go/0.1.0"}, "}"), []string{"without a code"}},
}

func TestARunWaitsWhileItsAppIsNotItself(t *testing.T) {
	t.Parallel()
	b := newBetween(t, "go")
	for _, stranger := range strangers {
		b.in.answer(stranger.answer)
		id := b.run("go", plan.Plan{Steps: []plan.Step{{Name: "one"}}})
		b.waiting(id, append(stranger.words, "can't be used")...)
		a := b.appOf("go")
		if a == nil || a.Status != "unusable" || a.Reason == nil || a.NextLookAt == nil {
			t.Errorf("%s: the app is shown as %s", stranger.name, asJSON(t, a))
		}
		b.in.answer(nil)
		b.completed(id, within)
		b.bodies(id, map[string]int{"one": 1})
		b.ready("go")
	}
	if peak := peakBytes(t, b.server.pid()); peak > serverBytesMax {
		t.Errorf("the server took %d MiB at its most, more than %d", peak>>20, serverBytesMax>>20)
	} else {
		t.Logf("the server took %d MiB at its most", peak>>20)
	}
}

func TestARunWaitsWhileItsWorkflowIsGone(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		w, app := newSimple(t, language)
		id := w.run(language, three)
		w.began(id, "two", 1)
		app.kill()
		plain := app.env
		app.env = slices.Concat(plain, []string{plan.EnvWithout + "=" + plan.Planned})
		app.start()
		w.waiting(id, language, plan.Planned, "deploy it, or cancel the run")
		app.kill()
		app.env = plain
		app.start()
		w.open("gate")
		w.completed(id, within)
		w.bodies(id, map[string]int{"one": 1, "two": 2, "three": 1})
	})
}

// problemCodes are requests that are refused, each with a code and a sentence that names what to do. The larger body is still being sent
// when its refusal is.
var problemCodes = []struct {
	name, method, path, body string
	status                   int
	words                    []string
}{
	{"malformed JSON", http.MethodPost, "/v1/runs", `{"workflow": "planned"`, 400, nil},
	{"malformed event", http.MethodPost, "/v1/events", `{"event"`, 400, nil},
	{"malformed save", http.MethodPost, "/v1/saves", `[`, 400, nil},
	{"malformed heartbeat", http.MethodPost, "/v1/heartbeats", `{"process": 1}`, 400, nil},
	{"no process", http.MethodPost, "/v1/ends", `{"ends": []}`, 400, []string{"process"}},
	{"unknown workflow", http.MethodPost, "/v1/runs", `{"workflow": "no such"}`, 422, []string{"no such"}},
	{"unknown app", http.MethodPost, "/v1/runs", `{"workflow": "planned", "app": "nobody"}`, 422, []string{"nobody"}},
	{"unknown run", http.MethodGet, "/v1/runs/run_01m8m53a37f01bnfq6rq4cw97q", ``, 404, nil},
	{"unknown path", http.MethodGet, "/v2/runs", ``, 404, []string{"/openapi.json"}},
	{"large payload", http.MethodPost, "/v1/runs", `{"workflow": "planned", "app": "go", "payload": "` + strings.Repeat("x", 4<<20) + `"}`, 413, []string{"payload", "bytes"}},
	{"larger body", http.MethodPost, "/v1/runs", `{"workflow": "planned", "app": "go", "payload": "` + strings.Repeat("x", 12<<20) + `"}`, 413, nil},
	{"large event", http.MethodPost, "/v1/events", `{"event": "go.heard", "payload": "` + strings.Repeat("x", 1<<20) + `"}`, 413, []string{"payload", "bytes"}},
}

func TestBadRequestsAreRefusedWithASentence(t *testing.T) {
	t.Parallel()
	w, app := newSimple(t, "go")
	for _, bad := range problemCodes {
		status, answer := w.ask(bad.method, bad.path, []byte(bad.body))
		p := decode[struct{ Code, Detail string }](t, []byte(answer))
		if status != bad.status || p.Code == "" || p.Detail == "" {
			t.Errorf("%s is answered %d %s, want %d with a code and a detail", bad.name, status, answer, bad.status)
		}
		for _, word := range bad.words {
			if !strings.Contains(p.Detail, word) {
				t.Errorf("%s: the detail %q does not have %q", bad.name, p.Detail, word)
			}
		}
	}
	if runs := w.allEnded(); len(runs) != 0 {
		t.Errorf("bad requests started %d runs", len(runs))
	}
	id := w.run("go", plan.Plan{Steps: []plan.Step{{Name: "one"}}})
	w.completed(id, within)
	if app.hasEnded() || w.server.hasEnded() {
		t.Error("a process ended by itself")
	}
}

// badCalls are requests to an app that no server of ours makes. The largest asks before it sends, so that its refusal is not lost
// in a connection that closes.
var badCalls = []struct {
	name, body string
	header     http.Header
	status     int
	code       string
}{
	{"no JSON", `{"type":`, http.Header{"Content-Type": {"application/vnd.nelkap+json"}, "Nelkap-Protocol": {"1"}}, 400, "bad_request"},
	{"no type", `{}`, http.Header{"Content-Type": {"application/vnd.nelkap+json"}, "Nelkap-Protocol": {"1"}}, 400, "bad_request"},
	{"half a call", `{"type": "call", "run": {}}`, http.Header{"Content-Type": {"application/vnd.nelkap+json"}, "Nelkap-Protocol": {"1"}}, 400, "bad_request"},
	{"another content type", `{"type": "describe"}`, http.Header{"Content-Type": {"text/plain"}, "Nelkap-Protocol": {"1"}}, 415, "bad_content_type"},
	{"another protocol", `{"type": "describe"}`, http.Header{"Content-Type": {"application/vnd.nelkap+json"}, "Nelkap-Protocol": {"2"}}, 422, "protocol_unsupported"},
	{"forwarded", `{"type": "describe"}`, http.Header{"Content-Type": {"application/vnd.nelkap+json"}, "Nelkap-Protocol": {"1"}, "X-Forwarded-For": {"192.0.2.1"}}, 401, "unsigned"},
	{"too large", strings.Repeat(" ", 16<<20+1), http.Header{"Content-Type": {"application/vnd.nelkap+json"}, "Nelkap-Protocol": {"1"}, "Expect": {"100-continue"}}, 413, "body_too_large"},
}

func TestAppsRefuseBadCallsWithASentence(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		w := newWorld(t)
		addr := freeAddress(t)
		app := w.app(language, addr)
		app.start()
		for _, bad := range badCalls {
			status, answer := ask(t, http.MethodPost, appURL(addr), []byte(bad.body), bad.header)
			p := decode[struct{ Code, Detail string }](t, []byte(answer))
			if status != bad.status || p.Code != bad.code || p.Detail == "" {
				t.Errorf("%s is answered %d %s, want %d with the code %s and a detail", bad.name, status, answer, bad.status, bad.code)
			}
		}
		if app.hasEnded() {
			t.Error("the app ended by itself")
		}
	})
}

// Keys of the tests.
const (
	oldKey   = "the-older-signing-key-of-the-tests-0123456789"
	newKey   = "the-newer-signing-key-of-the-tests-0123456789"
	otherKey = "a-key-that-belongs-to-someone-else-0123456789"
)

// keyed gives an app's variables for a key and the one before it.
func keyed(key, previous string) []string {
	env := []string{"NELKAP_DEV=", "NELKAP_API_KEY=" + apiKey, "NELKAP_SIGNING_KEY=" + key}
	if previous != "" {
		env = append(env, "NELKAP_SIGNING_KEY_PREVIOUS="+previous)
	}
	return env
}

func TestARunWaitsWhileItsAppHasAnotherKey(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		w := newWorld(t)
		addr := freeAddress(t)
		app := w.app(language, addr, keyed(oldKey, "")...)
		app.start()
		w.serve(oldKey, "--app", appURL(addr)).start()
		w.ready(language)
		right := app.env
		app.kill()
		app.env = slices.Concat(right, keyed(otherKey, ""))
		app.start()
		id := w.run(language, plan.Plan{Steps: []plan.Step{{Name: "one"}}})
		w.waiting(id, "NELKAP_SIGNING_KEY")
		if a := w.appOf(language); a == nil || a.Status != "unusable" {
			t.Errorf("the app is shown as %s", asJSON(t, a))
		}
		app.kill()
		app.env = right
		app.start()
		w.completed(id, within)
		w.bodies(id, map[string]int{"one": 1})
	})
}

func TestKeysAreChangedWhileRunsGoOn(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		w := newWorld(t)
		addr := freeAddress(t)
		app := w.app(language, addr, keyed(oldKey, "")...)
		base := app.env[:len(app.env)-3]
		app.start()
		w.serve(oldKey, "--app", appURL(addr)).start()
		w.ready(language)
		var ids []string
		// Each change comes while a run's body runs; the body ends after it, and the run's next step in the new state of things.
		during := func(change func()) {
			gate := "gate" + strconv.Itoa(len(ids))
			id := w.run(language, plan.Plan{Steps: []plan.Step{{Name: "one"}, {Name: "two", Gate: gate}, {Name: "three", Throws: 1}}})
			ids = append(ids, id)
			w.began(id, "two", 1)
			change()
			w.open(gate)
			w.completed(id, within)
		}
		restart := func(p *process, env []string) {
			p.signal(syscall.SIGTERM)
			if p == app {
				w.open("gate" + strconv.Itoa(len(ids)-1)) // a deploy waits for the bodies that run
			}
			if code := p.exit(); code != 0 {
				t.Errorf("%s exited with %d", p.name, code)
			}
			p.env = env
			p.start()
		}
		during(func() {
			restart(w.server, []string{"NELKAP_SIGNING_KEY=" + newKey, "NELKAP_SIGNING_KEY_PREVIOUS=" + oldKey, "NELKAP_API_KEY=" + apiKey})
		})
		during(func() { restart(app, slices.Concat(base, keyed(newKey, oldKey))) })
		during(func() { restart(app, slices.Concat(base, keyed(newKey, ""))) })
		during(func() { restart(w.server, []string{"NELKAP_SIGNING_KEY=" + newKey, "NELKAP_API_KEY=" + apiKey}) })
		for _, id := range ids {
			w.bodies(id, map[string]int{"one": 1, "two": 1, "three": 2})
		}
		for _, run := range w.allEnded() {
			if run.Status != "completed" {
				t.Errorf("a run %s: %s", run.Status, asJSON(t, run))
			}
		}
	})
}

// settle is how long a server is left alone before its memory is read.
const settle = 2 * time.Second
