package call_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/wire"
)

// writes is a handler that answers with a status, headers as "Name: value" and a body.
func writes(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, header := range headers {
			name, value, _ := strings.Cut(header, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const (
	sdk     = "Nelkap-SDK: typescript/0.1.0"
	ourType = "Content-Type: application/vnd.nelkap+json"
	html    = "Content-Type: text/html; charset=utf-8"
)

// Rules C1, C14.
func TestAnswersOfStrangers(t *testing.T) {
	const page = "<!doctype html>\n<title>Sign in</title>"
	tests := map[string]struct {
		handler http.HandlerFunc
		kind    call.Kind
		reason  string
	}{
		"login by redirect":     {writes(302, "", "Location: /login?next=%2Fapi%2Fnelkap"), call.Unusable, "the app answered 302 to /login?next=%2Fapi%2Fnelkap: exclude this path from your login middleware."},
		"a moved address":       {writes(308, "", "Location: https://example.com/api/nelkap/"), call.Unusable, "redirects are not followed. Register the address where the app itself answers"},
		"redirect to metadata":  {writes(307, "", "Location: http://169.254.169.254/latest/meta-data/"), call.Unusable, "redirects are not followed"},
		"redirect to nowhere":   {writes(301, ""), call.Unusable, "the app answered 301, which is no answer to a call"},
		"not modified":          {writes(304, ""), call.Unusable, "the app answered 304"},
		"a page":                {writes(200, page, html), call.Unusable, "the app answered 200 text/html, not Nelkap's answer: is the path right? It began: <!doctype html> <title>Sign in</title>"},
		"our type, no header":   {writes(200, "{}", ourType), call.Unusable, "the answer has no Nelkap-SDK header"},
		"our header, a page":    {writes(200, page, html, sdk), call.Unusable, "200 text/html, not Nelkap's"},
		"our answer, as 201":    {writes(201, "{}", ourType, sdk), call.Unusable, "201"},
		"nothing":               {writes(204, ""), call.Unusable, "the app answered 204 without a content type"},
		"compressed":            {writes(200, "\x1f\x8b", ourType, sdk, "Content-Encoding: gzip"), call.Unusable, "compressed (gzip), which was not asked for"},
		"bad request":           {writes(400, "no", "Content-Type: text/plain"), call.Unusable, "400 text/plain"},
		"unauthorized":          {writes(401, page, html), call.Unusable, "answered 401: exclude this path from your login middleware"},
		"forbidden":             {writes(403, page, html), call.Unusable, "answered 403: exclude this path"},
		"not found":             {writes(404, page, html), call.Unusable, "answered 404 for /api/nelkap: is the path right"},
		"wrong method":          {writes(405, ""), call.Unusable, "must take POST"},
		"gone":                  {writes(410, ""), call.Unusable, "answered 410 for /api/nelkap"},
		"too large":             {writes(413, "limit: 100kb", html), call.Unusable, "answered 413: its limit for a request's body is less than the 15 bytes of this call. Raise it to 16 MiB for this path. It began: limit: 100kb"},
		"wrong type":            {writes(415, ""), call.Unusable, "let application/vnd.nelkap+json through"},
		"too many":              {writes(429, ""), call.Unusable, "raise its rate limit"},
		"request timeout":       {writes(408, ""), call.Silent, "408"},
		"error":                 {writes(500, "Internal Server Error", html), call.Silent, "answered 500, not Nelkap's answer: see its log. It began: Internal Server Error"},
		"bad gateway":           {writes(502, page, html), call.Lost, "something before the app answered 502"},
		"unavailable":           {writes(503, page, html), call.Lost, "503"},
		"gateway timeout":       {writes(504, page, html), call.Silent, "504"},
		"an unknown 5xx":        {writes(599, ""), call.Silent, "599"},
		"headers without end":   {writes(200, "{}", ourType, sdk, "X-Long: "+strings.Repeat("x", 100<<10)), call.Unusable, "can't be read as HTTP"},
		"ours without a code":   {writes(401, "{}", "Content-Type: application/problem+json", sdk), call.Unusable, "without a code"},
		"ours, failed":          {writes(500, `{"code":"internal","detail":"a bug"}`, "Content-Type: application/problem+json", sdk), call.Silent, "the app's SDK failed (internal): a bug"},
		"ours, failed silently": {writes(500, ``, "Content-Type: application/problem+json", sdk), call.Silent, "did not say why"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			outcome := newCaller(t, call.Options{}).Do(t.Context(), request(app(t, test.handler)))
			if outcome.Kind != test.kind || !strings.Contains(outcome.Reason, test.reason) {
				t.Errorf("outcome: %+v\nwant %v with a reason like %q", outcome, test.kind, test.reason)
			}
			if outcome.Body != nil {
				t.Errorf("a stranger's body is handed on: %s", outcome.Body)
			}
			if needs := outcome.Status == 413; outcome.NeedsPerson() != needs {
				t.Errorf("NeedsPerson: %v, want %v", !needs, needs)
			}
		})
	}
}

// Rule C14.
func TestNoRedirectIsFollowed(t *testing.T) {
	count := 0
	url := app(t, func(w http.ResponseWriter, r *http.Request) {
		count++
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	newCaller(t, call.Options{}).Do(t.Context(), request(url))
	if count != 1 {
		t.Errorf("the app was asked %d times", count)
	}
}

// Rule C14.
func TestRefusalsOfTheSDK(t *testing.T) {
	tests := []struct {
		status int
		code   string
		person bool
	}{
		{400, call.CodeBadRequest, false},
		{401, call.CodeUnsigned, true},
		{401, call.CodeBadSignature, true},
		{401, call.CodeClockDiffers, true},
		{404, call.CodeWorkflowUnknown, false},
		{413, call.CodeBodyTooLarge, true},
		{415, call.CodeBadContentType, true},
		{422, call.CodeProtocolUnsupported, true},
		{409, "of_a_newer_protocol", false},
	}
	for _, test := range tests {
		body := fmt.Sprintf(`{"type":"about:blank","title":"No","status":%d,"code":%q,"detail":"do <this>\u0000","appTime":"2026-11-29T12:00:00.000Z"}`, test.status, test.code)
		url := app(t, writes(test.status, body, "Content-Type: application/problem+json; charset=utf-8", sdk))
		outcome := newCaller(t, call.Options{}).Do(t.Context(), request(url))
		if outcome.Kind != call.Refused || outcome.Code != test.code || outcome.Detail != `do <this>\x00` || outcome.Status != test.status {
			t.Errorf("%s: %+v", test.code, outcome)
		}
		if outcome.NeedsPerson() != test.person {
			t.Errorf("%s: NeedsPerson is %v", test.code, !test.person)
		}
		if test.code == call.CodeClockDiffers && !strings.Contains(outcome.Reason, "2026-11-29T12:00:00.000Z in the app") {
			t.Errorf("%s does not name both clocks: %s", test.code, outcome.Reason)
		}
	}
}

// Rule C1.
func TestConnectionsThatBreak(t *testing.T) {
	tests := map[string]func(net.Conn){
		"closed":         func(net.Conn) {},
		"reset":          func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) },
		"in the status":  func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 2") },
		"in the headers": func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nNelkap-S") },
		"in our answer": func(c net.Conn) {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s\r\n%s\r\nContent-Length: 100\r\n\r\n{", sdk, ourType)
		},
		"in our chunked answer": func(c net.Conn) {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s\r\n%s\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{", sdk, ourType)
		},
	}
	for name, last := range tests {
		t.Run(name, func(t *testing.T) {
			a := newRawApp(t, func(e exchange) bool { last(e.conn); return false })
			if outcome := newCaller(t, call.Options{}).Do(t.Context(), request(a.url())); outcome.Kind != call.Lost || outcome.Err == nil {
				t.Errorf("outcome: %+v", outcome)
			}
		})
	}
	t.Run("what is no HTTP", func(t *testing.T) {
		a := newRawApp(t, func(e exchange) bool { _, _ = io.WriteString(e.conn, "SSH-2.0-OpenSSH_9.9\r\n\r\n"); return false })
		if outcome := newCaller(t, call.Options{}).Do(t.Context(), request(a.url())); outcome.Kind != call.Unusable {
			t.Errorf("outcome: %+v", outcome)
		}
	})
}

func TestAnswersHaveALimit(t *testing.T) {
	fill := strings.Repeat("x", 1<<20)
	write := func(bytes int, declared bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(wire.HeaderSDK, "go/0.1.0")
			w.Header().Set("Content-Type", wire.ContentType)
			if declared {
				w.Header().Set("Content-Length", fmt.Sprint(bytes))
			}
			for bytes > 0 {
				n, err := io.WriteString(w, fill[:min(bytes, len(fill))])
				if err != nil {
					return
				}
				bytes -= n
			}
		}
	}
	const endless = 1 << 40
	tests := map[string]struct {
		handler http.HandlerFunc
		kind    call.Kind
	}{
		"just as large as allowed": {write(wire.CallBytesMax, false), call.Answered},
		"a byte too large":         {write(wire.CallBytesMax+1, false), call.Unusable},
		"declared too large":       {write(wire.CallBytesMax+1, true), call.Unusable},
		"endless":                  {write(endless, false), call.Unusable},
		"a stranger's endless one": {func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := io.WriteString(w, fill); err != nil {
					return
				}
			}
		}, call.Unusable},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if outcome := newCaller(t, call.Options{}).Do(t.Context(), request(app(t, test.handler))); outcome.Kind != test.kind {
				t.Errorf("outcome: %v %s", outcome.Kind, outcome.Reason)
			}
		})
	}
}

func TestAStrangersDripDoesNotHoldTheCall(t *testing.T) {
	url := app(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "<p>drip")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	caller := newCaller(t, call.Options{})
	caller.Shorten(20 * time.Millisecond)
	outcome := caller.Do(t.Context(), request(url))
	if outcome.Kind != call.Unusable || !strings.HasSuffix(outcome.Reason, "It began: <p>drip") {
		t.Errorf("outcome: %+v", outcome)
	}
}

func TestExcerpt(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"one line":         {" a\r\n\t b ", "a b"},
		"what prints":      {"é 😀 <b>", "é 😀 <b>"},
		"what does not":    {"a\x00\x1b[31m\u202e", `a\x00\x1b[31m\u202e`},
		"not UTF-8":        {"a\xff\xfe", `a\xff\xfe`},
		"cut between runs": {strings.Repeat("😀", 201), strings.Repeat("😀", 200) + "…"},
		"just fits":        {strings.Repeat("é", 200), strings.Repeat("é", 200)},
	}
	for name, test := range tests {
		if got := call.Excerpt(test.text); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
