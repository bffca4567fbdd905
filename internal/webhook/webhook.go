// Package webhook reads the deliveries of providers: whether a request's signature is genuine and fresh, which delivery it is by its
// sender's count, and which event it stands for. One table, providers, says all of that for each provider.
//
// It refuses to read a clock, a socket or a store: a request is its headers and its raw body, and now is an argument. It keeps
// nothing of what it has seen. Who deduplicates, stores and emits is the engine; internal/httpapi calls both, and internal/config
// makes the hooks.
//
// What holds here: a body is checked as the bytes that came; digests are compared whole and in constant time, against every secret;
// the clock is looked at last, so that only who has a secret learns ours; no error shows a secret.
package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nelkap/nelkap/internal/signature"
)

// The bounds of what a request may ask for.
const (
	// Tolerance is how far a signed timestamp may be off, in either direction: what Stripe, Slack and Standard Webhooks advise.
	Tolerance = signature.Tolerance

	signaturesMax      = 16  // of one request: senders sign twice while they change their secret
	typeBytesMax       = 128 // of an event's type: with a hook's name before it, it stays under an event name's 256
	deliveryIDBytesMax = 256 // of the provider's id: longer ones are none
	challengeBytesMax  = 1024
)

// Errors of Verify are those of package signature: ErrUnsigned, ErrBadSignature and ErrClockDiffers, wrapped in a sentence that says
// what to check.

// ErrUnreadable is the error of Read: the signature is right, and the body is not what this provider sends.
var ErrUnreadable = errors.New("the body can't be read")

// Request is a delivery as it came. Body holds exactly the bytes that were sent; nothing here changes them.
type Request struct {
	Header map[string][]string
	Body   []byte
}

// get is the first value of a header, under the first of its names that is there.
func (r Request) get(names ...string) string {
	for _, name := range names {
		for header, values := range r.Header {
			if len(values) > 0 && strings.EqualFold(header, name) {
				return values[0]
			}
		}
	}
	return ""
}

// Reading is what a genuine request says.
type Reading struct {
	// ID is the delivery's by its sender's count: the same when it is sent again. Empty: it has none.
	ID string
	// Event is the name of the provider's event, such as stripe.checkout.session.completed. Empty: the request names none, and is
	// the hook's own event alone.
	Event string
	// Challenge is to be answered as it is, and the request is no event (Slack asks so whether an address is ours). Empty: none.
	Challenge string
}

// Hook is a configured hook. It is never changed after Spec.Hook made it, and may be used by many goroutines. Printed, it shows no
// secret.
type Hook struct {
	Spec
	row      provider
	secrets  []secret
	standard signature.Keys // of the providers that sign by Standard Webhooks
}

// secret is one secret. It is a function for the reason that signature.Key has: fmt prints no function's bytes.
type secret func() []byte

// Hooks are the configured hooks by their names.
type Hooks map[string]Hook

// Verify checks a request's signature at now against every secret. Nil, or an error that is signature.ErrUnsigned,
// signature.ErrBadSignature or signature.ErrClockDiffers and says what to check.
func (h Hook) Verify(r Request, now time.Time) error {
	if h.row.isStandard {
		return h.advise(h.standard.Verify(standardHeader(r), r.Body, now))
	}
	c, err := h.row.claim(h.Spec, r)
	if err != nil {
		return h.advise(err)
	}
	if !h.made(c, r.Body) {
		return h.advise(signature.ErrBadSignature)
	}
	if at := c.at; !at.IsZero() && (at.Before(now.Add(-Tolerance)) || at.After(now.Add(Tolerance))) {
		return fmt.Errorf("%w by more than %v: it is %s here, and the delivery is of %s: set the clock that is wrong; a delivery that is sent again bears its new time",
			signature.ErrClockDiffers, Tolerance, now.UTC().Format(time.RFC3339), at.UTC().Format(time.RFC3339))
	}
	return nil
}

// advise adds what to check to an error of a signature.
func (h Hook) advise(err error) error {
	switch {
	case errors.Is(err, signature.ErrUnsigned):
		return fmt.Errorf("%w: this hook takes deliveries of %s, which bear the header %s: check that a secret is set where they come from, and that nothing between drops the header",
			signature.ErrUnsigned, h.row.shown, strings.Join(h.row.headers(h.Spec), " or "))
	case errors.Is(err, signature.ErrBadSignature):
		return fmt.Errorf("%w: check that %s holds %s, and that nothing between changes the body", signature.ErrBadSignature, h.Variable(), h.row.where)
	default:
		return err
	}
}

// claim is what a request says of its own signature.
type claim struct {
	before  string   // what is signed before the body
	digests [][]byte // each of sha256.Size bytes; one of them must be right
	at      time.Time
}

// made tells whether one of the secrets made one of the digests.
func (h Hook) made(c claim, body []byte) bool {
	for _, key := range h.secrets {
		mac := hmac.New(sha256.New, key())
		mac.Write([]byte(c.before))
		mac.Write(body)
		want := mac.Sum(nil)
		for _, digest := range c.digests {
			if hmac.Equal(want, digest) {
				return true
			}
		}
	}
	return false
}

// Read reads what a verified request says. ErrUnreadable.
func (h Hook) Read(r Request) (Reading, error) {
	reading, err := h.row.read(h.Spec, r)
	if len(reading.ID) > deliveryIDBytesMax || !utf8.ValidString(reading.ID) || strings.ContainsFunc(reading.ID, unicode.IsControl) {
		reading.ID = "" // no provider's
	}
	return reading, err
}

// decode reads a digest of a signature; nil if it is none.
func decode(encoding, text string) []byte {
	var digest []byte
	var err error
	if encoding == Base64 {
		digest, err = base64.StdEncoding.Strict().DecodeString(text)
	} else {
		digest, err = hex.DecodeString(text)
	}
	if err != nil || len(digest) != sha256.Size || strings.ContainsAny(text, "\r\n") {
		return nil
	}
	return digest
}

// seconds reads a timestamp of whole seconds since 1970.
func seconds(text string) (time.Time, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(n, 0), err == nil && n > 0
}
