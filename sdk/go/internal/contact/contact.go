// Package contact speaks to the server about calls: saves, heartbeats, ends and pages of steps.
//
// There is one Process per process and one Destination per address in it, whatever the number of apps; only apps with HTTP clients
// of their own have destinations of their own. A server that saw two polls of one process would take the second for the first's
// successor, and two addresses may be one server's: so to servers each Destination is a process. A Destination has few requests of saves in flight
// (group commit: what arrives meanwhile goes into the next), few of ends, and one long poll. It tries nothing again by
// itself, but for the poll: whether and when a save is repeated is decided by internal/core.
//
// Goroutines exist only while there is something to send: none is left when no call is played.
package contact

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

const (
	// requestTime is how long a request may take beyond what the server may hold it, before it counts as failed. It is less where a
	// call's heartbeats are close: what is swallowed on its way must be tried again well before a lease ends.
	requestTime    = 10 * time.Second
	requestTimeMin = time.Second
	// bytesPerSecond is the slowest line that a big request is given time for.
	bytesPerSecond = 128 << 10
	// answerBytesMax bounds an answer of the server's.
	answerBytesMax = 64 << 20
	// firstReadMax bounds the memory that an answer is given on its word, before it has come.
	firstReadMax = 1 << 20
)

// Process is what the apps of one process share. Its methods may be used by many goroutines.
type Process struct {
	id           string
	mu           sync.Mutex
	destinations map[way]*Destination
}

// way is how an address is reached.
type way struct {
	address string
	client  *http.Client
}

// NewProcess draws the process's id.
func NewProcess() *Process {
	return &Process{id: Nonce(), destinations: map[way]*Destination{}}
}

// Nonce draws 16 random bytes in hex.
func Nonce() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, by its contract
	return hex.EncodeToString(b[:])
}

// Settings are how an app speaks to a destination.
type Settings struct {
	Client *http.Client // follows no redirect
	Given  *http.Client // the one that the user gave, nil for the SDK's own: apps that share it share a destination
	APIKey string       // empty: none is sent
	Logger *slog.Logger
}

// Destination is the one for address. Its API key is that of the first app that has one.
func (p *Process) Destination(address string, settings Settings) *Destination {
	address = strings.TrimRight(address, "/")
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.destinations[way{address, settings.Given}]
	if d == nil {
		d = &Destination{process: p.id, address: address, settings: settings, calls: map[*Call]struct{}{}}
		if len(p.destinations) > 0 {
			d.process = Nonce()
		}
		d.saves = batcher[*wire.Save, wire.Outcome]{d: d, path: "/v1/saves", field: "saves"}
		d.ends = batcher[*wire.End, wire.EndOutcome]{d: d, path: "/v1/ends", field: "ends"}
		d.key.Store(&settings.APIKey)
		p.destinations[way{address, settings.Given}] = d
	} else if *d.key.Load() == "" && settings.APIKey != "" {
		d.key.Store(&settings.APIKey)
	}
	return d
}

// Destination is one address of the server's.
type Destination struct {
	process  string
	address  string
	settings Settings
	key      atomic.Pointer[string]
	offset   atomic.Int64              // the server's clock minus ours, in nanoseconds, by its last answer
	silent   atomic.Pointer[time.Time] // when the first request of those that failed in a row was sent; nil: the last one was answered

	saves batcher[*wire.Save, wire.Outcome]
	ends  batcher[*wire.End, wire.EndOutcome]

	mu      sync.Mutex // guards what follows, and the fields of Call
	calls   map[*Call]struct{}
	poll    poll
	keeping keeping
}

// ServerTime is the server's clock at now, as far as its last answer told.
func (d *Destination) ServerTime(now time.Time) time.Time {
	return now.Add(time.Duration(d.offset.Load()))
}

// Save sends s with the next request. done is called once, on another goroutine, with the outcome, or with nil where the
// request failed. The outcome is done's until it returns; s must not change until then.
func (d *Destination) Save(s *wire.Save, manifest string, done func(*wire.Outcome)) {
	d.saves.add(entry[*wire.Save, wire.Outcome]{s, manifest, done})
}

// End sends e as Save sends a save.
func (d *Destination) End(e *wire.End, done func(*wire.EndOutcome)) {
	d.ends.add(entry[*wire.End, wire.EndOutcome]{e, "", done})
}

// GoneError says that a call has no right to what it asked for: Status is superseded or ended.
type GoneError struct{ Status string }

func (e *GoneError) Error() string { return "the call is " + e.Status }

// Page reads the steps of a call after the given number. It fails with a *GoneError where the server says so.
func (d *Destination) Page(ctx context.Context, c *Call, after int64) (*wire.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime+answerBytesMax/bytesPerSecond*time.Second/16)
	defer cancel()
	path := "/v1/calls/" + url.PathEscape(c.ID) + "/steps?after=" + strconv.FormatInt(after, 10)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.address+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Nelkap-Token", c.Token)
	request.Header.Set("Nelkap-Nonce", c.Nonce)
	var page wire.Page
	if err := d.do(request, &bytes.Buffer{}, &page); err != nil {
		return nil, goneOr(err)
	}
	d.learnTime(page.Time)
	return &page, nil
}

// goneOr is a *GoneError where err is the server's 409 that says so.
func goneOr(err error) error {
	var refused *StatusError
	if errors.As(err, &refused) && refused.Status == http.StatusConflict &&
		(refused.Code == wire.StatusSuperseded || refused.Code == wire.StatusEnded) {
		return &GoneError{refused.Code}
	}
	return err
}

// StatusError is an answer other than 200.
type StatusError struct {
	Status int
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the server answered %d %s %s", e.Status, e.Code, e.Detail)
}

// post sends body and reads the answer into into, by way of answer.
func (d *Destination) post(ctx context.Context, path string, body []byte, answer *bytes.Buffer, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.address+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	return d.do(request, answer, into)
}

// do sends request, and reads the answer into into; answer has its text until then. Whatever is not a 200 with JSON is an error: a
// proxy's page must never pass for the server's word.
func (d *Destination) do(request *http.Request, answer *bytes.Buffer, into any) error {
	if key := *d.key.Load(); key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := d.settings.Client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer.Reset()
	answer.Grow(int(min(max(response.ContentLength, 0), firstReadMax)) + bytes.MinRead) // so that it is read in one piece
	if _, err := answer.ReadFrom(io.LimitReader(response.Body, answerBytesMax)); err != nil {
		return err
	}
	text := answer.Bytes()
	if response.StatusCode != http.StatusOK {
		refused := &StatusError{}
		_ = json.Unmarshal(text, refused) // a page that is no problem document leaves code and detail empty
		refused.Status = response.StatusCode
		return refused
	}
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind != "application/json" {
		return fmt.Errorf("the server answered %q instead of JSON", kind)
	}
	return json.Unmarshal(text, into)
}

// requestTime is how long a save, an end or a poll may take beyond what the server may hold it: less than the least heartbeat of the
// calls that are played.
func (d *Destination) requestTime() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	least := requestTime
	for c := range d.calls {
		if c.Heartbeat > 0 {
			least = min(least, c.Heartbeat*9/10)
		}
	}
	return max(least, requestTimeMin)
}

// learnTime keeps how far the server's clock is from ours.
func (d *Destination) learnTime(server time.Time) {
	if !server.IsZero() {
		d.offset.Store(int64(time.Until(server)))
	}
}

// note takes in how a request went that was sent at sentAt, and logs the first failure after a success and the first success after a
// failure.
func (d *Destination) note(sentAt time.Time, err error) {
	if err == nil {
		if d.silent.Swap(nil) != nil {
			d.settings.Logger.Info("nelkap: the server can be reached again", "url", d.address)
		}
		return
	}
	if d.silent.CompareAndSwap(nil, &sentAt) {
		d.settings.Logger.Warn("nelkap: the server can't be reached; trying again", "url", d.address, "error", err)
	}
}

// SilentSince is from when on nothing has come from the server: when the first request of those that failed in a row was sent. It is
// zero where the last one was answered.
func (d *Destination) SilentSince() time.Time {
	if since := d.silent.Load(); since != nil {
		return *since
	}
	return time.Time{}
}
