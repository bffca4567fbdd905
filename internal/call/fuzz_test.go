package call_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/jsontext"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/wire"
)

// FuzzExcerpt: what is shown of a stranger's text is short, one line, and prints.
func FuzzExcerpt(f *testing.F) {
	for _, text := range []string{"a\xff😀", "\u202e\x1b[31m", strings.Repeat("x ", 300), "\r\n\t", "\u0085\u2028", "<script>"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := call.Excerpt(text)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\u202e' || r == '\u2028' }) {
			t.Errorf("%q became %q", text, got)
		}
		if count := utf8.RuneCountInString(got); count > 12*200 {
			t.Errorf("%d characters are shown", count)
		}
	})
}

// FuzzManifest: a manifest that is taken keeps every bound that the server relies on; a refusal is one sentence that prints. The
// workflows are given alone, and the rest is made to fit, so that the hash does not keep all else out.
func FuzzManifest(f *testing.F) {
	for _, workflows := range []string{
		`[]`, `null`, `{}`, `[{"name":"w"}]`, `[{"name":"w"},{"name":"w"}]`, `[{"name":""}]`, `[{"name":"w","leaseMs":4999}]`, `[{"name":"w","retries":-1}]`,
		`[{"name":"w","triggers":[{"event":"e"},{"event":"e","schedule":"* * * * *"}]}]`, `[{"name":"w","triggers":[{}]}]`, `[{"name":"\u001b[31m","timeoutMs":-1}]`, `[{"name":"w","timeoutMs":9223372036854775807}]`,
		`[{"name":"` + strings.Repeat("é", 129) + `"}]`,
	} {
		f.Add("shop", 1, []byte(workflows), true)
	}
	f.Add("", 2, []byte(`[]`), false)
	f.Fuzz(func(t *testing.T, app string, version int, workflows []byte, hashed bool) {
		sum := sha256.Sum256(bytes.TrimSpace(workflows))
		hash := hex.EncodeToString(sum[:])
		if !hashed {
			hash = "another"
		}
		name, err := jsontext.AppendQuote(nil, app)
		if err != nil {
			return
		}
		m, err := call.DecodeManifest(fmt.Appendf(nil, `{"app":%s,"sdk":{"language":"go","version":"1"},"protocol":%d,"hash":%q,"workflows":%s}`, name, version, hash, workflows))
		if err != nil {
			if text := err.Error(); !utf8.ValidString(text) || len(text) > 4_000 {
				t.Errorf("no sentence: %q", text)
			}
			return
		}
		if m.App == "" || len(m.App) > wire.NameBytesMax || m.Protocol != wire.Version || !hashed {
			t.Errorf("taken: %+v", m)
		}
		names := map[string]bool{}
		for _, w := range m.Workflows {
			if w.Name == "" || len(w.Name) > wire.NameBytesMax || names[w.Name] || w.TimeoutMs < 0 || w.LeaseMs != 0 && w.LeaseMs < 5000 || w.Retries != nil && *w.Retries < 0 {
				t.Errorf("taken: %+v", w)
			}
			names[w.Name] = true
			for _, trigger := range w.Triggers {
				kinds := 0
				for _, text := range []string{trigger.Event, trigger.Webhook, trigger.Schedule} {
					if text != "" {
						kinds++
					}
				}
				if kinds != 1 {
					t.Errorf("taken: %+v", trigger)
				}
			}
		}
	})
}

// FuzzAnswer: any HTTP answer has one of the kinds that the engine knows, with a sentence that prints unless it is the app's answer,
// and only an answer of the app's is handed on.
func FuzzAnswer(f *testing.F) {
	f.Add(200, wire.ContentType, "go/0.1.0", "", "", []byte(`{"type":"completed"}`))
	f.Add(200, "text/html", "", "", "", []byte("<!doctype html>"))
	f.Add(302, "", "", "/login?next=%2F", "", []byte(nil))
	f.Add(307, "", "go/1", "http://%zz\x00", "", []byte(nil))
	f.Add(401, "application/problem+json", "go/1", "", "", []byte(`{"code":"clock_differs","appTime":"\u001b"}`))
	f.Add(503, "application/problem+json; charset=utf-8", "go/1", "", "identity", []byte(`{"code":"stopping","detail":"bye"}`))
	f.Add(200, wire.ContentType, "go/1", "", "gzip", []byte("\x1f\x8b"))
	f.Add(500, "application/problem+json", "\x1b[31m", "", "", []byte(`{"code":"`+strings.Repeat("x", 65)+`"}`))
	f.Fuzz(func(t *testing.T, status int, contentType, sdk, location, encoding string, body []byte) {
		header := http.Header{}
		for name, value := range map[string]string{"Content-Type": contentType, wire.HeaderSDK: sdk, "Location": location, "Content-Encoding": encoding} {
			if value != "" {
				header.Set(name, value)
			}
		}
		outcome := call.Classify(t.Context(), &http.Response{
			StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: -1,
			Request: &http.Request{URL: &url.URL{Scheme: "http", Host: "app", Path: "/api/nelkap"}},
		})
		switch outcome.Kind {
		case call.Answered:
			if status != 200 || sdk == "" || !bytes.Equal(outcome.Body, body) {
				t.Errorf("taken for the app's answer: %+v", outcome)
			}
			return
		case call.Refused:
			if outcome.Code == "" || sdk == "" || status < 400 {
				t.Errorf("taken for the SDK's refusal: %+v", outcome)
			}
		case call.Unusable, call.Lost, call.Silent:
		default:
			t.Errorf("an answer was had, and the outcome is %v", outcome.Kind)
		}
		if outcome.Reason == "" || !utf8.ValidString(outcome.Reason) || strings.ContainsFunc(outcome.Reason, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("no sentence: %q", outcome.Reason)
		}
		if outcome.Body != nil {
			t.Errorf("a stranger's body is handed on: %s", outcome.Body)
		}
	})
}
