package httpapi_test

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/httpapi"
	"github.com/nelkap/nelkap/internal/store/memory"
)

// pipes makes connections in memory, so that a real http.Server runs by a test's own clock.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// A sender that pauses in its body and never goes on is answered, and holds its connection for a minute or two at most: whether the body is
// wanted or not, and whether the sender has a key or not.
func TestABodyThatNeverComesHoldsNoConnection(t *testing.T) {
	const sized = "Content-Length: 100\r\n\r\nx"
	for name, c := range map[string]struct {
		request string
		status  int
	}{
		"without a key":             {"POST /v1/runs HTTP/1.1\r\nHost: x\r\n" + sized, http.StatusUnauthorized},
		"without a key, in chunks":  {"POST /v1/runs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", http.StatusUnauthorized},
		"to nothing":                {"POST /nothing HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + apiKey + "\r\n" + sized, http.StatusNotFound},
		"to a route that wants one": {"POST /hooks/x HTTP/1.1\r\nHost: x\r\n" + sized, http.StatusBadRequest},
		"to one that wants none":    {"GET /healthz HTTP/1.1\r\nHost: x\r\n" + sized, http.StatusOK},
		"to one that asks first":    {"GET /callbacks/x?a=" + strings.Repeat("y", 8<<10) + " HTTP/1.1\r\nHost: x\r\n" + sized, http.StatusOK},
		"too large, in chunks":      {"POST /hooks/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n80001\r\n" + strings.Repeat("x", 0x80001) + "\r\n5\r\nab", http.StatusRequestEntityTooLarge},
		"described, with a key":     {"POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + apiKey + "\r\nContent-Type: application/json\r\n" + sized, http.StatusRequestTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := &pipes{make(chan net.Conn), make(chan struct{})}
				server := httpapi.Server(handlerOn(t, &silent{Store: memory.New()}, nil), slog.New(slog.DiscardHandler))
				served := make(chan error, 1)
				go func() { served <- server.Serve(listener) }()
				here, there := net.Pipe()
				listener.conns <- there
				go io.WriteString(here, c.request) // it ends when the connection does
				here.SetReadDeadline(time.Now().Add(3 * time.Minute))
				reader := bufio.NewReader(here)
				response, err := http.ReadResponse(reader, nil)
				if err != nil {
					t.Errorf("it is not answered: %v", err)
				} else if response.StatusCode != c.status {
					t.Errorf("it is answered %s", response.Status)
				}
				if _, err := io.Copy(io.Discard, reader); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("its connection is held")
				}
				here.Close()
				server.Close()
				<-served
				time.Sleep(time.Second) // net/http lingers on a connection that it closes
			})
		})
	}
}
