// Package prefix plays a finished run's history again, cut at every entry, through the app's real SDK: whatever was saved when a call
// was cut off, the next one must take the same path and be shown the same values.
//
// It decides what the same path is: no body of a saved step runs, the steps that are saved anew are those of the history, in its
// order, and the call ends as the run did. It is the server of the calls that it makes. Tests of any package that has a history may
// use it.
package prefix

import (
	"bytes"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/nelkap/nelkap/internal/signature"
	"github.com/nelkap/nelkap/internal/wire"
)

// History is a run that has ended, as one version of its app's code played it.
type History struct {
	Call    wire.Call    // any call of the run; what it says of steps is not used
	Entries []wire.Entry // the whole history
	End     wire.End     // how the last call ended: completed or failed
}

// Server is what the app's SDK speaks to while a history is played. Give it to the app's HTTP client as its transport.
type Server struct {
	mu      sync.Mutex
	history History
	cut     int
	saved   int // entries that the code has saved again
	err     error
}

// ErrDiverged is wrapped by what Play gives when the code takes another path than the history.
var ErrDiverged = errors.New("the code takes another path than the history")

// Play calls the app with the first entries of the history, and checks that the call goes on as the run did. keys sign the call; they
// may be none.
func (s *Server) Play(ctx context.Context, app http.Handler, keys signature.Keys, h History, entries int) error {
	s.mu.Lock()
	s.history, s.cut, s.saved, s.err = h, entries, 0, nil
	s.mu.Unlock()
	message := h.Call
	message.Steps = wire.Steps{Entries: h.Entries[:entries], Retrying: []wire.Retrying{}}
	message.Call.SentAt, message.Call.Cuts = wire.At(time.Now()), 0
	message.Call.ID = fmt.Sprintf("%s-%d", h.Call.Call.ID, entries)
	body, err := wire.Encode(message)
	if err != nil {
		return err
	}
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(body))
	request.Header.Set("Content-Type", wire.ContentType)
	request.Header.Set(wire.HeaderProtocol, fmt.Sprint(wire.Version))
	keys.Sign(request.Header, message.Call.ID, time.Now(), body)
	answer := httptest.NewRecorder()
	app.ServeHTTP(answer, request)
	return s.judge(answer)
}

// judge compares the call's end with the run's.
func (s *Server) judge(answer *httptest.ResponseRecorder) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return fmt.Errorf("%w: %w", ErrDiverged, s.err)
	}
	var end wire.End
	if answer.Code != http.StatusOK {
		return fmt.Errorf("%w: the call was answered %d %s", ErrDiverged, answer.Code, answer.Body)
	}
	if err := wire.Decode(answer.Body.Bytes(), &end); err != nil {
		return err
	}
	want := s.history.End
	switch {
	case s.cut+s.saved != len(s.history.Entries):
		return fmt.Errorf("%w: after entry %d it saved %d of %d steps", ErrDiverged, s.cut, s.saved, len(s.history.Entries)-s.cut)
	case end.Type != want.Type, string(end.Output) != string(want.Output):
		return fmt.Errorf("%w: the call ended as %s with %s, and the run as %s with %s", ErrDiverged, end.Type, end.Output, want.Type, want.Output)
	}
	return nil
}

// RoundTrip implements http.RoundTripper. A body that is not in the history's saved part may return what it likes: it is told what
// the history has.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var answer any
	switch r.URL.Path {
	case "/v1/saves":
		var saves wire.Saves
		if err := wire.Decode(body, &saves); err != nil {
			return nil, err
		}
		answer = s.save(saves)
	case "/v1/heartbeats":
		answer = wire.HeartbeatAnswer{Time: wire.At(time.Now()), Calls: []wire.News{}}
	default: // a send
		answer = map[string]any{"id": "run_00000000000000000000000001", "created": true}
		if r.URL.Path == "/v1/events" {
			answer = []any{answer}
		}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)), Request: r,
	}, nil
}

func (s *Server) save(saves wire.Saves) wire.SavesAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := wire.SavesAnswer{Time: wire.At(time.Now()), Saves: []wire.SaveOutcome{}}
	for _, save := range saves.Saves {
		out := wire.SaveOutcome{Call: save.Call, Status: wire.Accepted, Items: []wire.ItemOutcome{}}
		for _, item := range save.Items {
			next := s.cut + s.saved
			switch {
			case item.Op == wire.OpStart:
				out.Items = append(out.Items, wire.ItemOutcome{Status: wire.ItemStarted})
				continue
			case next >= len(s.history.Entries):
				s.err = errors.Join(s.err, fmt.Errorf("step %s/%d runs, and the history has ended", item.Name, item.Number))
				return answer
			}
			entry := s.history.Entries[next]
			if entry.Name != item.Name || entry.Number != item.Number {
				s.err = errors.Join(s.err, fmt.Errorf("step %s/%d runs, and the history goes on with %s/%d", item.Name, item.Number, entry.Name, entry.Number))
				return answer
			}
			s.saved++
			out.Items = append(out.Items, wire.ItemOutcome{Status: wire.ItemStands})
			out.Entries = append(out.Entries, entry)
		}
		answer.Saves = append(answer.Saves, out)
	}
	return answer
}
