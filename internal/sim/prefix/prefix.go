// Package prefix plays a finished run's history again, cut at every entry, through the app's real SDK: whatever was saved when a call
// was cut off, the next one must take the same path and be shown the same values.
//
// It decides what the same path is: no body of a saved step runs, the steps that are saved anew are those of the history, in its
// order, a call that can only wait suspends with exactly the waits that the history has next, and else the call ends as the run did.
// Where the code has branches, bodies that run side by side must settle in the history's order: whoever plays sees to that.
// It is the server of the calls that it makes. Tests of any package that has a history may use it.
package prefix

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
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
	// Branched says that the code has branches: several waits may be open, and one that failed leaves what others have not begun.
	Branched bool
}

// Server is what the app's SDK speaks to while a history is played. Give it to the app's HTTP client as its transport.
type Server struct {
	mu      sync.Mutex
	history History
	cut     int
	known   int // entries that the code has been told of
	waiting map[wire.StepRef]bool
	astray  bool // branches came in another order, which the history does not decide: the call ends there
	err     error
}

// ErrDiverged is wrapped by what Play gives when the code takes another path than the history.
var ErrDiverged = errors.New("the code takes another path than the history")

// Play calls the app with the first entries of the history, and checks that the call goes on as the run did. keys sign the call; they
// may be none.
func (s *Server) Play(ctx context.Context, app http.Handler, keys signature.Keys, h History, entries int) error {
	s.mu.Lock()
	s.history, s.cut, s.known, s.waiting, s.astray, s.err = h, entries, entries, map[wire.StepRef]bool{}, false, nil
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
	if s.astray {
		return nil
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
	case end.Type == wire.Suspended:
		return s.judgeWaits(&end)
	case s.known != len(s.history.Entries) && !s.history.Branched:
		return fmt.Errorf("%w: after entry %d it saved %d of %d steps", ErrDiverged, s.cut, s.known-s.cut, len(s.history.Entries)-s.cut)
	case end.Type != want.Type, string(end.Output) != string(want.Output):
		return fmt.Errorf("%w: the call ended as %s with %s, and the run as %s with %s", ErrDiverged, end.Type, end.Output, want.Type, want.Output)
	}
	return nil
}

// judgeWaits compares what a call waits for with what the history has next.
func (s *Server) judgeWaits(end *wire.End) error {
	if s.known == len(s.history.Entries) {
		return fmt.Errorf("%w: after entry %d the call waits for %+v, and the history has ended", ErrDiverged, s.known, end.Waits)
	}
	for _, item := range end.Register {
		if err := s.register(item); err != nil {
			return err
		}
	}
	next := s.history.Entries[s.known]
	found := false
	for _, leaf := range end.Waits {
		if leaf.Wait == nil || !s.waiting[*leaf.Wait] {
			return fmt.Errorf("%w: after entry %d the call waits for %+v, which it has not registered", ErrDiverged, s.known, leaf)
		}
		// Before it may come what another branch's failure left behind.
		found = found || *leaf.Wait == refOf(next) || s.history.Branched && s.find(*leaf.Wait) >= s.known
	}
	if !found || len(end.Waits) > 1 && !s.history.Branched {
		return fmt.Errorf("%w: after entry %d the call waits for %+v, and the history goes on with %s/%d", ErrDiverged, s.known, end.Waits, next.Name, next.Number)
	}
	return nil
}

// register takes in a wait: where the history has its entry, it is of that kind, and comes later.
func (s *Server) register(item wire.Item) error {
	ref := wire.StepRef{Name: item.Name, Number: item.Number}
	if at := s.find(ref); at >= 0 && (s.history.Entries[at].Kind != item.Kind || at < s.known) {
		return fmt.Errorf("%w: step %s/%d is registered as %q after entry %d, and the history has it as %q in entry %d", ErrDiverged,
			ref.Name, ref.Number, item.Kind, s.known, s.history.Entries[at].Kind, at+1)
	}
	s.waiting[ref] = true
	return nil
}

// find gives the place of a step in the history; -1 where it has none.
func (s *Server) find(ref wire.StepRef) int {
	return slices.IndexFunc(s.history.Entries, func(e wire.Entry) bool { return e.Name == ref.Name && e.Number == ref.Number })
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
		var poll wire.Heartbeat
		if err := wire.Decode(body, &poll); err != nil {
			return nil, err
		}
		answer = s.poll(poll)
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
			outcome, err := s.take(item)
			if s.err = cmp.Or(s.err, err); s.err != nil || s.astray {
				break
			}
			out.Items = append(out.Items, outcome)
		}
		if s.err != nil || s.astray { // it need not go on
			answer.Saves = append(answer.Saves, wire.SaveOutcome{Call: save.Call, Status: wire.Ended})
			continue
		}
		out.Entries = s.after(save.Seen)
		answer.Saves = append(answer.Saves, out)
	}
	return answer
}

// after gives the entries after one that the code has seen. Waits that the history has next are over (H2).
func (s *Server) after(seen int64) (entries []wire.Entry) {
	for s.known < len(s.history.Entries) && s.waiting[refOf(s.history.Entries[s.known])] {
		s.known++
	}
	for _, entry := range s.history.Entries[s.cut:s.known] {
		if entry.Entry > seen {
			entries = append(entries, entry)
		}
	}
	return entries
}

// poll answers with the news of the call.
func (s *Server) poll(sent wire.Heartbeat) wire.HeartbeatAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := wire.HeartbeatAnswer{Time: wire.At(time.Now()), Calls: []wire.News{}}
	for _, named := range sent.Calls {
		if named.Seen == nil {
			continue
		}
		if entries := s.after(*named.Seen); len(entries) > 0 {
			answer.Calls = append(answer.Calls, wire.News{Call: named.Call, Nonce: named.Nonce, Status: wire.NewEntries, Entries: entries})
		}
	}
	return answer
}

func refOf(e wire.Entry) wire.StepRef { return wire.StepRef{Name: e.Name, Number: e.Number} }

// notSoon is a pause that no call waits for.
const notSoon = time.Hour

// take takes in one item: what the history has of its step stands.
func (s *Server) take(item wire.Item) (wire.ItemOutcome, error) {
	ref := wire.StepRef{Name: item.Name, Number: item.Number}
	switch item.Op {
	case wire.OpStart:
		return wire.ItemOutcome{Status: wire.ItemStarted}, nil
	case wire.OpWait:
		return wire.ItemOutcome{Status: wire.ItemWaiting}, s.register(item)
	}
	at := s.find(ref)
	s.astray = s.astray || item.Op == wire.OpClaim && at > s.known && s.history.Branched
	switch {
	case at < 0 && s.history.Branched: // it threw, and was not tried again: another branch had failed
		return wire.ItemOutcome{Status: wire.ItemRetrying, Attempt: item.Attempt, RetryInMs: notSoon.Milliseconds()}, nil
	case at < 0:
		return wire.ItemOutcome{}, fmt.Errorf("step %s/%d runs, and the history goes on without it", ref.Name, ref.Number)
	case at < s.known || at > s.known && !s.history.Branched: // what another branch's failure left behind may come between
		return wire.ItemOutcome{}, fmt.Errorf("step %s/%d runs, and the history has it in entry %d, not %d", ref.Name, ref.Number, at+1, s.known+1)
	}
	s.known = at + 1
	return wire.ItemOutcome{Status: wire.ItemStands}, nil
}
