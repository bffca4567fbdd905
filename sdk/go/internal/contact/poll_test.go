package contact

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// teller answers the first poll with an entry, and holds the others.
type teller struct {
	mu   sync.Mutex
	seen []int64
}

func (s *teller) RoundTrip(r *http.Request) (*http.Response, error) {
	var message heartbeat
	if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.seen = append(s.seen, message.Calls[0].Seen)
	first := len(s.seen) == 1
	s.mu.Unlock()
	text := `{"time":"2026-01-01T00:00:00.000Z","calls":[]}`
	if first {
		text = `{"time":"2026-01-01T00:00:00.000Z","calls":[{"call":"c","nonce":"n","status":"entries","entries":[{"entry":3,"kind":"sleep","name":"s","number":1,"status":"completed"}]}]}`
	} else {
		select {
		case <-time.After(time.Duration(message.WaitMs) * time.Millisecond):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// Rule H2.
func TestPollsSayWhatTheCallHasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &teller{}
		d := NewProcess().Destination("http://x.test", Settings{Client: &http.Client{Transport: s}, Logger: slog.New(slog.DiscardHandler)})
		var told []wire.Entry
		c := &Call{ID: "c", Token: "t", Nonce: "n", Heartbeat: 5 * time.Second}
		c.News = func(n *wire.News) {
			told = append(told, n.Entries...)
			c.Saw(3)
		}
		c.Saw(2)
		d.Join(c)
		time.Sleep(2 * time.Second)
		d.Leave(c)
		synctest.Wait()
		if diff := cmp.Diff([]int64{2, 3}, s.seen); diff != "" {
			t.Errorf("polls have seen (-want +got):\n%s", diff)
		}
		if len(told) != 1 || told[0].Entry != 3 {
			t.Errorf("told %+v", told)
		}
	})
}
