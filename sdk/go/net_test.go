package nelkap_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
)

// pipeListener makes connections in memory, so that a real http.Server runs under a synctest clock.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func listen() *pipeListener {
	return &pipeListener{make(chan net.Conn), make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (l *pipeListener) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, errors.New("connection refused")
	}
}

// serveApp serves the app of s by a real http.Server, and gives a way to call it.
func serveApp(t *testing.T, s *fakeServer, server *http.Server) *pipeListener {
	t.Helper()
	l := listen()
	server.Handler = s.app
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return l
}

// post writes a call to a new connection.
func post(t *testing.T, s *fakeServer, l *pipeListener) net.Conn {
	t.Helper()
	conn, err := l.dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	body := s.callMessage("one step", nil)
	r := signed(t.Context(), body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	return conn
}

// Rule C8.
func TestServersTimeoutsDoNotCutACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		bodies := 0
		oneStep(s, &bodies, time.Hour)
		l := serveApp(t, s, &http.Server{WriteTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second})
		conn := post(t, s, l)
		defer conn.Close()
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		var a answer
		if err := json.NewDecoder(response.Body).Decode(&a); err != nil || a.Type != "completed" || bodies != 1 {
			t.Errorf("answer %+v, %v, %d bodies", a, err, bodies)
		}
		if len(s.ends) != 0 {
			t.Errorf("the end went through the API too: %+v", s.ends)
		}
	})
}

func TestClosedConnectionIsNoticedAndTheEndGoesThroughTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		bodies := 0
		oneStep(s, &bodies, time.Minute)
		l := serveApp(t, s, &http.Server{})
		conn := post(t, s, l)
		synctest.Wait()
		conn.Close()
		synctest.Wait()
		if s.pollCount() != 1 {
			t.Error("the call was not named at once")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(s.ends) != 1 || s.ends[0].End.Type != "completed" || bodies != 1 {
			t.Errorf("ends %+v, %d bodies", s.ends, bodies)
		}
	})
}

// A real server at the other side of a real client: connections break at any moment, and nothing is lost or doubled.
func TestBrokenConnectionsToTheServerLoseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := listen()
		var dials atomic.Int32
		transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := l.dial(ctx, network, address)
			if err != nil || dials.Add(1)%2 == 0 {
				return conn, err
			}
			breaking := &breakingConn{Conn: conn}
			breaking.left.Store(700)
			return breaking, nil
		}}
		defer transport.CloseIdleConnections()
		s := newServer(t, nelkap.Options{Logger: quiet, HTTPClient: &http.Client{Transport: transport, Timeout: time.Millisecond}})
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			response, err := s.respond(r, body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("Content-Type", "application/json")
			io.Copy(w, response.Body)
		})}
		go server.Serve(l)
		defer server.Close()
		bodies := 0
		oneStep(s, &bodies, 0)
		for range 20 {
			s.mu.Lock()
			s.entries = nil
			s.mu.Unlock()
			if a := s.call("one step", nil); a.Type != "completed" || string(a.Output) != "1" {
				t.Errorf("answer %+v", a)
			}
		}
		if bodies != 20 || dials.Load() < 2 {
			t.Errorf("%d bodies over %d connections", bodies, dials.Load())
		}
		synctest.Wait()
	})
}

// frozenConn carries nothing more once it is frozen, and does not say so, as where a balancer forgot it.
type frozenConn struct {
	net.Conn
	frozen atomic.Bool
}

func (c *frozenConn) Write(b []byte) (int, error) {
	if c.frozen.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *frozenConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.frozen.Load() {
			return n, err
		}
	}
}

// Over HTTP/2 a request that gets no answer leaves its connection to the next one: a dead one must be found out.
func TestADeadConnectionIsLeftForANewOne(t *testing.T) {
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	defer certificate.Close()
	synctest.Test(t, func(t *testing.T) {
		l := listen()
		server := &http.Server{
			Handler:   http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
			TLSConfig: &tls.Config{Certificates: certificate.TLS.Certificates, NextProtos: []string{"h2"}},
		}
		go server.ServeTLS(l, "", "")
		defer server.Close()
		var conns []*frozenConn
		transport := nelkap.SharedTransport()
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the server is this test's
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := l.dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			conns = append(conns, &frozenConn{Conn: conn})
			return conns[len(conns)-1], nil
		}
		defer transport.CloseIdleConnections()
		try := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://nelkap.test/v1/saves", strings.NewReader("{}"))
			if err != nil {
				return err
			}
			response, err := transport.RoundTrip(r)
			if err != nil {
				return err
			}
			if response.ProtoMajor != 2 {
				t.Errorf("the answer came over %s", response.Proto)
			}
			return response.Body.Close()
		}
		if err := try(); err != nil {
			t.Fatal(err)
		}
		conns[0].frozen.Store(true)
		began := time.Now()
		for try() != nil && time.Since(began) < time.Hour {
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("the server was reached again after %v, over %d connections", took, len(conns))
		}
	})
}

// breakingConn breaks after some bytes were read or written.
type breakingConn struct {
	net.Conn
	left atomic.Int64
}

func (c *breakingConn) Write(b []byte) (int, error) { return c.count(len(b), c.Conn.Write, b) }
func (c *breakingConn) Read(b []byte) (int, error)  { return c.count(1, c.Conn.Read, b) }

func (c *breakingConn) count(n int, act func([]byte) (int, error), b []byte) (int, error) {
	if c.left.Add(int64(-n)) < 0 {
		c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return act(b)
}

// A server that holds a request for a run's end is no server that can't be reached.
func TestAContextThatEndsIsNotTheServersFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := trip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		app := nelkap.New(nelkap.Options{URL: "http://held.test", HTTPClient: &http.Client{Transport: held}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := app.Get(ctx, "run_1")
		if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "can't be reached") {
			t.Error(err)
		}
	})
}
