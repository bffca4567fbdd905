package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nelkap/nelkap/e2e/plan"
	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
)

// languages are the apps: each test of runs is played with both.
var languages = []string{"go", "typescript"}

// inEach plays a test once for each language, at the same time as other tests.
func inEach(t *testing.T, test func(*testing.T, string)) {
	t.Parallel()
	for _, language := range languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			test(t, language)
		})
	}
}

// world is one server, or several nodes, with its apps, and the files outside in which steps leave their marks.
type world struct {
	t      *testing.T
	dir    string
	server *process // of several nodes none
	url    string
	addr   string
	key    string // the API key; empty for dev
	api    *client.Client
	apps   map[string]*process
	seen   seen

	servers []*process // all of them
}

const apiKey = "an-api-key-of-the-tests-with-40-characters"

// newWorld makes a world whose server is not started yet.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), addr: freeAddress(t), apps: map[string]*process{}}
	w.url = "http://" + w.addr
	if err := os.Mkdir(filepath.Join(w.dir, "gates"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.connect("")
	return w
}

func (w *world) connect(key string) {
	w.t.Helper()
	w.key = key
	api, err := client.New(client.Options{URL: w.url, Key: key})
	if err != nil {
		w.t.Fatal(err)
	}
	w.api = api
	w.t.Cleanup(api.Close)
}

// dev prepares the server as nelkap dev, with the apps at the addresses. The caller starts it.
func (w *world) dev(flags ...string) *process {
	args := append([]string{"dev", "--addr", w.addr, "--data", filepath.Join(w.dir, "data")}, flags...)
	w.server = &process{t: w.t, name: "the server", path: built.server, args: args, health: w.url + "/readyz"}
	return w.tidyServer()
}

func (w *world) tidyServer() *process {
	w.server.tidy()
	w.servers = append(w.servers, w.server)
	return w.server
}

// serve prepares the server as nelkap serve, with a signing key. The caller starts it.
func (w *world) serve(signingKey string, flags ...string) *process {
	args := append([]string{"serve", "--addr", w.addr, "--store", filepath.Join(w.dir, "data")}, flags...)
	w.server = &process{
		t: w.t, name: "the server", path: built.server, args: args, health: w.url + "/readyz",
		env: []string{"NELKAP_SIGNING_KEY=" + signingKey, "NELKAP_API_KEY=" + apiKey},
	}
	w.connect(apiKey)
	return w.tidyServer()
}

// app prepares an app at an address. env is added to what it needs. The caller starts it.
func (w *world) app(language, addr string, env ...string) *process {
	p := &process{t: w.t, name: "the " + language + " app", path: built.goApp, health: appURL(addr)}
	if language == "typescript" {
		p.path, p.args = "node", []string{filepath.Join(built.typescript, "app.mjs")}
	}
	p.env = append([]string{
		"NELKAP_APP=" + language, "NELKAP_DEV=1", plan.EnvAddr + "=" + addr,
		plan.EnvMarks + "=" + w.marksFile(), plan.EnvGates + "=" + filepath.Join(w.dir, "gates"),
	}, env...)
	p.tidy()
	w.apps[language] = p
	return p
}

func appURL(addr string) string { return "http://" + addr + "/api/nelkap" }

// newSimple makes a world with one app and starts both.
func newSimple(t *testing.T, language string, flags ...string) (w *world, app *process) {
	t.Helper()
	w = newWorld(t)
	addr := freeAddress(t)
	app = w.app(language, addr)
	app.start()
	w.dev(append(flags, "--app", appURL(addr))...).start()
	w.ready(language)
	return w, app
}

// ready waits until the server knows the app and can use it.
func (w *world) ready(app string) {
	w.t.Helper()
	eventually(w.t, within, "the app to be ready", func() bool { a := w.appOf(app); return a != nil && a.Status == "ready" })
}

func (w *world) appOf(name string) *apitype.App {
	list, err := w.api.Apps(w.t.Context())
	if err != nil {
		return nil
	}
	for _, a := range list.Data {
		if a.Name != nil && *a.Name == name {
			return &a
		}
	}
	return nil
}

// run starts a run of an app.
func (w *world) run(app string, p plan.Plan) string {
	w.t.Helper()
	started, err := w.api.StartRun(w.t.Context(), client.StartRun{Workflow: plan.Planned, App: app, Payload: asJSON(w.t, p)})
	if err != nil {
		w.t.Fatalf("starting a run: %v", err)
	}
	return started.ID
}

// end waits for a run's end.
func (w *world) end(runID string, limit time.Duration) apitype.Run {
	w.t.Helper()
	var run apitype.Run
	start := time.Now()
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	for ctx.Err() == nil {
		last, err := w.api.Run(ctx, runID, 5*time.Second)
		if err == nil {
			run = last
		}
		if err == nil && run.EndedAt != nil {
			return run
		}
	}
	w.t.Fatalf("waited %v in vain for the end of %s: %s\nIts steps: %s\nThe server's log has of it:\n%s",
		time.Since(start).Round(time.Millisecond), runID, asJSON(w.t, run), asJSON(w.t, w.steps(runID)), w.said(runID))
	return run
}

// completed waits for a run's end, which must be that it completed.
func (w *world) completed(runID string, limit time.Duration) apitype.Run {
	w.t.Helper()
	run := w.end(runID, limit)
	if run.Status != "completed" {
		w.t.Fatalf("the run %s: %s", run.Status, asJSON(w.t, run))
	}
	return run
}

func (w *world) get(runID string) apitype.Run {
	w.t.Helper()
	run, err := w.api.Run(w.t.Context(), runID, 0)
	if err != nil {
		w.t.Fatalf("reading a run: %v", err)
	}
	return run
}

// steps reads all saved steps of a run.
func (w *world) steps(runID string) []apitype.Step {
	w.t.Helper()
	var steps []apitype.Step
	page := client.Page{Limit: 100}
	for {
		list, err := w.api.Steps(w.t.Context(), runID, page)
		if err != nil {
			w.t.Fatalf("reading the steps of %s: %v", runID, err)
		}
		steps = append(steps, list.Data...)
		if list.NextCursor == nil {
			return steps
		}
		page.Cursor = *list.NextCursor
	}
}

// waiting waits until a run waits for a reason that has all the words.
func (w *world) waiting(runID string, words ...string) {
	w.t.Helper()
	var run apitype.Run
	start := time.Now()
	found := holds(w.t.Context(), within, func() bool {
		run = w.get(runID)
		if run.WaitingFor == nil {
			return false
		}
		for _, word := range words {
			if !strings.Contains(run.WaitingFor.Reason, word) {
				return false
			}
		}
		return true
	})
	if !found {
		w.t.Fatalf("after %v the run does not wait for %q: %s", time.Since(start).Round(time.Millisecond), words, asJSON(w.t, run))
	}
	w.t.Logf("it waits: %s", run.WaitingFor.Reason)
}

// ask sends a request to the server as it stands, and gives the answer's status and body.
func (w *world) ask(method, path string, body []byte) (status int, answer string) {
	w.t.Helper()
	return ask(w.t, method, w.url+path, body, http.Header{"Authorization": {"Bearer " + w.key}, "Content-Type": {"application/json"}})
}

func ask(t *testing.T, method, url string, body []byte, header http.Header) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	answer, err := direct.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(content)
}

// open opens a gate for all; openFor opens it for one process.
func (w *world) open(gate string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, "gates", gate), nil, 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) openFor(gate string, pid int) {
	w.t.Helper()
	w.open(gate + "." + strconv.Itoa(pid))
}

func asJSON(t *testing.T, v any) json.RawMessage {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// decode reads a user's value.
func decode[T any](t *testing.T, text json.RawMessage) (v T) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("reading %s: %v", text, err)
	}
	return v
}
