package nelkap_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// supersede is a server that tells every call that a newer one has begun, so that no playing outlives its request.
type supersede struct{}

func (supersede) RoundTrip(r *http.Request) (*http.Response, error) {
	var message struct {
		Saves, Ends, Calls []struct{ Call, Nonce string }
	}
	if r.Body != nil {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		_ = json.Unmarshal(text, &message) // a page is asked for without a body
	}
	outcomes := func(list []struct{ Call, Nonce string }) string {
		var parts []string
		for _, one := range list {
			parts = append(parts, fmt.Sprintf(`{"call":%s,"nonce":%s,"status":"superseded"}`, wire.AppendString(nil, one.Call), wire.AppendString(nil, one.Nonce)))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	status, kind, text := http.StatusOK, "application/json", fmt.Sprintf(`{"saves":%s,"ends":%s,"calls":%s}`, outcomes(message.Saves), outcomes(message.Ends), outcomes(message.Calls))
	if r.Method == http.MethodGet {
		status, kind, text = http.StatusConflict, "application/problem+json", `{"code":"superseded"}`
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

// FuzzServe gives the app signed bodies of all kinds: each gets an answer of the protocol, or a problem that says what to do.
func FuzzServe(f *testing.F) {
	for _, body := range []string{
		"", "{}", `{"type":"describe"}`, `{"type":"call"}`, `[`, `{"type":"call","run":null,"call":null,"steps":null}`, `{"type":"verify"}`, "\xff", `{"type":"call","run":{"id":1}}`,
		`{"type":"call","run":{"id":"r","workflow":"w"},"call":{"id":"c","token":"t"},"steps":{"entries":[{"name":"a","number":1}]},"url":"http://x"}`,
		`{"type":"call","run":{"id":"r","workflow":"w","payload":1},"call":{"id":"c","token":"t","cuts":-1},"steps":{"retrying":[{}],"waiting":[{"kind":"sleep","name":"s","number":1},{}]},"url":"http://x"}`,
		`{"type":"call","run":{"id":"r","workflow":"w"},"call":{"id":"c","token":"t"},"steps":{"entries":[{"entry":1,"kind":"run","name":"s","number":1,"status":"completed","output":"not a number"}]},"url":"http://x"}`,
		`{"type":"call","run":{"id":"r","workflow":"w"},"call":{"id":"c","token":"t"},"steps":{"entries":[{"entry":2,"kind":"run","name":"s","number":1,"status":"completed","output":7},{"entry":2,"kind":"run","name":"s","number":1,"status":"failed"}],"next":-9},"url":"http://x"}`,
		`{"type":"call","run":{"id":"r","workflow":"w"},"call":{"id":"c","token":"t"},"steps":{"entries":[{"entry":1,"kind":"sleep","name":"s","number":1,"status":"failed","error":{"name":"E","message":"m","cause":{"cause":{}}}}]},"limits":{"steps":-1,"resultBytes":1},"url":"http://x"}`,
		`{"type":"call","run":{"id":"r","workflow":"w"},"call":{"id":"c","token":"t"},"steps":{"entries":[{"entry":1,"kind":"undo","name":"u","number":1,"status":"completed"}]},"ending":{"reason":"failed","error":{"name":"E","message":"m"},"entries":1},"url":"http://x"}`,
		`{"type":"call","run":{"id":"r","workflow":"w"},"call":{"id":"c","token":"t"},"steps":{"entries":[{"entry":1,"kind":"undo","name":"x","number":-1}]},"ending":{"reason":"?","entries":-1},"url":"http://x"}`,
		`{"type":"verify","run":{"id":"r","workflow":"w"},"steps":{"entries":[{"entry":1,"kind":"run","name":"s","number":1,"status":"completed","output":7}]},"limitMs":5000}`,
		`{"type":"verify","run":{"id":"r","workflow":"w"},"steps":{"entries":[{"entry":1,"kind":"sleep","name":"u","number":1}],"next":null,"waiting":[{"kind":"claim","name":"s","number":1}]},"limitMs":-1}`,
	} {
		f.Add([]byte(body))
	}
	app := nelkap.New(nelkap.Options{SigningKey: testKey, URL: "http://server.test", Logger: quiet, HTTPClient: &http.Client{Transport: supersede{}}})
	nelkap.NewWorkflow(app, "w", func(ctx context.Context, _ any) (int, error) {
		if err := step.Undo(ctx, "u", func(context.Context) error { return nil }); err != nil {
			return 0, err
		}
		return step.Run(ctx, "s", func(context.Context) (int, error) { return 1, nil })
	}, nelkap.OnFailure(func(ctx context.Context, _ nelkap.Failure[any]) error {
		return step.Do(ctx, "s", func(context.Context) error { return nil })
	}))
	f.Fuzz(func(t *testing.T, body []byte) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // a call whose pages can't be had must not hold the fuzzer
		w := httptest.NewRecorder()
		app.ServeHTTP(w, signed(ctx, body))
		var answer struct{ Type, Code, Detail string }
		switch kind := w.Header().Get("Content-Type"); {
		case w.Body.Len() == 0: // the connection is gone, and so is the call
		case json.Unmarshal(w.Body.Bytes(), &answer) != nil:
			t.Errorf("%d, and no JSON: %q", w.Code, w.Body)
		case w.Code == http.StatusOK && kind == wire.ContentType:
		case w.Code >= 400 && kind == "application/problem+json" && answer.Code != "" && answer.Detail != "":
			if w.Code >= 500 && answer.Code != "internal" {
				t.Errorf("%d: %s", w.Code, w.Body)
			}
		default:
			t.Errorf("%d %s: %s", w.Code, kind, w.Body)
		}
	})
}
