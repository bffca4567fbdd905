package nelkap_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/signature"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

const testKey = "a key of at least thirty-two bytes"

// fakeServer is a dumb server in memory: one run at a time, no clock of its own, faults on request. It speaks to the app by
// calling its handler, and the app speaks to it through an http.RoundTripper.
type fakeServer struct {
	t   testing.TB
	app *nelkap.App

	mu       sync.Mutex
	url      string
	calls    int
	epochs   map[string]string // call id to token, of the calls that are current
	nonces   map[string]string // call id to nonce
	entries  []wire.Entry
	retrying map[string]wire.Retry
	waiting  []savedItem    // the waits that are open, in the order of their registration
	started  map[string]int // by step, the number of the call that recorded the start of one that runs at most once, or has a check
	foreign  map[int64]bool // the entries that no save made
	owned    bool           // another run owns every key
	ending   *wire.Ending
	closing  *wire.Closing // the run closes
	restarts int
	saves    []savedItem // every item that was accepted, in order
	lines    []savedLine
	requests []seenRequest
	ends     []endMessage
	polls    int
	pollNews func(call string) *wire.News // what a poll says of a call; nil: nothing, and it is held
	pollKick chan struct{}                // closed when polls must look again
	// fault may answer a request in the server's place; nil: no fault. It is called with mu held.
	fault func(r *http.Request, body []byte) *http.Response
	pages int // entries of a page; 0: all come with the call

	callURL     string
	cuts        int
	runAttempt  int
	limits      wire.Limits
	sentAt      time.Time
	heartbeatMs int64
	leaseMs     int64
	checkInMs   int64
	replayOf    string
}

type savedItem struct {
	Op, Kind, Name  string
	Number, Attempt int
	Output          json.RawMessage
	Error           *wire.Error
	Retriable       bool
	Retries         int
	RetryAfterMs    *int64
	Once            bool

	DelayMs, TimeoutMs, ForMs *int64
	Until                     string // of a sleep an instant, of a claim when it is freed
	Events                    []string
	Match                     json.RawMessage
	If, Since                 string
	Workflow, App             string
	Payload                   json.RawMessage
	Key                       string
	Of                        int
}

type seenRequest struct {
	method, path, auth string
	body               []byte
}

type endMessage struct {
	Call, Token, Nonce string
	End                struct {
		Type    string
		Output  json.RawMessage
		Error   *wire.Error
		Unsaved []savedItem
	}
}

func newServer(t testing.TB, options nelkap.Options) *fakeServer {
	s := &fakeServer{
		t: t, url: "http://" + strings.ToLower(strings.NewReplacer("/", "-", "_", "-", "#", "-").Replace(t.Name())) + ".test",
		epochs: map[string]string{}, nonces: map[string]string{}, retrying: map[string]wire.Retry{},
		started: map[string]int{}, foreign: map[int64]bool{},
		pollKick: make(chan struct{}), heartbeatMs: 5000, leaseMs: 300000, runAttempt: 1,
	}
	s.callURL = s.url
	if options.HTTPClient == nil {
		options.HTTPClient = &http.Client{Transport: s}
	}
	if options.SigningKey == "" {
		options.SigningKey = testKey
	}
	s.app = nelkap.New(options)
	return s
}

// answer is what the app answered to a call.
type answer struct {
	Status       int `json:"-"`
	Header       http.Header
	Type         string
	Code         string
	Nonce        string
	Manifest     string
	Output       json.RawMessage
	Error        *wire.Error
	Retriable    bool
	Retries      int
	RetryAfterMs *int64
	Seen         int64
	Register     []savedItem
	Waits        []wire.Wait
	Unsaved      []savedItem
	Excused      bool
	Detail       string
	Payload      json.RawMessage
	Logs         []savedLine
	Unasked      []wire.StepKind
	Asked        []wire.StepKind // of a verify, as is End
	End          string
}

// callMessage is the next call of the run.
func (s *fakeServer) callMessage(workflow string, payload any) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	id := fmt.Sprintf("call_%s_%d", s.t.Name(), s.calls)
	s.epochs = map[string]string{id: fmt.Sprintf("token%d", s.calls)}
	steps := map[string]any{"entries": s.entries, "next": nil}
	if s.pages > 0 {
		steps = map[string]any{"entries": []any{}, "next": 0}
	}
	var due []wire.Retry
	for _, r := range s.retrying {
		r.RetryInMs = 0
		due = append(due, r)
	}
	steps["retrying"] = due
	begun := []wire.StepRef{}
	for key := range s.started {
		name, number, _ := strings.Cut(key, "\x00")
		n, _ := strconv.Atoi(number)
		begun = append(begun, wire.StepRef{Name: name, Number: n})
	}
	steps["begun"] = begun
	open := []wire.Open{}
	for _, w := range s.waiting {
		open = append(open, wire.Open{Kind: w.Kind, Name: w.Name, Number: w.Number})
	}
	steps["waiting"] = open
	run := map[string]any{"id": "run_1", "workflow": workflow, "app": "shop", "root": "run_1", "attempt": s.runAttempt, "event": nil, "replayOf": s.replayOf, "restart": s.restarts}
	if payload != nil {
		run["payload"] = payload
	}
	text, err := json.Marshal(map[string]any{
		"type": "call", "run": run, "steps": steps, "limits": s.limits, "url": s.callURL, "ending": s.closing,
		"call": map[string]any{
			"id": id, "epoch": s.calls, "token": s.epochs[id], "cuts": s.cuts,
			"leaseMs": s.leaseMs, "heartbeatMs": s.heartbeatMs, "sentAt": s.sentAt,
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

func signed(ctx context.Context, body []byte) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/api/nelkap", bytes.NewReader(body))
	r.Header.Set("Content-Type", wire.ContentType)
	r.Header.Set("Nelkap-Protocol", wire.Version)
	key, _ := signature.ParseKey(testKey)
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	r.Header.Set(signature.HeaderID, "msg_1")
	r.Header.Set(signature.HeaderTimestamp, stamp)
	r.Header.Set(signature.HeaderSignature, signature.Sign(key, "msg_1", stamp, body))
	return r
}

// call calls the app once over an open connection.
func (s *fakeServer) call(workflow string, payload any) answer {
	return s.callWith(context.Background(), workflow, payload)
}

// callWith calls the app over a connection that is open until ctx ends.
func (s *fakeServer) callWith(ctx context.Context, workflow string, payload any) answer {
	return s.serve(signed(ctx, s.callMessage(workflow, payload)))
}

func (s *fakeServer) serve(r *http.Request) answer {
	w := httptest.NewRecorder()
	s.app.ServeHTTP(w, r)
	a := answer{Status: w.Code, Header: w.Header()}
	if w.Body.Len() > 0 && strings.Contains(w.Header().Get("Content-Type"), "json") {
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			s.t.Errorf("the answer is not JSON: %s", w.Body)
		}
		a.Status = w.Code
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, item := range a.Register {
		s.saveItem(item)
	}
	s.lines = append(s.lines, a.Logs...)
	return a
}

// arrives ends the first wait that is open, of those of that name: by an error where failure is not nil, else by output.
func (s *fakeServer) arrives(name string, output string, failure *wire.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.waiting, func(w savedItem) bool { return w.Name == name })
	if i < 0 {
		s.t.Errorf("no wait %q is open", name)
		return
	}
	w := s.waiting[i]
	s.waiting = slices.Delete(s.waiting, i, i+1)
	e := wire.Entry{Entry: int64(len(s.entries) + 1), Kind: w.Kind, Name: name, Number: w.Number, Status: "completed", Attempts: 1, Error: failure}
	if output != "" {
		e.Output = json.RawMessage(output)
	}
	if failure != nil {
		e.Status = "failed"
	}
	s.entries = append(s.entries, e)
	s.foreign[e.Entry] = true
	close(s.pollKick)
	s.pollKick = make(chan struct{})
}

// open are the names of the waits that are open.
func (s *fakeServer) open() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.waiting {
		names = append(names, fmt.Sprint(w.Name, w.Number))
	}
	return names
}

// run calls the app until the run has ended, at most 50 times. What it waits for comes between the calls: a sleep is over, other waits
// get what script says of their name, and null where it says nothing.
func (s *fakeServer) run(workflow string, payload any, script ...map[string]string) answer {
	for range 50 {
		a := s.call(workflow, payload)
		if a.Type == "completed" || a.Type == "failed" && !a.Retriable || a.Status != http.StatusOK {
			return a
		}
		if a.Type == "failed" {
			s.runAttempt++
		}
		s.wake(script)
	}
	s.t.Fatalf("run of %q does not end", workflow)
	return answer{}
}

// wake ends the first wait that is open.
func (s *fakeServer) wake(script []map[string]string) {
	s.mu.Lock()
	open := slices.Clone(s.waiting)
	s.mu.Unlock()
	if len(open) == 0 {
		return
	}
	output := "null"
	if open[0].Kind == "sleep" {
		output = ""
	}
	for _, lines := range script {
		if scripted, ok := lines[open[0].Name]; ok {
			output = scripted
		}
	}
	s.arrives(open[0].Name, output, nil)
}

// RoundTrip is the app's way to the server.
func (s *fakeServer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body.Close()
	}
	if got := r.URL.Scheme + "://" + r.URL.Host; got != s.url {
		return nil, fmt.Errorf("nobody lives at %s", got)
	}
	s.mu.Lock()
	s.requests = append(s.requests, seenRequest{r.Method, r.URL.Path, r.Header.Get("Authorization"), body})
	if s.fault != nil {
		if response := s.fault(r, body); response != nil {
			s.mu.Unlock()
			if response.StatusCode == 0 {
				return nil, io.ErrUnexpectedEOF
			}
			return response, nil
		}
	}
	s.mu.Unlock()
	return s.respond(r, body)
}

func (s *fakeServer) respond(r *http.Request, body []byte) (*http.Response, error) {
	switch {
	case r.URL.Path == "/v1/heartbeats":
		return s.heartbeat(r, body)
	case r.URL.Path == "/v1/saves":
		return respond(200, s.save(body)), nil
	case r.URL.Path == "/v1/ends":
		return respond(200, s.end(body)), nil
	case strings.HasSuffix(r.URL.Path, "/steps"):
		return respond(200, s.page(r)), nil
	}
	return respond(404, map[string]any{"status": 404, "code": "not_found", "detail": r.URL.Path}), nil
}

// broken is a response that stands for a connection that broke.
func broken() *http.Response { return &http.Response{} }

func respond(status int, v any) *http.Response {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return respondText(status, "application/json", string(text))
}

func respondText(status int, kind, text string) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Header: http.Header{"Content-Type": {kind}},
		Body: io.NopCloser(strings.NewReader(text)),
	}
}

func (s *fakeServer) save(body []byte) any {
	var message struct {
		Process, Manifest string
		Saves             []struct {
			Call, Token, Nonce string
			Seen               int64
			Items              []savedItem
			Logs               []savedLine
		}
	}
	if err := json.Unmarshal(body, &message); err != nil {
		s.t.Errorf("a save is not JSON: %v\n%s", err, body)
	}
	if len(message.Process) != 32 || len(message.Manifest) != 64 {
		s.t.Errorf("a save without process or manifest: %s", body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	outcomes := []any{}
	for _, save := range message.Saves {
		if s.epochs[save.Call] != save.Token || s.bind(save.Call, save.Nonce) {
			outcomes = append(outcomes, map[string]any{"call": save.Call, "status": "superseded"})
			continue
		}
		if s.owned && len(save.Items) > 0 && save.Items[0].Op == "claim" && save.Items[0].Once {
			outcomes = append(outcomes, map[string]any{"call": save.Call, "status": "ended"})
			continue
		}
		s.lines = append(s.lines, save.Logs...)
		items, own := []any{}, map[int64]bool{}
		for _, item := range save.Items {
			outcome := s.saveItem(item)
			items = append(items, outcome)
			if n, ok := outcome["entry"].(int64); ok {
				own[n] = true
			}
		}
		outcomes = append(outcomes, map[string]any{
			"call": save.Call, "status": "accepted", "items": items, "entries": s.entriesAfter(save.Seen, own), "ending": s.ending,
		})
	}
	return map[string]any{"time": time.Now().UTC(), "saves": outcomes}
}

// bind is true where another playing holds the call. mu is held.
func (s *fakeServer) bind(call, nonce string) (other bool) {
	if s.nonces[call] == "" {
		s.nonces[call] = nonce
	}
	return s.nonces[call] != nonce
}

// entriesAfter are the entries after seen, without those of own. mu is held.
func (s *fakeServer) entriesAfter(seen int64, own map[int64]bool) []wire.Entry {
	entries := []wire.Entry{}
	for _, e := range s.entries {
		if e.Entry > seen && !own[e.Entry] {
			entries = append(entries, e)
		}
	}
	return entries
}

// saveItem is the outcome of one item. mu is held.
func (s *fakeServer) saveItem(item savedItem) map[string]any {
	s.saves = append(s.saves, item)
	key := fmt.Sprint(item.Name, "\x00", item.Number)
	if item.Op == "start" {
		return s.start(key, item)
	}
	for _, e := range s.entries {
		if e.Name == item.Name && e.Number == item.Number {
			if item.Op == "wait" {
				return map[string]any{"status": "stands"}
			}
			return map[string]any{"status": "saved", "entry": e.Entry, "output": e.Output}
		}
	}
	if item.Op == "wait" {
		if !slices.ContainsFunc(s.waiting, func(w savedItem) bool { return w.Name == item.Name && w.Number == item.Number }) {
			s.waiting = append(s.waiting, item)
		}
		return map[string]any{"status": "waiting"}
	}
	if item.Op == "failed" && item.Retriable && item.Attempt <= item.Retries {
		s.retrying[key] = wire.Retry{Name: item.Name, Number: item.Number, Attempt: item.Attempt}
		return map[string]any{"status": "retrying", "attempt": item.Attempt, "retryInMs": 1000}
	}
	delete(s.retrying, key)
	e := wire.Entry{
		Entry: int64(len(s.entries) + 1), Kind: item.Kind, Name: item.Name, Number: item.Number, Status: item.Op,
		Output: item.Output, Error: item.Error, Attempts: item.Attempt,
	}
	switch item.Op {
	case "claim":
		e.Status, e.Output = "completed", fmt.Append(nil, !s.owned)
	case "undo":
		e.Status = "completed"
	case "callback":
		e.Status, e.Output = "completed", json.RawMessage(`{"url":"http://server.test/callbacks/tok","token":"tok"}`)
	}
	s.entries = append(s.entries, e)
	return map[string]any{"status": "saved", "entry": e.Entry, "output": e.Output}
}

// start is the outcome of a start record. mu is held.
func (s *fakeServer) start(key string, item savedItem) map[string]any {
	before, again := s.started[key]
	s.started[key] = s.calls
	if item.Once && again && before != s.calls {
		s.entries = append(s.entries, wire.Entry{
			Entry: int64(len(s.entries) + 1), Kind: "run", Name: item.Name, Number: item.Number, Status: "failed", Attempts: 1,
			Error: &wire.Error{Name: "StepInterruptedError", Message: "the step was cut off"},
		})
		return map[string]any{"status": "stands"}
	}
	return map[string]any{"status": "started", "again": again, "checkInMs": s.checkInMs}
}

func (s *fakeServer) end(body []byte) any {
	var message struct{ Ends []endMessage }
	if err := json.Unmarshal(body, &message); err != nil {
		s.t.Errorf("an end is not JSON: %v\n%s", err, body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	outcomes := []any{}
	for _, e := range message.Ends {
		s.ends = append(s.ends, e)
		outcomes = append(outcomes, map[string]any{"call": e.Call, "status": "accepted"})
	}
	return map[string]any{"time": time.Now().UTC(), "ends": outcomes}
}

func (s *fakeServer) page(r *http.Request) any {
	after, _ := strconv.Atoi(r.URL.Query().Get("after"))
	s.mu.Lock()
	defer s.mu.Unlock()
	last := min(after+s.pages, len(s.entries))
	page := map[string]any{"time": time.Now().UTC(), "entries": s.entries[after:last], "next": nil}
	if last < len(s.entries) {
		page["next"] = last
	}
	return page
}

// heartbeat holds the poll for its time, unless there is news.
func (s *fakeServer) heartbeat(r *http.Request, body []byte) (*http.Response, error) {
	var message struct {
		Calls []struct {
			Call, Nonce string
			Seen        int64
		}
		WaitMs int64
	}
	json.Unmarshal(body, &message)
	timer := time.NewTimer(time.Duration(message.WaitMs) * time.Millisecond)
	defer timer.Stop()
	s.mu.Lock()
	s.polls++
	s.mu.Unlock()
	for {
		s.mu.Lock()
		kick := s.pollKick
		news := []any{}
		if s.pollNews != nil {
			for _, c := range message.Calls {
				if n := s.pollNews(c.Call); n != nil {
					n.Nonce = c.Nonce
					news = append(news, n)
				}
			}
		}
		for _, c := range message.Calls {
			if entries := s.foreignAfter(c.Seen); len(entries) > 0 && s.epochs[c.Call] != "" {
				news = append(news, &wire.News{Call: c.Call, Nonce: c.Nonce, Status: "entries", Entries: entries})
			}
		}
		s.mu.Unlock()
		if len(news) > 0 {
			return respond(200, map[string]any{"time": time.Now().UTC(), "calls": news}), nil
		}
		select {
		case <-timer.C:
			return respond(200, map[string]any{"time": time.Now().UTC(), "calls": news}), nil
		case <-kick:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// foreignAfter are the entries after seen that no save made. mu is held.
func (s *fakeServer) foreignAfter(seen int64) (entries []wire.Entry) {
	for _, e := range s.entriesAfter(seen, nil) {
		if s.foreign[e.Entry] {
			entries = append(entries, e)
		}
	}
	return entries
}

// tell has every poll say n of the calls that it names.
func (s *fakeServer) tell(n *wire.News) {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := map[string]bool{}
	s.pollNews = func(call string) *wire.News {
		if told[call] {
			return nil
		}
		told[call] = true
		news := *n
		news.Call = call
		return &news
	}
	close(s.pollKick)
	s.pollKick = make(chan struct{})
}

func (s *fakeServer) savedNames() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, item := range s.saves {
		names = append(names, fmt.Sprintf("%s %s %d/%d", item.Op, item.Name, item.Number, item.Attempt))
	}
	return names
}

func (s *fakeServer) pollCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.polls
}
