package call

import (
	"crypto/x509"
	"time"
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
