package contact

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// server answers saves after delay, and keeps what it was sent.
type server struct {
	mu       sync.Mutex
	delay    time.Duration
	batches  [][]string // the calls of each request
	open     int
	openMost int
	refuse   string // a request with this call in it is answered 413
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	var message struct {
		Manifest string
		Saves    []struct{ Call string }
	}
	json.Unmarshal(body, &message)
	s.mu.Lock()
	s.open++
	s.openMost = max(s.openMost, s.open)
	var calls []string
	for _, save := range message.Saves {
		calls = append(calls, message.Manifest+save.Call)
	}
	s.batches = append(s.batches, calls)
	s.mu.Unlock()
	time.Sleep(s.delay)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	status, text := 200, `{"time":"2026-01-01T00:00:00.000Z","saves":[`+strings.TrimSuffix(strings.Repeat(`{"status":"accepted"},`, len(calls)), ",")+`]}`
	if s.refuse != "" && bytes.Contains(body, []byte(s.refuse)) {
		status, text = 413, "{}"
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)),
	}, nil
}

func destination(s *server) *Destination {
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	return NewProcess().Destination("http://x.test/", Settings{Client: &http.Client{Transport: s}, Logger: logger})
}

func save(call string, size int) *wire.Save {
	return &wire.Save{Call: call, Items: []*wire.Item{{Op: wire.OpCompleted, Output: json.RawMessage(strings.Repeat("1", size))}}}
}

func TestSavesThatArriveMeanwhileGoIntoTheNextRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{delay: time.Second}
		d := destination(s)
		done := 0
		var mu sync.Mutex
		add := func(call, manifest string) {
			d.Save(save(call, 10), manifest, func(o *wire.Outcome) {
				mu.Lock()
				defer mu.Unlock()
				if done++; o == nil || o.Status != wire.StatusAccepted {
					t.Errorf("%s: outcome %+v", call, o)
				}
			})
		}
		add("a", "m")
		synctest.Wait()
		for _, call := range []string{"b", "c"} {
			add(call, "m")
		}
		add("other", "n")
		add("d", "m")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want := [][]string{{"ma"}, {"mb", "mc", "md"}, {"nother"}}
		if got, _ := json.Marshal(s.batches); string(got) != `[["ma"],["mb","mc","md"],["nother"]]` {
			t.Errorf("requests %s, want %v", got, want)
		}
		if done != 5 || s.openMost != 1 {
			t.Errorf("%d outcomes, %d requests at once", done, s.openMost)
		}
		if offset := d.ServerTime(time.Now()).Year(); offset != 2026 {
			t.Errorf("the server's clock is taken to show the year %d", offset)
		}
	})
}

func TestBigSavesGoBesideAndHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{delay: time.Second}
		d := destination(s)
		var done sync.WaitGroup
		done.Add(11)
		started := time.Now()
		for range 10 {
			d.Save(save("big", wire.BesideBytes+1), "m", func(*wire.Outcome) { done.Done() })
		}
		d.Save(save("small", 10), "m", func(*wire.Outcome) {
			if took := time.Since(started); took != time.Second {
				t.Errorf("the small save took %v", took)
			}
			done.Done()
		})
		done.Wait()
		if s.openMost != besideMax+1 {
			t.Errorf("%d requests at once, want %d", s.openMost, besideMax+1)
		}
		for _, batch := range s.batches {
			if len(batch) != 1 {
				t.Errorf("a request of %v", batch)
			}
		}
	})
}

func TestRequestsStayBelowTheirSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{delay: time.Second}
		d := destination(s)
		var done sync.WaitGroup
		done.Add(100)
		for range 100 {
			d.Save(save("c", wire.BesideBytes-1000), "m", func(*wire.Outcome) { done.Done() })
		}
		done.Wait()
		for _, batch := range s.batches {
			if size := len(batch) * wire.BesideBytes; size > wire.RequestBytesMax {
				t.Errorf("a request of %d bytes", size)
			}
		}
	})
}

// Rule N3.
func TestSaveThatCanNotBeSentDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{delay: time.Second, refuse: "poison"}
		d := destination(s)
		var done sync.WaitGroup
		outcomes := map[string]bool{}
		var mu sync.Mutex
		for _, call := range []string{"first", "a", "poison", "b"} {
			done.Add(1)
			d.Save(save(call, 10), "m", func(o *wire.Outcome) {
				mu.Lock()
				defer mu.Unlock()
				outcomes[call] = o != nil
				done.Done()
			})
		}
		done.Wait()
		if got, _ := json.Marshal(outcomes); string(got) != `{"a":true,"b":true,"first":true,"poison":false}` {
			t.Errorf("outcomes %s", got)
		}
	})
}

func TestAppsShareADestinationUnlessTheyHaveClientsOfTheirOwn(t *testing.T) {
	p := NewProcess()
	own := &http.Client{}
	first := p.Destination("http://x.test", Settings{})
	if p.Destination("http://x.test/", Settings{APIKey: "key"}) != first || *first.key.Load() != "key" {
		t.Error("a second app has another destination, or its key was not taken")
	}
	other := p.Destination("http://x.test", Settings{Given: own})
	if other == first || other.process == first.process || p.Destination("http://x.test", Settings{Given: own}) != other {
		t.Error("a client of its own makes no destination of its own")
	}
	if p.Destination("http://y.test", Settings{}).process == first.process {
		t.Error("another address, which may be the same server's, has the same process")
	}
}

func TestNewsOfACallThatIsPlayedTwiceReachesItsPlaying(t *testing.T) {
	var heard []string
	call := func(nonce string) *Call {
		return &Call{ID: "c", Nonce: nonce, News: func(n *wire.News) { heard = append(heard, nonce+" "+n.Status) }}
	}
	tell(map[string]*Call{"a": call("a"), "b": call("b")}, []wire.News{
		{Call: "c", Nonce: "a", Status: wire.StatusSuperseded}, {Call: "c", Nonce: "b", Status: wire.StatusEnding}, {Call: "c", Nonce: "gone", Status: wire.StatusEnding},
	})
	if got := strings.Join(heard, ", "); got != "a superseded, b ending" {
		t.Errorf("heard %s", got)
	}
}

func TestWhatIsKeptForAServerThatIsAwayIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := destination(&server{})
		heard := make(chan string, 10)
		call := func(id string) *Call {
			return &Call{ID: id, Nonce: "n", News: func(n *wire.News) { heard <- n.Call + " " + n.Nonce + " " + n.Status }}
		}
		told := func() (all []string) {
			synctest.Wait()
			for len(heard) > 0 {
				all = append(all, <-heard)
			}
			return all
		}
		first, second, third := call("first"), call("second"), call("third")
		d.Keep(first, keptBytesMax/2)
		d.Keep(second, keptBytesMax/4)
		d.Keep(third, keptBytesMax/4)
		d.Keep(third, 1)
		d.Keep(third, keptBytesMax/4)
		if all := told(); all != nil {
			t.Errorf("told %q while all that is kept has room", all)
		}
		d.Keep(third, keptBytesMax/4+1)
		if all := told(); !slices.Equal(all, []string{"first n ended"}) {
			t.Errorf("told %q, want the first alone", all)
		}
		d.Keep(first, 0)
		d.Leave(second)
		d.Leave(second)
		d.Keep(third, 0)
		if d.keeping.bytes != 0 || len(d.keeping.calls) != 0 {
			t.Errorf("%d bytes of %d calls are kept in the end", d.keeping.bytes, len(d.keeping.calls))
		}
		d.Keep(first, keptBytesMax+1)
		if all := told(); !slices.Equal(all, []string{"first n ended"}) {
			t.Errorf("told %q of one that is too large alone", all)
		}
	})
}

// C11: else a clock that is set back would put the end of the silence off.
func TestSilenceIsCountedByAClockThatNobodySets(t *testing.T) {
	d := destination(&server{refuse: "refused"})
	done := make(chan struct{})
	d.Save(save("refused", 1), "m", func(*wire.Outcome) { close(done) })
	<-done
	if since := d.SilentSince(); since.IsZero() || since == since.Round(0) { //nolint:staticcheck // Round takes the monotonic reading off, which Equal does not see
		t.Errorf("silent since %v", since)
	}
}
