// Package client is the Go client of the HTTP API: one method for each thing that can be asked, over the API's own types. Commands and
// tests use it. It sees what every client sees, and nothing of the server.
//
// A request that got no answer is sent again a few times, with the id that was drawn before its first try: so that what it starts
// or emits is there once (K6). What the API refuses comes back as an *apitype.Problem.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/wire"
)

// The client's bounds.
const (
	triesMax      = 4
	firstPause    = 100 * time.Millisecond // doubled after each try: a server that restarts is back within a second
	answerWithin  = 60 * time.Second       // beside what the server is asked to wait
	answerBytes   = 256 << 20              // a page of the largest runs
	waitMax       = 30 * time.Second       // the API's
	excerptLength = 200
)

// ErrUnreachable: no server answered at the address. The error's text says which, and what to do.
var ErrUnreachable = errors.New("no server answers")

// ErrStranger: what answered is no Nelkap server.
var ErrStranger = errors.New("this is no Nelkap server")

// Options say which server is asked.
type Options struct {
	URL string // http or https; a path before /v1 is kept
	Key string // the API key; empty for a server of dev
}

// Client asks one server. It may be used by many goroutines.
type Client struct {
	base  string
	shown string // base without a password
	key   string
	http  *http.Client
}

// New makes a client. It asks nothing yet.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" {
		return nil, errors.New("the server's address is not a URL: write it like http://127.0.0.1:6355")
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10}
	return &Client{
		base: strings.TrimRight(u.String(), "/"), shown: strings.TrimRight(u.Redacted(), "/"), key: o.Key,
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}, nil
}

// Shown is the server's address for people: without a password that may be in it.
func (c *Client) Shown() string { return c.shown }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// request is one thing that is asked.
type request struct {
	method string
	path   string
	query  url.Values
	body   any           // nil for none
	key    string        // the Idempotency-Key; empty for none
	wait   time.Duration // that the server is asked to take
	header *http.Header  // nil, or where the answer's headers go
}

// ask sends a request, again while nothing answers or the server is busy, and decodes the answer.
func (c *Client) ask(ctx context.Context, r request, into any) error {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return fmt.Errorf("writing the request: %w", err)
		}
	}
	pause := firstPause
	for try := 1; ; try++ {
		err := c.once(ctx, r, body, into)
		if err == nil || try == triesMax || !again(err) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		pause *= 2
	}
}

// again tells whether an error may be gone in a moment.
func again(err error) bool {
	var p *apitype.Problem
	if errors.As(err, &p) {
		return p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable
	}
	return errors.Is(err, ErrUnreachable) && !errors.Is(err, context.DeadlineExceeded) // one long silence is enough
}

func (c *Client) once(ctx context.Context, r request, body []byte, into any) error {
	limited, cancel := context.WithTimeout(ctx, answerWithin+r.wait)
	defer cancel()
	address := c.base + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	request, err := http.NewRequestWithContext(limited, r.method, address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		request.Header.Set("Idempotency-Key", r.key)
	}
	if c.key != "" {
		request.Header.Set("Authorization", "Bearer "+c.key)
	}
	response, err := c.http.Do(request)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w at %s (%w): start one with nelkap dev, or say where it is with --url or NELKAP_URL", ErrUnreachable, c.shown, cause(err))
	}
	defer response.Body.Close()
	if r.header != nil {
		*r.header = response.Header
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, answerBytes+1))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%w at %s any more: the connection broke in its answer", ErrUnreachable, c.shown)
	case len(text) > answerBytes:
		return fmt.Errorf("the answer has more than %d bytes: ask for less at once, with a smaller limit", answerBytes)
	}
	return c.read(response, text, into)
}

// cause leaves out the method and the URL, which net/http puts before what went wrong.
func cause(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

func (c *Client) read(response *http.Response, text []byte, into any) error {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case response.Header.Get(wire.HeaderSDK) != "": // an app answers every GET, so that it looks like a server without anything
		return fmt.Errorf("%w: an app answers at %s: give the server's address, with --url or NELKAP_URL", ErrStranger, c.shown)
	case kind == "application/problem+json":
		var p apitype.Problem
		if err := json.Unmarshal(text, &p); err != nil || p.Status == 0 {
			return fmt.Errorf("%w: %s answered %s with a problem that can't be read", ErrStranger, c.shown, response.Status)
		}
		return &p
	case response.StatusCode == http.StatusNoContent && into == nil:
		return nil
	case response.StatusCode >= 300 || kind != "application/json":
		return fmt.Errorf("%w: %s answered %s, %q: check --url and NELKAP_URL", ErrStranger, c.shown, response.Status, string(text[:min(len(text), excerptLength)]))
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%w: %s answered JSON of another kind: %w", ErrStranger, c.shown, err)
	}
	return nil
}
