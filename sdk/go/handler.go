package nelkap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/contact"
	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/signature"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

const (
	// bindAge is the age from which a call is bound before anything runs (C4).
	bindAge = 5 * time.Second
	// reserveMax is how much of MaxDuration is kept free at its end, at most.
	reserveMax = 10 * time.Second
	// firstReadMax bounds the memory that a request is given on its word, before it has come: anybody may send one.
	firstReadMax = 1 << 20
)

// refusal is the answer to a request that is not taken.
type refusal struct {
	status            int
	code, title, text string
	appTime           time.Time
}

func (r *refusal) Error() string { return r.text }

func badRequest(format string, args ...any) *refusal {
	return &refusal{status: http.StatusBadRequest, code: "bad_request", title: "Bad request", text: fmt.Sprintf(format, args...)}
}

// ServeHTTP answers the server's requests. Everything but a signed request of the server's is refused, and GET says only
// that a Nelkap app lives here.
func (a *App) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Nelkap-Sdk", sdkHeader)
	switch r.Method {
	case http.MethodGet:
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"nelkap":true}`)
	case http.MethodPost:
		if err := a.serve(w, r); err != nil {
			refuse(w, err)
		}
	default:
		w.Header().Set("Allow", "GET, POST") // RFC 9110, section 15.5.6
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func refuse(w http.ResponseWriter, r *refusal) {
	problem := struct {
		Type    string     `json:"type"`
		Title   string     `json:"title"`
		Status  int        `json:"status"`
		Code    string     `json:"code"`
		Detail  string     `json:"detail"`
		AppTime *time.Time `json:"appTime,omitempty"`
	}{"about:blank", r.title, r.status, r.code, r.text, nil}
	if !r.appTime.IsZero() {
		t := r.appTime.UTC().Truncate(time.Millisecond)
		problem.AppTime = &t
	}
	text, _ := json.Marshal(problem) // text and numbers always encode
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(r.status)
	w.Write(text)
}

// serve takes a POST. What it returns was not answered yet.
func (a *App) serve(w http.ResponseWriter, r *http.Request) *refusal {
	arrived := time.Now()
	if kind := r.Header.Get("Content-Type"); kind != wire.ContentType && mediaType(kind) != wire.ContentType {
		return &refusal{
			status: http.StatusUnsupportedMediaType, code: "bad_content_type", title: "Bad content type",
			text: "a request of the server's has the content type " + wire.ContentType,
		}
	}
	if r.Header.Get("Nelkap-Protocol") != wire.Version {
		return &refusal{
			status: http.StatusUnprocessableEntity, code: "protocol_unsupported", title: "Protocol unsupported",
			text: "this app speaks version " + wire.Version + " of the protocol: update the SDK, or the server",
		}
	}
	body, refused := readBody(w, r)
	if refused != nil {
		return refused
	}
	signed := play.StageOf(r.Context()) != nil
	if !signed {
		if signed, refused = a.authenticate(r, body, arrived); refused != nil {
			return refused
		}
	}
	var request wire.Request
	if err := json.Unmarshal(body, &request); err != nil {
		return badRequest("the body is not a request of the protocol: %v", err)
	}
	switch request.Type {
	case "describe":
		w.Header().Set("Content-Type", wire.ContentType)
		w.Write(a.described().text)
		return nil
	case "call":
		return a.call(w, r, &request.Call, signed, arrived)
	case "verify":
		return a.verify(w, &request)
	}
	return badRequest("the body's type is %q, and this SDK knows describe, call and verify", request.Type)
}

// mediaType is a content type without its parameters.
func mediaType(text string) string {
	kind, _, _ := mime.ParseMediaType(text)
	return kind
}

func tooLarge() *refusal {
	return &refusal{
		status: http.StatusRequestEntityTooLarge, code: "body_too_large", title: "Body too large",
		text: fmt.Sprintf("a request has at most %d bytes", wire.MessageBytesMax),
	}
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *refusal) {
	if r.ContentLength > wire.MessageBytesMax {
		return nil, tooLarge()
	}
	var body bytes.Buffer
	body.Grow(int(min(max(r.ContentLength, 0), firstReadMax)) + bytes.MinRead) // so that it is read in one piece
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, wire.MessageBytesMax))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge()
	}
	if err != nil {
		return nil, badRequest("the body could not be read: %v", err)
	}
	return body.Bytes(), nil
}

// authenticate checks the signature over the raw bytes, before anything is parsed. signed is false for a call that an app without a
// key takes from its own machine.
func (a *App) authenticate(r *http.Request, body []byte, now time.Time) (signed bool, refused *refusal) {
	s := a.settings()
	if s.keyErr != nil {
		s.logger.Error("nelkap: a signing key can't be used, and every call is refused", "error", s.keyErr)
		return false, &refusal{
			status: http.StatusInternalServerError, code: "internal", title: "Bad configuration",
			text: "the app's signing key can't be used; its log says why",
		}
	}
	if len(s.keys) == 0 {
		if s.dev && fromThisMachine(r) {
			return false, nil
		}
		if s.dev {
			return false, unsigned("NELKAP_DEV=1 lets in what this machine sends, and this came from another machine or through a proxy: " +
				"set the same NELKAP_SIGNING_KEY for server and app")
		}
		return false, unsigned("this app has no signing key: set NELKAP_SIGNING_KEY to the server's, " +
			"or NELKAP_DEV=1 to take unsigned calls from this machine alone")
	}
	err := signature.Verify(s.keys, r.Header, body, now)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, signature.ErrUnsigned):
		return false, unsigned("the request is not signed, and this app has a signing key: " +
			"give the server the same NELKAP_SIGNING_KEY, or for development unset it here and set NELKAP_DEV=1")
	case errors.Is(err, signature.ErrClock):
		return false, &refusal{
			status: http.StatusUnauthorized, code: "clock_differs", title: "Clock differs",
			text: err.Error() + ": set the clock that is wrong", appTime: now,
		}
	}
	return false, &refusal{
		status: http.StatusUnauthorized, code: "bad_signature", title: "Bad signature",
		text: err.Error() + ": give server and app the same NELKAP_SIGNING_KEY",
	}
}

func unsigned(text string) *refusal {
	return &refusal{status: http.StatusUnauthorized, code: "unsigned", title: "Unsigned", text: text}
}

// fromThisMachine is true where the peer is this machine and nothing stands between.
func fromThisMachine(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"} {
		if len(r.Header.Values(name)) > 0 {
			return false
		}
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err == nil {
		return isLoopback(host)
	}
	name, _, err := net.SplitHostPort(r.Host) // the peer can't be seen, as on a Unix socket
	if err != nil {
		name = r.Host
	}
	return isLoopback(name)
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// call plays a call and answers it.
func (a *App) call(w http.ResponseWriter, r *http.Request, call *wire.Call, signed bool, arrived time.Time) *refusal {
	if call.Run.ID == "" || call.Call.ID == "" || call.Call.Token == "" {
		return badRequest("a call needs a run, a call and a token")
	}
	d, refused := a.declared(call.Run.Workflow)
	if refused != nil {
		return refused
	}
	config, refused := a.config(call, d, signed, arrived)
	if refused != nil {
		return refused
	}
	stage := play.StageOf(r.Context())
	if stage != nil {
		config.Stage, config.URL, config.APIKey = stage, play.StageURL, ""
		config.Destination = stage.Process().Destination(config.URL, contact.Settings{
			Client: stage.Client(), Given: stage.Client(), Logger: a.settings().logger,
		})
		config.Bind = false
	}
	config.Bind = config.Bind || r.Context().Err() != nil
	liftDeadlines(w)
	p, err := a.play(config)
	if err != nil {
		return &refusal{
			status: http.StatusServiceUnavailable, code: "stopping", title: "Stopping",
			text: "the app is stopping and takes no further call",
		}
	}
	if stage != nil {
		stage.Began(p)
	}
	return deliver(w, r, p)
}

// declared is the workflow of that name.
func (a *App) declared(name string) (*definition, *refusal) {
	d := a.workflow(name)
	if d == nil {
		return nil, &refusal{
			status: http.StatusNotFound, code: "workflow_unknown", title: "Workflow unknown",
			text: fmt.Sprintf("the app has no workflow %q: declare it with NewWorkflow, or let the run wait until it is back", name),
		}
	}
	return d, nil
}

// config is how a call is played.
func (a *App) config(call *wire.Call, d *definition, signed bool, arrived time.Time) (play.Config, *refusal) {
	s := a.settings()
	address, key := s.url, s.apiKey
	if address == "" {
		address = call.URL
		if refused := checkURL(address, signed); refused != nil {
			return play.Config{}, refused
		}
		if !signed {
			key = ""
		}
	}
	destination := a.process.Destination(address, contact.Settings{
		Client: s.client, Given: a.options.HTTPClient, APIKey: key, Logger: s.logger,
	})
	config := play.Config{
		Call: call, Destination: destination, URL: address, APIKey: key, Manifest: a.described().hash,
		Retries: d.retriesOr(defaultRetries), Code: a.code(call, d),
	}
	a.own(&config, call, d)
	if call.Ending != nil {
		d.close(&config, call)
	}
	sent := call.Call.SentAt
	config.Bind = !sent.IsZero() && destination.ServerTime(arrived).Sub(sent) > bindAge
	if limit := a.options.MaxDuration; limit > 0 {
		config.YieldAt = arrived.Add(limit - min(limit/5, reserveMax))
	}
	return config, nil
}

// checkURL refuses an address that nobody vouches for: an unsigned call may name this machine alone (C9).
func checkURL(address string, signed bool) *refusal {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return badRequest("the call's url is not the address of a server: set NELKAP_URL in the app or on the server")
	}
	if !signed && !isLoopback(u.Hostname()) {
		return badRequest("an unsigned call may only name a server on this machine: set NELKAP_SIGNING_KEY, or NELKAP_URL in the app")
	}
	return nil
}

// liftDeadlines keeps a server's WriteTimeout and ReadTimeout from cutting a call: a call takes as long as its steps.
func liftDeadlines(w http.ResponseWriter) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{}) // what can't be set stays as the host wants it
	_ = control.SetReadDeadline(time.Time{})
}

// deliver writes the call's answer, or says that its connection is gone.
func deliver(w http.ResponseWriter, r *http.Request, p *play.Playing) *refusal {
	var answer play.Answer
	select {
	case answer = <-p.Answers():
	case <-r.Context().Done():
		p.Closed()
		select {
		case <-p.Answers(): // it came while the connection went
			p.AnswerFailed()
		default:
		}
		return nil
	}
	if answer.Body == nil {
		return &refusal{
			status: http.StatusInternalServerError, code: "internal", title: "Internal",
			text: "the run's saved steps could not be read; the run is picked up",
		}
	}
	if len(answer.Body) > wire.MessageBytesMax {
		p.AnswerFailed()
		return &refusal{
			status: http.StatusInternalServerError, code: "internal", title: "Internal",
			text: "the answer is larger than an answer may be",
		}
	}
	w.Header().Set("Content-Type", wire.ContentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(answer.Body))) // with it the flush below is the only write
	_, err := w.Write(answer.Body)
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	lost := err != nil && !errors.Is(err, http.ErrNotSupported)
	if lost || r.Context().Err() != nil {
		p.AnswerFailed()
	}
	return nil
}
