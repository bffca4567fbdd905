package nelkap_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// C4: a call that has travelled for long may have been delivered before.
func TestOldCallsBindFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			return step.Do(ctx, "a", func(context.Context) error { return nil })
		}))
		s.sentAt = time.Now().Add(-6 * time.Second)
		if a := s.call("w", nil); a.Type != "completed" || len(s.requests) != 2 {
			t.Errorf("answer %+v after %d requests", a, len(s.requests))
		}
		// The same call delivered again, late: another playing holds it.
		body := s.callMessage("w", nil)
		s.serve(signed(t.Context(), body))
		if a := s.serve(signed(t.Context(), body)); a.Type != "over" {
			t.Errorf("the second playing answered %+v", a)
		}
	})
}

// C4: with clocks an hour apart, what is old is told by the server's, which its answers show.
func TestOldCallsAreToldByTheServersClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		bodies := 0
		oneStep(s, &bodies, 0)
		s.fault = func(r *http.Request, body []byte) *http.Response {
			if r.URL.Path != "/v1/saves" {
				return nil
			}
			s.mu.Unlock()
			answer := s.save(body).(map[string]any)
			s.mu.Lock()
			answer["time"] = time.Now().Add(time.Hour)
			return respond(200, answer)
		}
		for _, c := range []struct {
			sentAt   time.Time
			requests int // a call that binds first has one more
		}{{time.Time{}, 1}, {time.Now().Add(time.Hour), 1}, {time.Now().Add(time.Hour - 10*time.Second), 2}} {
			s.entries, s.requests, s.sentAt = nil, nil, c.sentAt
			if a := s.call("one step", nil); a.Type != "completed" || len(s.requests) != c.requests {
				t.Errorf("sent at %v: answer %+v after %d requests, want %d", c.sentAt, a, len(s.requests), c.requests)
			}
		}
	})
}

// C4: nobody waits for a call whose connection is closed already, and it may be played elsewhere by now.
func TestCallsOfClosedConnectionsBindFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		bodies := 0
		oneStep(s, &bodies, 0)
		ctx, closeConnection := context.WithCancel(t.Context())
		closeConnection()
		s.callWith(ctx, "one step", nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		var saves []string
		for _, r := range s.requests {
			if r.path == "/v1/saves" {
				saves = append(saves, string(r.body))
			}
		}
		if len(saves) != 2 || strings.Contains(saves[0], `"op"`) || bodies != 1 || len(s.ends) != 1 {
			t.Errorf("%d bodies, ends %+v, saves %q", bodies, s.ends, saves)
		}
	})
}
