package httpapi_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nelkap/nelkap/internal/httpapi"
	"github.com/nelkap/nelkap/internal/store/memory"
)

// pausing is a body that comes in part, and pauses until it is let go on.
type pausing struct {
	part   io.Reader
	paused chan struct{} // closed once the part has been read
	rest   chan io.Reader
	goesOn io.Reader
}

func (p *pausing) Read(b []byte) (int, error) {
	if n, err := p.part.Read(b); !errors.Is(err, io.EOF) {
		return n, err
	}
	if p.goesOn == nil {
		close(p.paused)
		p.goesOn = <-p.rest
	}
	return p.goesOn.Read(b)
}

// brokenOff is what follows a part where the sender goes away.
type brokenOff struct{}

func (brokenOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// Bodies that come without a key have a bounded memory together, however many senders pause in the middle. What is small always passes,
// and what was refused for want of room passes once there is some.
func TestLargeBodiesThatPauseAreBounded(t *testing.T) {
	kept := memory.New()
	s := startOn(t, kept, false)
	api := httpapi.New(httpapi.Options{Engine: s.engine, Reader: kept})
	post := func(path string, body io.Reader) answer {
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, body))
		return answer{w.Code, w.Header(), w.Body.String()}
	}
	part := strings.Repeat(" ", 9*mebi) // it has room for 16
	answers := make(chan answer)
	var paused []*pausing
	for {
		p := &pausing{part: strings.NewReader(part), paused: make(chan struct{}), rest: make(chan io.Reader, 1)}
		go func() { answers <- post("/v1/ends", p) }()
		select {
		case <-p.paused:
			if paused = append(paused, p); len(paused) > 16 {
				t.Fatal("more than 256 MiB were taken in")
			}
			continue
		case a := <-answers:
			if a.problem(t, http.StatusTooManyRequests, "busy"); a.header.Get("Retry-After") == "" {
				t.Error("it does not say when to try again")
			}
		}
		break
	}
	if len(paused) < 14 {
		t.Errorf("only %d bodies had room", len(paused))
	}
	if a := post("/hooks/any", strings.NewReader(strings.Repeat("x", 60<<10))); a.status != http.StatusOK {
		t.Errorf("a small body: %d %s", a.status, a.body)
	}
	for i, p := range paused {
		want, rest := http.StatusOK, io.Reader(strings.NewReader(`{"process":"p","ends":[]}`))
		if i > 0 {
			want, rest = http.StatusBadRequest, brokenOff{}
		}
		p.rest <- rest
		if a := <-answers; a.status != want {
			t.Errorf("a body that paused: %d %s", a.status, a.body)
		}
	}
	for range 18 { // 288 MiB of room in all: what is done is given back
		post("/v1/ends", io.MultiReader(strings.NewReader(part), brokenOff{})).problem(t, http.StatusBadRequest, "bad_request")
	}
}
