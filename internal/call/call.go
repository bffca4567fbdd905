// Package call makes one call to an app over HTTP, as protocol/SPEC.md describes it, and sorts what came of it into a closed
// list of outcomes. It decides whether a request was provably never sent (C3), whether an answer is Nelkap's, and which
// addresses a registered URL may reach. What an outcome means for a run is the core's to decide; this package knows no run and
// no store, retries nothing, and keeps nothing but idle connections. The engine calls it.
//
// Promises:
//
//   - A request is sent at most once (C3). Go's transport resends a request on its own when an idle connection turns out to be
//     closed and the request's body can be had again; here it never can.
//   - A request is sent within SendWithin of its begin, or not at all (C3).
//   - NotSent is said only when no byte of the request was handed to the network.
//   - No redirect is followed, no proxy of the environment is used, and the address that is dialed is checked, not the name.
//   - Everything that is read has a limit. Nothing but the context limits the time in which an app plays a call: its lease does.
package call

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"time"

	"github.com/nelkap/nelkap/internal/signature"
	"github.com/nelkap/nelkap/internal/wire"
)

const (
	// SendWithin is the time from a call's begin in which it may be sent (C3).
	SendWithin = 5 * time.Second

	// connectTimeout bounds looking up the name and connecting; the TLS handshake has as long again. It is no more than
	// SendWithin, after which the connection would be of no use.
	connectTimeout = SendWithin
	// idleTimeout is less than the 5 s after which Node's servers close an idle connection: a POST into a closing connection is
	// an unknown outcome.
	idleTimeout = 3 * time.Second
	// idleConnsPerHostMax lets a burst of calls of one app find its connections again. Each costs about 10 KiB.
	idleConnsPerHostMax = 1024
	// idleConnsMax bounds them over all apps.
	idleConnsMax = 4096
	// headerBytesMax bounds an answer's headers; an SDK's are under 1 KiB, the rest is what proxies add.
	headerBytesMax = 64 << 10
)

// Options configure a Caller. The zero value signs nothing.
type Options struct {
	Keys    signature.Keys // the current key first, then the previous one
	Version string         // the server's version, for the User-Agent header
}

// Caller makes calls. It may be used by many goroutines at once.
type Caller struct {
	keys    signature.Keys
	agent   string
	public  *http.Transport
	private *http.Transport

	// The package's constants; tests shorten them.
	describeTimeout time.Duration
	strangerTimeMax time.Duration
}

// New makes a Caller. Close frees its idle connections.
func New(options Options) *Caller {
	agent := "nelkap"
	if options.Version != "" {
		agent += "/" + options.Version
	}
	// Two transports, so that a connection that was allowed for a private target is never found again by a public one.
	return &Caller{
		keys:    options.Keys,
		agent:   agent,
		public:  newTransport(publicAddresses),
		private: newTransport(privateAddresses),

		describeTimeout: describeTimeout,
		strangerTimeMax: strangerTimeMax,
	}
}

func newTransport(allowed addressCheck) *http.Transport {
	dialer := &net.Dialer{Timeout: connectTimeout, Control: allowed.control}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &conn{Conn: c}, nil
		},
		Proxy:                  nil, // a proxy would be dialed in the app's place, past the check of addresses
		Protocols:              protocols,
		TLSHandshakeTimeout:    connectTimeout,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		DisableCompression:     true, // a compressed answer could unpack to more than its limit
		MaxIdleConns:           idleConnsMax,
		MaxIdleConnsPerHost:    idleConnsPerHostMax,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: headerBytesMax,
	}
}

// Close closes idle connections. Calls that are under way go on; their contexts end them. It may be called twice.
func (c *Caller) Close() {
	c.public.CloseIdleConnections()
	c.private.CloseIdleConnections()
}

// Target is where an app is.
type Target struct {
	URL string // http or https
	// Private: an operator named this address, not a client of the API. It may be of this machine or of a private network.
	Private bool
}

// Request is one call.
type Request struct {
	Target Target
	ID     string // the id that is signed: the call's; drawn when empty
	Body   []byte // never changed while Do runs; not empty, at most wire.CallBytesMax

	// SendBefore is the latest moment to send it: the begin and SendWithin, with its monotonic reading. Zero: SendWithin from now.
	SendBefore time.Time
	// Sent is called once when the first bytes were handed to the network: from then on the begin is not void (C3). It is called
	// from another goroutine, never after Do has returned, and must not block. It may be nil. An outcome other than NotSent says
	// the same.
	Sent func()
}

// Do sends a request and waits for its outcome. It returns when the app has answered, the connection is lost or ctx ends; there
// is no other limit once the request is sent. Nothing of it is left running.
func (c *Caller) Do(ctx context.Context, request Request) Outcome {
	return c.do(ctx, request, wire.CallBytesMax)
}

func (c *Caller) do(ctx context.Context, request Request, answerBytesMax int64) Outcome {
	address, err := parseURL(request.Target.URL)
	if err != nil {
		return notSent(err)
	}
	if size := len(request.Body); size == 0 || size > wire.CallBytesMax {
		return notSent(fmt.Errorf("a call of %d bytes can't be sent: it must have between 1 and %d", size, wire.CallBytesMax))
	}
	delivery := newDelivery(request)
	defer delivery.close()
	dialing, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	tooLate := time.AfterFunc(time.Until(delivery.before), func() {
		if delivery.expire() {
			cancel(errTooLate)
		}
	})
	defer tooLate.Stop()

	transport := c.public
	if request.Target.Private {
		transport = c.private
	}
	response, err := transport.RoundTrip(c.httpRequest(delivery.trace(dialing), address, request))
	if err != nil {
		return delivery.failed(ctx, address, err)
	}
	defer response.Body.Close()
	return classify(ctx, cancel, response, answerLimits{
		callBytes: len(request.Body), answerBytesMax: answerBytesMax, strangerTimeMax: c.strangerTimeMax,
	})
}

// httpRequest builds the request so that no transport sends it twice: its body can be read once, it has no GetBody, and it never
// bears an Idempotency-Key.
func (c *Caller) httpRequest(ctx context.Context, address *url.URL, request Request) *http.Request {
	header := http.Header{}
	header.Set("Content-Type", wire.ContentType)
	header.Set("User-Agent", c.agent)
	header.Set(wire.HeaderProtocol, strconv.Itoa(wire.Version))
	id := request.ID
	if id == "" {
		id = "msg_" + rand.Text()
	}
	c.keys.Sign(header, id, time.Now(), request.Body)

	bare := *address
	bare.User = nil
	httpRequest := &http.Request{
		Method:        http.MethodPost,
		URL:           &bare,
		Header:        header,
		Body:          io.NopCloser(bytes.NewReader(request.Body)),
		ContentLength: int64(len(request.Body)),
	}
	if address.User != nil {
		password, _ := address.User.Password()
		httpRequest.SetBasicAuth(address.User.Username(), password)
	}
	return httpRequest.WithContext(ctx)
}

// parseURL reads an app's URL. A name and password in it are sent as HTTP's basic authentication, and shown nowhere.
func parseURL(text string) (*url.URL, error) {
	address, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("the app's URL can't be read: it should look like https://example.com/api/nelkap")
	}
	if address.Scheme != "http" && address.Scheme != "https" {
		return nil, fmt.Errorf("the app's URL has the scheme %q: use http or https", excerpt(address.Scheme))
	}
	if address.Hostname() == "" {
		return nil, errors.New("the app's URL names no host: it should look like https://example.com/api/nelkap")
	}
	return address, nil
}

// trace returns a context that tells the delivery which connection it got.
func (d *delivery) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:              func(info httptrace.GotConnInfo) { d.got(info.Conn) },
		GotFirstResponseByte: d.answering,
	})
}
