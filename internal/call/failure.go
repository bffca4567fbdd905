package call

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
)

// failed is the outcome of a request that got no answer.
func (d *delivery) failed(ctx context.Context, address *url.URL, err error) Outcome {
	d.mu.Lock()
	sent, expired, connected := d.sent, d.expired, d.conn != nil
	// A parser that ran out of bytes blames the bytes; the connection knows better.
	strange := d.answered && !d.broken() && !closed(err)
	d.mu.Unlock()
	switch {
	case !sent && ctx.Err() != nil:
		return Outcome{Kind: NotSent, Reason: "the call was stopped before it was sent", Err: context.Cause(ctx)}
	case !sent && expired:
		return Outcome{Kind: NotSent, Reason: fmt.Sprintf("%s did not take a connection within %v: is it overloaded, or behind a firewall?",
			hostOf(address), SendWithin), Err: errTooLate}
	case !sent && connected:
		return Outcome{Kind: NotSent, Reason: "the connection closed before the call was sent", Err: err}
	case !sent:
		return notSentTo(address, err)
	case ctx.Err() != nil:
		return ended(ctx)
	case strange:
		return Outcome{Kind: Unusable, Reason: "what the app answered can't be read as HTTP: " + excerpt(err.Error())}
	default:
		return Outcome{Kind: Lost, Reason: "the connection closed before the app answered", Err: err}
	}
}

// closed tells whether an error says that the connection broke, not that what came over it was wrong.
func closed(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func ended(ctx context.Context) Outcome {
	return Outcome{Kind: Ended, Reason: "the call was stopped before the app answered", Err: context.Cause(ctx)}
}

// notSent is the outcome of a request that was not even tried; the error says what to do.
func notSent(err error) Outcome {
	return Outcome{Kind: NotSent, Reason: err.Error(), Err: err}
}

// notSentTo is the outcome of a connection that did not come about.
func notSentTo(address *url.URL, err error) Outcome {
	return Outcome{Kind: NotSent, Reason: whyNotSent(hostOf(address), err), Err: err}
}

func whyNotSent(host string, err error) string {
	var (
		unknownName *net.DNSError
		notTLS      tls.RecordHeaderError
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError
		network     net.Error
	)
	switch {
	case errors.Is(err, ErrAddress):
		return excerpt(err.Error())
	case errors.As(err, &unknownName):
		return fmt.Sprintf("the name of %s can't be looked up: is it right, and does it exist where this server runs?", host)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("nothing listens at %s: is the app running, and is the port right?", host)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fmt.Sprintf("there is no route to %s from this server", host)
	case errors.As(err, &notTLS):
		return fmt.Sprintf("%s does not speak TLS: is its URL http, not https?", host)
	case errors.As(err, &authority):
		return fmt.Sprintf("the certificate of %s is signed by nobody that this server trusts: add its authority to the system's", host)
	case errors.As(err, &certificate):
		return fmt.Sprintf("the certificate of %s is not valid: %s", host, excerpt(certificate.Err.Error()))
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return fmt.Sprintf("%s did not take a connection within %v: is it overloaded, or behind a firewall?", host, connectTimeout)
	}
	return fmt.Sprintf("no connection to %s: %s", host, excerpt(err.Error()))
}

// hostOf is the host and port of an address, fit to be shown.
func hostOf(address *url.URL) string { return excerpt(address.Host) }
