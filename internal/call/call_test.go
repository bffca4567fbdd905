package call_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/signature"
	"github.com/nelkap/nelkap/internal/wire"
)

const key = "a text of thirty-two bytes or more"

func TestACallArrivesSignedAndAsItWasWritten(t *testing.T) {
	keys, err := signature.ParseKeys("the newer text of thirty-two bytes", key)
	if err != nil {
		t.Fatal(err)
	}
	old, err := signature.ParseKeys(key)
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"type":"call","run":{"payload":"& < > \u2028 é 😀 1.0 1e21"}}`
	var verified error
	var header http.Header
	var got string
	url := app(t, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		header, got, verified = r.Header, string(raw), old.Verify(r.Header, raw, time.Now())
		answers(`{"type":"over"}`)(w, r)
	})
	r := request(url)
	r.Body = []byte(body)
	outcome := newCaller(t, call.Options{Keys: keys, Version: "0.1.0"}).Do(t.Context(), r)

	if outcome.Kind != call.Answered || string(outcome.Body) != `{"type":"over"}` || outcome.SDK != "go/0.1.0" || outcome.Status != 200 {
		t.Fatalf("outcome: %+v", outcome)
	}
	if verified != nil {
		t.Errorf("the app, with the older key, refuses it: %v", verified)
	}
	if got != body {
		t.Errorf("the body arrived as %s", got)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/vnd.nelkap+json", "Nelkap-Protocol": "1", "webhook-id": "call_1", "User-Agent": "nelkap/0.1.0",
		"Accept-Encoding": "", "Idempotency-Key": "", "Authorization": "",
	} {
		if header.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, header.Get(name), want)
		}
	}
}

func TestWithoutKeysACallIsNotSigned(t *testing.T) {
	var header http.Header
	url := app(t, func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		answers("{}")(w, r)
	})
	if outcome := newCaller(t, call.Options{}).Do(t.Context(), request(url)); outcome.Kind != call.Answered {
		t.Fatalf("outcome: %+v", outcome)
	}
	for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
		if header.Get(name) != "" {
			t.Errorf("%s is set", name)
		}
	}
}

func TestANameAndPasswordInTheURLAreSentAndNotShown(t *testing.T) {
	url := app(t, func(w http.ResponseWriter, r *http.Request) {
		if name, password, _ := r.BasicAuth(); name != "staging" || password != "s3cret" {
			t.Errorf("got %q and %q", name, password)
		}
		answers("{}")(w, r)
	})
	withPassword := strings.Replace(url, "http://", "http://staging:s3cret@", 1)
	if outcome := newCaller(t, call.Options{}).Do(t.Context(), request(withPassword)); outcome.Kind != call.Answered {
		t.Fatalf("outcome: %+v", outcome)
	}
	for _, url := range []string{"http://staging:s3cret@127.0.0.1:1/", "http://staging:s3cret@[::1", "ftp://staging:s3cret@example.com/"} {
		if outcome := newCaller(t, call.Options{}).Do(t.Context(), request(url)); strings.Contains(fmt.Sprintf("%+v", outcome), "s3cret") {
			t.Errorf("the outcome shows the password: %+v", outcome)
		}
	}
}

// The server never sends a call twice (C3). Go's transport would: this app closes an idle connection just as the next request
// has arrived on it, which is the case for which transports retry.
func TestACallIsNeverSentTwice(t *testing.T) {
	a := newRawApp(t, func(e exchange) bool {
		if e.number == 2 {
			return false
		}
		answer(e.conn, "{}")
		return true
	})
	keys, err := signature.ParseKeys(key)
	if err != nil {
		t.Fatal(err)
	}
	caller := newCaller(t, call.Options{Keys: keys})
	for i := range 50 {
		first, second := request(a.url()), request(a.url())
		first.ID, second.ID = fmt.Sprintf("first_%d", i), fmt.Sprintf("second_%d", i)
		if outcome := caller.Do(t.Context(), first); outcome.Kind != call.Answered {
			t.Fatalf("first call: %+v", outcome)
		}
		if outcome := caller.Do(t.Context(), second); outcome.Kind != call.Lost {
			t.Fatalf("second call: %+v", outcome)
		}
		if n := a.delivered(second.ID); n != 1 {
			t.Fatalf("the second call was delivered %d times", n)
		}
		if n := a.connected(); n != i+1 {
			t.Fatalf("%d connections after %d rounds: something was sent again", n, i+1)
		}
	}
}

// The app closes idle connections while the next request is on its way, at a moment that differs from round to round.
func TestAClosingIdleConnectionNeverHidesWhetherTheCallWasSent(t *testing.T) {
	idle := make(chan net.Conn, 1)
	a := newRawApp(t, func(e exchange) bool {
		answer(e.conn, "{}")
		if strings.HasPrefix(e.id, "first_") {
			idle <- e.conn
		}
		return true
	})
	keys, err := signature.ParseKeys(key)
	if err != nil {
		t.Fatal(err)
	}
	caller := newCaller(t, call.Options{Keys: keys})
	kinds := map[call.Kind]int{}
	for i := range 300 {
		first, second := request(a.url()), request(a.url())
		first.ID, second.ID = fmt.Sprintf("first_%d", i), fmt.Sprintf("second_%d", i)
		for caller.Do(t.Context(), first).Kind != call.Answered {
			first.ID += "'" // its connection was the one that closed in the round before
		}
		var closing sync.WaitGroup
		c := <-idle
		closing.Go(func() {
			if i%2 == 0 {
				_ = c.(*net.TCPConn).SetLinger(0) // a reset, not an end
			}
			_ = c.Close()
		})
		var sent bool
		second.Sent = func() { sent = true }
		outcome := caller.Do(t.Context(), second)
		closing.Wait()
		kinds[outcome.Kind]++
		switch n := a.delivered(second.ID); {
		case n > 1:
			t.Fatalf("round %d: delivered %d times", i, n)
		case outcome.Kind == call.NotSent && (n > 0 || sent):
			t.Fatalf("round %d: %+v, but delivered %d times, sent %v", i, outcome, n, sent)
		case outcome.Kind == call.Answered && (n != 1 || !sent):
			t.Fatalf("round %d: %+v, but delivered %d times, sent %v", i, outcome, n, sent)
		case outcome.Kind != call.Answered && outcome.Kind != call.NotSent && outcome.Kind != call.Lost:
			t.Fatalf("round %d: %+v", i, outcome)
		}
	}
	t.Logf("outcomes: %v", kinds)
}

func TestSentIsToldBeforeTheAnswerAndOnce(t *testing.T) {
	sent := make(chan struct{}, 2)
	url := app(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-sent // the answer comes only after it was told
		answers("{}")(w, r)
	})
	r := request(url)
	r.Body = []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
	r.Sent = func() { sent <- struct{}{} }
	if outcome := newCaller(t, call.Options{}).Do(t.Context(), r); outcome.Kind != call.Answered {
		t.Fatalf("outcome: %+v", outcome)
	}
	if len(sent) != 0 {
		t.Error("it was told twice")
	}
}

// Rule C3.
func TestACallThatIsLateIsNotSent(t *testing.T) {
	a := newRawApp(t, func(e exchange) bool { answer(e.conn, "{}"); return true })
	caller := newCaller(t, call.Options{})

	t.Run("from the start", func(t *testing.T) {
		r := request(a.url())
		r.SendBefore = time.Now().Add(-time.Millisecond)
		r.Sent = func() { t.Error("told that it was sent") }
		outcome := caller.Do(t.Context(), r)
		if outcome.Kind != call.NotSent || a.delivered("") != 0 {
			t.Errorf("outcome: %+v, delivered %d times", outcome, a.delivered(""))
		}
	})
	t.Run("because no connection came about", func(t *testing.T) {
		silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never shakes hands
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		r := request("https://" + silent.Addr().String() + "/")
		r.SendBefore = time.Now().Add(20 * time.Millisecond)
		r.Sent = func() { t.Error("told that it was sent") }
		outcome := caller.Do(t.Context(), r)
		if outcome.Kind != call.NotSent || !strings.Contains(outcome.Reason, "did not take a connection") {
			t.Errorf("outcome: %+v", outcome)
		}
	})
}

// Rule C3.
func TestWhatWasNeverSentIsVoid(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	plain := app(t, answers("{}"))
	encrypted := httptest.NewUnstartedServer(answers("{}"))
	encrypted.Config.ErrorLog = log.New(io.Discard, "", 0) // it tells of each caller that goes away
	encrypted.StartTLS()
	t.Cleanup(encrypted.Close)
	tests := map[string]struct{ url, reason string }{
		"nothing listens":         {closed.URL, "nothing listens at"},
		"no such name":            {"http://nelkap.invalid/", "can't be looked up"},
		"not TLS":                 {strings.Replace(plain, "http:", "https:", 1), "does not speak TLS"},
		"an unknown certificate":  {encrypted.URL, "signed by nobody that this server trusts"},
		"no scheme":               {"127.0.0.1:3000/api/nelkap", "the app's URL"},
		"another scheme":          {"file:///etc/passwd", "use http or https"},
		"no host":                 {"http:///api/nelkap", "names no host"},
		"no URL":                  {"", "use http or https"},
		"a number as address":     {"http://2852039166/latest/meta-data/", ""},
		"the host's metadata":     {"http://169.254.169.254/latest/meta-data/", "never an app's"},
		"the same, as IPv6":       {"http://[::ffff:169.254.169.254]/latest/meta-data/", "never an app's"},
		"the same, in hex":        {"http://[::ffff:a9fe:a9fe]/", "never an app's"},
		"the unspecified address": {"http://0.0.0.0:6355/", "reserved"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := request(test.url)
			r.Sent = func() { t.Error("told that it was sent") }
			outcome := newCaller(t, call.Options{}).Do(t.Context(), r)
			if outcome.Kind != call.NotSent || !strings.Contains(outcome.Reason, test.reason) || outcome.Err == nil {
				t.Errorf("outcome: %+v, want a reason with %q", outcome, test.reason)
			}
		})
	}
	t.Run("no body", func(t *testing.T) {
		if outcome := newCaller(t, call.Options{}).Do(t.Context(), call.Request{Target: call.Target{URL: plain, Private: true}}); outcome.Kind != call.NotSent {
			t.Errorf("outcome: %+v", outcome)
		}
	})
	t.Run("too large a body", func(t *testing.T) {
		r := request(plain)
		r.Body = make([]byte, wire.CallBytesMax+1)
		if outcome := newCaller(t, call.Options{}).Do(t.Context(), r); outcome.Kind != call.NotSent {
			t.Errorf("outcome: %+v", outcome)
		}
	})
	t.Run("stopped before", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if outcome := newCaller(t, call.Options{}).Do(ctx, request(plain)); outcome.Kind != call.NotSent || !errors.Is(outcome.Err, context.Canceled) {
			t.Errorf("outcome: %+v", outcome)
		}
	})
}

func TestACallOverTLS(t *testing.T) {
	server := httptest.NewTLSServer(answers(`{"type":"over"}`))
	t.Cleanup(server.Close)
	caller := newCaller(t, call.Options{})
	caller.Trust(server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs)
	for range 3 {
		sent := make(chan struct{}, 1)
		r := request(server.URL)
		r.Sent = func() { sent <- struct{}{} }
		if outcome := caller.Do(t.Context(), r); outcome.Kind != call.Answered || len(sent) != 1 {
			t.Fatalf("outcome: %+v, told %d times that it was sent", outcome, len(sent))
		}
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	stop := errors.New("the lease has ended")
	tests := map[string]func(http.ResponseWriter){
		"before the answer": func(http.ResponseWriter) {},
		"in the answer":     func(w http.ResponseWriter) { answers(`{"type":`)(w, nil); _ = http.NewResponseController(w).Flush() },
		"in a stranger's slow one": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusInternalServerError)
			_ = http.NewResponseController(w).Flush()
		},
	}
	for name, begin := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			url := app(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // so that the server watches the connection
				begin(w)
				cancel(stop)
				<-r.Context().Done()
			})
			outcome := newCaller(t, call.Options{}).Do(ctx, request(url))
			if outcome.Kind != call.Ended || !errors.Is(outcome.Err, stop) {
				t.Errorf("outcome: %+v", outcome)
			}
		})
	}
}

func TestManyCallsAtOnce(t *testing.T) {
	url := app(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answers(string(body))(w, r)
	})
	caller := newCaller(t, call.Options{})
	var wait sync.WaitGroup
	for worker := range 16 {
		wait.Go(func() {
			for i := range 20 {
				r := request(url)
				r.Body = fmt.Appendf(nil, `"%d of %d"`, i, worker)
				if outcome := caller.Do(t.Context(), r); outcome.Kind != call.Answered || string(outcome.Body) != string(r.Body) {
					t.Errorf("sent %s, outcome: %+v", r.Body, outcome)
				}
			}
		})
	}
	wait.Wait()
}
