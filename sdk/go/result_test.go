package nelkap_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
)

// trip answers requests in the server's place.
type trip func(r *http.Request) (*http.Response, error)

func (t trip) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// A wait for a run's end that breaks after the server has held it for long is tried again for as long as any request is: what it was held
// for was no failure.
func TestAResultOutlivesARestartThatComesLateInAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var asked int
		app := nelkap.New(nelkap.Options{URL: "http://server.test", HTTPClient: &http.Client{Transport: trip(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost {
				return respond(201, map[string]any{"id": "run_1", "created": true}), nil
			}
			switch asked++; {
			case asked == 1:
				select {
				case <-time.After(29 * time.Second):
				case <-r.Context().Done():
				}
				return nil, errors.New("the connection broke")
			case time.Since(begun) < 50*time.Second:
				return nil, errors.New("connection refused")
			}
			return respond(200, map[string]any{"id": "run_1", "status": "completed", "output": 7}), nil
		})}})
		run, err := nelkap.Run(t.Context(), child(app), "x")
		if err != nil {
			t.Fatal(err)
		}
		if out, err := run.Result(t.Context()); err != nil || out != 7 {
			t.Errorf("%d, %v after %v", out, err, time.Since(begun))
		}
	})
}
