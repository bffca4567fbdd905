package nelkap_test

import (
	"context"
	"net/http/httptest"
	"testing"

	nelkap "github.com/nelkap/nelkap/sdk/go"
)

// FuzzServe gives the app signed bodies of all kinds: it answers each, and never panics.
func FuzzServe(f *testing.F) {
	for _, body := range []string{
		"", "{}", `{"type":"describe"}`, `{"type":"call"}`, `[`, `{"type":"call","run":null,"call":null,"steps":null}`,
		`{"type":"call","run":{"id":"r","workflow":"w"},"call":{"id":"c","token":"t"},"steps":{"entries":[{"name":"a","number":1}]},"url":"http://x"}`,
		`{"type":"call","run":{"id":"r","workflow":"w","payload":1},"call":{"id":"c","token":"t","cuts":-1},"steps":{"retrying":[{}]},"url":"http://x"}`,
	} {
		f.Add([]byte(body))
	}
	app := nelkap.New(nelkap.Options{SigningKey: testKey, URL: "http://127.0.0.1:1", Logger: quiet})
	nelkap.NewWorkflow(app, "w", nelkap.NoResult(func(context.Context, nelkap.None) error { return nil }))
	f.Fuzz(func(t *testing.T, body []byte) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // a call whose pages can't be had must not hold the fuzzer
		w := httptest.NewRecorder()
		app.ServeHTTP(w, signed(ctx, body))
	})
}
