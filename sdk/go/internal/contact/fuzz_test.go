package contact

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// says answers every request alike.
type says struct {
	status int
	kind   string
	body   []byte
}

func (s says) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: s.status, Header: http.Header{"Content-Type": {s.kind}}, Body: io.NopCloser(bytes.NewReader(s.body)), Request: r}, nil
}

// FuzzAnswer: whatever answers a save, an end or a question for a page, each is told exactly once what became of it, and nothing but
// a whole answer of the server's counts as one.
func FuzzAnswer(f *testing.F) {
	f.Add(200, "application/json", []byte(`{"time":"2026-01-01T00:00:00.000Z","saves":[{"call":"c","status":"accepted","items":[{"status":"saved","entry":1}]}]}`))
	f.Add(200, "application/json", []byte(`{"saves":[],"ends":[{"call":"c","status":"ended"}]}`))
	f.Add(200, "application/json", []byte(`{"saves":[null,null]}`))
	f.Add(200, "text/html", []byte("<!doctype html>"))
	f.Add(200, "application/json", []byte(`{"time":"0000-01-01T00:00:00Z","entries":[{"entry":-1}],"next":-1}`))
	f.Add(409, "application/problem+json", []byte(`{"code":"superseded"}`))
	f.Add(413, "", []byte("no"))
	f.Add(500, "application/json", []byte(`{"status":7}`))
	f.Fuzz(func(t *testing.T, status int, kind string, body []byte) {
		if status < 200 || status > 599 {
			return // no server's
		}
		logger := slog.New(slog.DiscardHandler)
		d := NewProcess().Destination("http://x.test", Settings{Client: &http.Client{Transport: says{status, kind, body}}, Logger: logger})
		saved, ended := make(chan *wire.Outcome, 2), make(chan *wire.EndOutcome, 2)
		d.Save(save("c", 1), "", func(o *wire.Outcome) { saved <- o })
		d.End(&wire.End{Call: "c", End: &wire.Answer{Type: wire.AnswerOver}}, func(o *wire.EndOutcome) { ended <- o })
		if o := <-saved; o != nil && (status != http.StatusOK || kind == "") {
			t.Errorf("status %d %s, and the save's outcome is %+v", status, kind, o)
		}
		if o := <-ended; o != nil && (status != http.StatusOK || kind == "") {
			t.Errorf("status %d %s, and the end's outcome is %+v", status, kind, o)
		}
		page, err := d.Page(t.Context(), &Call{ID: "c", Token: "t", Nonce: "n"}, 0)
		if (page == nil) != (err != nil) || page != nil && status != http.StatusOK {
			t.Errorf("page %+v, error %v", page, err)
		}
		if len(saved)+len(ended) > 0 {
			t.Error("told twice")
		}
	})
}
