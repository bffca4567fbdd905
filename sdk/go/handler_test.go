package nelkap_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/signature"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

func ask(app *nelkap.App, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	app.ServeHTTP(w, r)
	return w
}

func TestGetSaysOnlyThatAnAppLivesHere(t *testing.T) {
	app := nelkap.New(nelkap.Options{SigningKey: testKey})
	w := ask(app, httptest.NewRequest(http.MethodGet, "/api/nelkap", nil))
	if w.Code != 200 || w.Body.String() != `{"nelkap":true}` || w.Header().Get("Nelkap-SDK") != "go/"+nelkap.Version {
		t.Errorf("GET: %d %s %v", w.Code, w.Body, w.Header())
	}
	for _, method := range []string{"HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"} {
		if w := ask(app, httptest.NewRequest(method, "/", nil)); w.Code != 405 || w.Body.Len() != 0 || w.Header().Get("Allow") != "GET, POST" {
			t.Errorf("%s: %d %q %v", method, w.Code, w.Body, w.Header())
		}
	}
}

func TestDescribe(t *testing.T) {
	app := nelkap.New(nelkap.Options{App: "shop", SigningKey: testKey})
	nothing := nelkap.NoResult(func(context.Context, nelkap.None) error { return nil })
	nelkap.NewWorkflow(app, "b <&>", nothing)
	nelkap.NewWorkflow(app, "a", nothing, nelkap.OnEvent("order.paid", nelkap.If("payload.total > 0")), nelkap.OnWebhook("shop"),
		nelkap.OnSchedule("0 9 * * 1-5", nelkap.Timezone("Europe/Berlin"), nelkap.CatchUp(nelkap.CatchUpLast)), nelkap.OnSchedule("@daily"),
		nelkap.CancelOn("order.cancelled", nelkap.If("payload.total > 0")), nelkap.CancelOn("stop"),
		nelkap.Retries(0), nelkap.Timeout(2*time.Hour), nelkap.Lease(time.Minute))
	w := ask(app, signed(t.Context(), []byte(`{"type":"describe"}`)))
	var got struct {
		App       string
		SDK       map[string]string
		Protocol  int
		Hash      string
		Workflows json.RawMessage
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	want := `[{"name":"a","triggers":[{"event":"order.paid","if":"payload.total > 0"},{"webhook":"shop"},` +
		`{"schedule":"0 9 * * 1-5","timezone":"Europe/Berlin","catchUp":"last"},{"schedule":"@daily"}],` +
		`"cancelOn":[{"event":"order.cancelled","if":"payload.total > 0"},{"event":"stop"}],"retries":0,` +
		`"timeoutMs":7200000,"leaseMs":60000},{"name":"b <&>"}]`
	if string(got.Workflows) != want {
		t.Errorf("workflows %s, want %s", got.Workflows, want)
	}
	sum := sha256.Sum256(got.Workflows)
	if got.Hash != hex.EncodeToString(sum[:]) || got.App != "shop" || got.Protocol != 1 || got.SDK["language"] != "go" {
		t.Errorf("manifest %+v", got)
	}
	if kind := w.Header().Get("Content-Type"); kind != wire.ContentType {
		t.Errorf("content type %q", kind)
	}
}

func TestRefusals(t *testing.T) {
	describe := []byte(`{"type":"describe"}`)
	with := func(body []byte, change func(*http.Request)) *http.Request {
		r := signed(context.Background(), body)
		change(r)
		return r
	}
	same := func(*http.Request) {}
	for _, c := range []struct {
		name string
		r    *http.Request
		want int
		code string
	}{
		{"unsigned", with(describe, func(r *http.Request) { r.Header.Del(signature.HeaderSignature) }), 401, "unsigned"},
		{"other signature", with(describe, func(r *http.Request) { r.Header.Set(signature.HeaderSignature, "v1,AA==") }), 401, "bad_signature"},
		{"other id", with(describe, func(r *http.Request) { r.Header.Set(signature.HeaderID, "x") }), 401, "bad_signature"},
		{"other body", with(describe, func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader(`{"type":"describe "}`))
			r.ContentLength = 20
		}), 401, "bad_signature"},
		{"JSON", with(describe, func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }), 415, "bad_content_type"},
		{"version 2", with(describe, func(r *http.Request) { r.Header.Set("Nelkap-Protocol", "2") }), 422, "protocol_unsupported"},
		{"no version", with(describe, func(r *http.Request) { r.Header.Del("Nelkap-Protocol") }), 422, "protocol_unsupported"},
		{"too large, said", with(make([]byte, 16<<20+1), same), 413, "body_too_large"},
		{"too large, unsaid", with(make([]byte, 16<<20+1), func(r *http.Request) { r.ContentLength = -1 }), 413, "body_too_large"},
		{"not JSON", with([]byte("hello"), same), 400, "bad_request"},
		{"empty", with(nil, same), 400, "bad_request"},
		{"other type", with([]byte(`{"type":"verify"}`), same), 400, "bad_request"},
		{"no token", with([]byte(`{"type":"call","run":{"id":"r"},"call":{"id":"c"}}`), same), 400, "bad_request"},
		{"unknown workflow", with([]byte(`{"type":"call","run":{"id":"r","workflow":"no"},"call":{"id":"c","token":"t"},"url":"http://x"}`), same), 404, "workflow_unknown"},
		{"no url", with([]byte(`{"type":"call","run":{"id":"r","workflow":"w"},"call":{"id":"c","token":"t"}}`), same), 400, "bad_request"},
		{"url of a file", with([]byte(`{"type":"call","run":{"id":"r","workflow":"w"},"call":{"id":"c","token":"t"},"url":"file:///etc"}`), same), 400, "bad_request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			app := nelkap.New(nelkap.Options{SigningKey: testKey})
			nelkap.NewWorkflow(app, "w", nelkap.NoResult(func(context.Context, nelkap.None) error { return nil }))
			w := ask(app, c.r)
			var problem struct {
				Status              int
				Code, Title, Detail string
			}
			json.Unmarshal(w.Body.Bytes(), &problem)
			if w.Code != c.want || problem.Code != c.code || problem.Status != c.want || problem.Title == "" || problem.Detail == "" {
				t.Errorf("%d %s, want %d %s", w.Code, w.Body, c.want, c.code)
			}
			if kind := w.Header().Get("Content-Type"); kind != "application/problem+json" || w.Header().Get("Nelkap-SDK") == "" {
				t.Errorf("headers %v", w.Header())
			}
		})
	}
}

// Anybody may send a request: it takes memory as it comes, and not as it says.
func TestARequestIsGivenNoMemoryOnItsWord(t *testing.T) {
	app := nelkap.New(nelkap.Options{SigningKey: testKey})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		r := signed(t.Context(), []byte("{"))
		r.ContentLength = 16 << 20
		if w := ask(app, r); w.Code != http.StatusBadRequest {
			t.Errorf("answered %d", w.Code)
		}
	}
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 32<<20 {
		t.Errorf("ten requests of a byte took %d MiB", taken>>20)
	}
}

func TestClockRefusalCarriesTheAppsTime(t *testing.T) {
	app := nelkap.New(nelkap.Options{SigningKey: testKey})
	r := signed(t.Context(), nil)
	key, _ := signature.ParseKey(testKey)
	r.Header.Set(signature.HeaderTimestamp, "1000000000")
	r.Header.Set(signature.HeaderSignature, signature.Sign(key, "msg_1", "1000000000", nil))
	w := ask(app, r)
	var problem struct {
		Code    string
		AppTime time.Time
	}
	json.Unmarshal(w.Body.Bytes(), &problem)
	if w.Code != 401 || problem.Code != "clock_differs" || time.Since(problem.AppTime) > time.Minute {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestKeysRotate(t *testing.T) {
	other := strings.Repeat("o", 32)
	for _, options := range []nelkap.Options{
		{SigningKey: testKey}, {SigningKey: other, SigningKeyPrevious: testKey}, {SigningKey: testKey, SigningKeyPrevious: other},
	} {
		if w := ask(nelkap.New(options), signed(t.Context(), []byte(`{"type":"describe"}`))); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	if w := ask(nelkap.New(nelkap.Options{SigningKey: other}), signed(t.Context(), []byte(`{"type":"describe"}`))); w.Code != 401 {
		t.Errorf("a removed key: %d", w.Code)
	}
}

func TestUnsignedCallsNeedDevAndThisMachine(t *testing.T) {
	for _, c := range []struct {
		name, dev, peer, host, key, header string
		want                               int
	}{
		{"dev", "1", "127.0.0.1:1", "x", "", "", 200},
		{"dev, IPv6", "1", "[::1]:1", "x", "", "", 200},
		{"dev, not exactly", "true", "127.0.0.1:1", "x", "", "", 401},
		{"no dev", "", "127.0.0.1:1", "x", "", "", 401},
		{"dev with a key", "1", "127.0.0.1:1", "x", testKey, "", 401},
		{"other machine", "1", "10.0.0.1:1", "localhost", "", "", 401},
		{"unseen peer, local host", "1", "@", "localhost:3000", "", "", 200},
		{"unseen peer, other host", "1", "@", "example.com", "", "", 401},
		{"unseen peer, lying host", "1", "@", "localhost.example.com", "", "", 401},
		{"forwarded", "1", "127.0.0.1:1", "x", "", "Forwarded", 401},
		{"forwarded for", "1", "127.0.0.1:1", "x", "", "X-Forwarded-For", 401},
		{"forwarded host", "1", "127.0.0.1:1", "x", "", "X-Forwarded-Host", 401},
		{"real ip", "1", "127.0.0.1:1", "x", "", "X-Real-IP", 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("NELKAP_DEV", c.dev)
			t.Setenv("NELKAP_SIGNING_KEY", c.key)
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"type":"describe"}`))
			r.Header.Set("Content-Type", wire.ContentType)
			r.Header.Set("Nelkap-Protocol", "1")
			r.RemoteAddr, r.Host = c.peer, c.host
			if c.header != "" {
				r.Header.Set(c.header, "")
			}
			w := ask(nelkap.New(nelkap.Options{}), r)
			if w.Code != c.want {
				t.Errorf("%d %s, want %d", w.Code, w.Body, c.want)
			}
			if w.Code == 401 && c.dev == "1" && c.key == "" && !strings.Contains(w.Body.String(), "from another machine or through a proxy: set the same NELKAP_SIGNING_KEY") {
				t.Errorf("NELKAP_DEV is set, and the refusal does not say what else to do: %s", w.Body)
			}
			if w.Code == 401 && !strings.Contains(w.Body.String(), "NELKAP_DEV=1") {
				t.Errorf("the refusal does not say what to do: %s", w.Body)
			}
		})
	}
}

// Rule C9.
func TestUnsignedCallMayNotSendSavesElsewhere(t *testing.T) {
	t.Setenv("NELKAP_DEV", "1")
	app := nelkap.New(nelkap.Options{})
	nelkap.NewWorkflow(app, "w", nelkap.NoResult(func(context.Context, nelkap.None) error { return nil }))
	for url, want := range map[string]int{
		"http://127.0.0.1:6355": 200, "http://localhost:6355": 200, "http://[::1]:6355": 200,
		"http://10.0.0.1:6355": 400, "http://127.0.0.1.example.com": 400, "": 400, "//127.0.0.1": 400, "http://127.0.0.1@example.com": 400,
	} {
		text := []byte(`{"type":"call","run":{"id":"r","workflow":"w"},"call":{"id":"c","token":"t"},"url":"` + url + `"}`)
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(text))
		r.Header.Set("Content-Type", wire.ContentType)
		r.Header.Set("Nelkap-Protocol", "1")
		r.RemoteAddr = "127.0.0.1:9"
		if w := ask(app, r); w.Code != want {
			t.Errorf("url %q: %d %s, want %d", url, w.Code, w.Body, want)
		}
	}
}

func TestBadKeyRefusesEveryCallAndIsNotShown(t *testing.T) {
	app := nelkap.New(nelkap.Options{SigningKey: "canary-short", Logger: quiet})
	w := ask(app, signed(t.Context(), []byte(`{"type":"describe"}`)))
	if w.Code != 500 || strings.Contains(w.Body.String(), "canary") || !strings.Contains(w.Body.String(), `"internal"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestNothingOfTheEnvironmentLeaks(t *testing.T) {
	for _, name := range []string{"NELKAP_API_KEY", "DATABASE_URL", "CANARY"} {
		t.Setenv(name, "canary-value-of-"+name)
	}
	t.Setenv("NELKAP_SIGNING_KEY", testKey)
	t.Setenv("NELKAP_SIGNING_KEY_PREVIOUS", "canary-previous-key-of-thirty-two-bytes")
	app := nelkap.New(nelkap.Options{})
	nelkap.NewWorkflow(app, "w", nelkap.NoResult(func(context.Context, nelkap.None) error { return os.ErrNotExist }))
	requests := []*http.Request{
		httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRequest(http.MethodPost, "/", nil),
		signed(t.Context(), []byte(`{"type":"describe"}`)), signed(t.Context(), []byte("no")),
		signed(t.Context(), []byte(`{"type":"call","run":{"id":"r","workflow":"w"},"call":{"id":"c","token":"t"},"url":"http://x"}`)),
	}
	for _, r := range requests {
		w := ask(app, r)
		dump := w.Body.String()
		for name, values := range w.Header() {
			dump += name + strings.Join(values, " ")
		}
		if strings.Contains(dump, "canary") || strings.Contains(dump, testKey) {
			t.Errorf("leaked: %s", dump)
		}
	}
}

// Rule C7.
func TestDeclarationsThatDoNotFitPanic(t *testing.T) {
	nothing := nelkap.NoResult(func(context.Context, nelkap.None) error { return nil })
	var got []string
	for _, declare := range []func(app *nelkap.App){
		func(app *nelkap.App) { nelkap.NewWorkflow(app, "", nothing) },
		func(app *nelkap.App) { nelkap.NewWorkflow(app, "w\xff", nothing) },
		func(app *nelkap.App) { nelkap.NewWorkflow(app, "taken", nothing) },
		func(app *nelkap.App) { nelkap.NewWorkflow(app, "w", nothing, nelkap.Retries(-1)) },
		func(app *nelkap.App) { nelkap.NewWorkflow(app, "w", nothing, nelkap.Lease(time.Second)) },
		func(app *nelkap.App) { nelkap.NewWorkflow(app, "w", nothing, nelkap.Timeout(0)) },
		func(app *nelkap.App) { nelkap.NewWorkflow(app, "w", nothing, nelkap.Timeout(math.MaxInt64)) },
		func(app *nelkap.App) { nelkap.NewWorkflow(app, "w", nothing, nelkap.Lease(math.MaxInt64)) },
		func(app *nelkap.App) { nelkap.NewWorkflow(app, "w", nothing, nelkap.OnEvent("")) },
		func(app *nelkap.App) { nelkap.NewWorkflow(app, "w", nothing, nelkap.OnEvent("e", nelkap.If(""))) },
		func(app *nelkap.App) {
			nelkap.NewWorkflow(app, "w", nothing, nelkap.OnEvent("e", nelkap.If(strings.Repeat("x", 4<<10+1))))
		},
		func(*nelkap.App) { nelkap.NewWorkflow(nil, "w", nothing) },
		func(app *nelkap.App) { nelkap.NewWorkflow(app, "w", nothing, nelkap.OnSchedule("")) },
		func(app *nelkap.App) {
			nelkap.NewWorkflow(app, "w", nothing, nelkap.OnSchedule("@daily", nelkap.Timezone("")))
		},
		func(app *nelkap.App) {
			nelkap.NewWorkflow(app, "w", nothing, nelkap.OnSchedule("@daily", nelkap.CatchUp("some")))
		},
		func(app *nelkap.App) {
			nelkap.NewWorkflow(app, "w", nothing, nelkap.OnEvent("e", nelkap.CatchUp(nelkap.CatchUpAll)))
		},
		func(app *nelkap.App) {
			nelkap.NewWorkflow(app, "w", nothing, nelkap.CancelOn("e", nelkap.Timezone("UTC")))
		},
		func(app *nelkap.App) { nelkap.NewWorkflow(app, "w", nothing, nelkap.CancelOn("")) },
		func(app *nelkap.App) {
			nelkap.NewWorkflow(app, "w", nothing, nelkap.Once(func(int) string { return "x" }))
		},
		func(app *nelkap.App) { nelkap.NewWorkflow(app, "w", nothing, nelkap.Once[nelkap.None](nil)) },
		func(app *nelkap.App) { nelkap.Ref[int, int](app, "") },
		func(app *nelkap.App) { nelkap.Ref[int, int](app, "w", nelkap.InApp("")) },
	} {
		app := nelkap.New(nelkap.Options{})
		nelkap.NewWorkflow(app, "taken", nothing)
		func() {
			defer func() {
				if r := recover(); r != nil {
					got = append(got, "panic")
				} else {
					got = append(got, "no panic")
				}
			}()
			declare(app)
		}()
	}
	want := slices.Repeat([]string{"panic"}, 22)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
