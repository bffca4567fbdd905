package httpapi_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nelkap/nelkap/internal/httpapi"
	"github.com/nelkap/nelkap/internal/store/memory"
)

// pausing is a body that comes in part, and pauses until it is let go on.
type pausing struct {
	*sending
	part   io.Reader
	rest   chan io.Reader
	goesOn io.Reader
}

func (p *pausing) Read(b []byte) (int, error) {
	if n, err := p.part.Read(b); !errors.Is(err, io.EOF) {
		return n, err
	}
	if p.goesOn == nil {
		p.sent <- answer{}
		p.goesOn = <-p.rest
	}
	return p.goesOn.Read(b)
}

// sending gives an answer when it is sent, which may be before all of its request is here.
type sending struct {
	*httptest.ResponseRecorder
	sent chan answer // and an empty one for a pause of its request
}

func newSending() *sending { return &sending{httptest.NewRecorder(), make(chan answer, 3)} }

func (s *sending) Flush() { s.sent <- answer{s.Code, s.Header(), s.Body.String()} }

// brokenOff is what follows a part where the sender goes away.
type brokenOff struct{}

func (brokenOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// Bodies that come without a key have a bounded memory together, however many senders pause in the middle. What is small always passes,
// and what was refused for want of room passes once there is some.
func TestLargeBodiesThatPauseAreBounded(t *testing.T) {
	kept := memory.New()
	s := startOn(t, kept, false)
	api := httpapi.New(httpapi.Options{Engine: s.engine, Reader: kept})
	post := func(path string, w *sending, body io.Reader) answer {
		go func() {
			api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, body))
			w.Flush()
		}()
		return <-w.sent
	}
	part := strings.Repeat(" ", 9*mebi) // it has room for 16
	var paused []*pausing
	for {
		p := &pausing{sending: newSending(), part: strings.NewReader(part), rest: make(chan io.Reader, 1)}
		if a := post("/v1/ends", p.sending, p); a.status != 0 {
			if a.problem(t, http.StatusTooManyRequests, "busy"); a.header.Get("Retry-After") == "" {
				t.Error("it does not say when to try again")
			}
			p.rest <- brokenOff{}
			break
		}
		if paused = append(paused, p); len(paused) > 16 {
			t.Fatal("more than 256 MiB were taken in")
		}
	}
	if len(paused) < 14 {
		t.Errorf("only %d bodies had room", len(paused))
	}
	if a := post("/hooks/any", newSending(), strings.NewReader(strings.Repeat("x", 60<<10))); a.status != http.StatusOK {
		t.Errorf("a small body: %d %s", a.status, a.body)
	}
	for i, p := range paused {
		want, rest := http.StatusOK, io.Reader(strings.NewReader(`{"process":"p","ends":[]}`))
		if i > 0 {
			want, rest = http.StatusBadRequest, brokenOff{}
		}
		p.rest <- rest
		if a := <-p.sent; a.status != want {
			t.Errorf("a body that paused: %d %s", a.status, a.body)
		}
	}
	for range 18 { // 288 MiB of room in all: what is done is given back
		post("/v1/ends", newSending(), io.MultiReader(strings.NewReader(part), brokenOff{})).problem(t, http.StatusBadRequest, "bad_request")
	}
}

// Many clients read no answer before they have sent all of their request: a refusal must not be lost to them in a connection that closes.
func TestARefusalReachesAClientThatSendsAllFirst(t *testing.T) {
	s := start(t)
	for _, refused := range []struct {
		path, key string
		status    int
		code      string
	}{
		{"/v1/runs", apiKey, http.StatusRequestEntityTooLarge, "body_too_large"},
		{"/v1/events", apiKey, http.StatusRequestEntityTooLarge, "body_too_large"},
		{"/hooks/any", apiKey, http.StatusRequestEntityTooLarge, "body_too_large"},
		{"/v1/runs", "another key", http.StatusUnauthorized, "unauthorized"},
		{"/v1/nothing", apiKey, http.StatusNotFound, "not_found"},
	} {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+refused.path, strings.NewReader(`"`+strings.Repeat("x", 14*mebi)+`"`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+refused.key)
		request.Header.Set("Content-Type", "application/json")
		if err := request.Write(conn); err != nil {
			t.Fatalf("%s: the connection closed before all was sent: %v", refused.path, err)
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), request)
		if err != nil {
			t.Fatalf("%s: no answer: %v", refused.path, err)
		}
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		answer{response.StatusCode, response.Header, string(text)}.problem(t, refused.status, refused.code)
	}
}
