package call

import (
	"context"
	"crypto/x509"
	"net/http"
	"time"

	"github.com/nelkap/nelkap/internal/wire"
)

// Trust makes a Caller accept a test server's certificate.
func (c *Caller) Trust(pool *x509.CertPool) { c.private.TLSClientConfig.RootCAs = pool }

// Shorten makes the limits in time short enough to be waited for.
func (c *Caller) Shorten(d time.Duration) { c.describeTimeout, c.strangerTimeMax = d, d }

// Excerpt is excerpt.
func Excerpt(text string) string { return excerpt(text) }

// Dialable tells whether an address may be dialed, for a public and for a private target.
func Dialable(address string) (public, private error) {
	network := "tcp4"
	if address[0] == '[' {
		network = "tcp6"
	}
	return publicAddresses.control(network, address, nil), privateAddresses.control(network, address, nil)
}

// DecodeManifest is decodeManifest.
func DecodeManifest(body []byte) (*wire.Manifest, error) { return decodeManifest(body) }

// Classify sorts an answer that is small enough to be in memory.
func Classify(ctx context.Context, response *http.Response) Outcome {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return classify(ctx, cancel, response, answerLimits{callBytes: 15, answerBytesMax: 1 << 20, strangerTimeMax: strangerTimeMax})
}
