package call_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/wire"
)

// newCaller makes a Caller that ends with its test.
func newCaller(t *testing.T, options call.Options) *call.Caller {
	t.Helper()
	caller := call.New(options)
	t.Cleanup(caller.Close)
	return caller
}

// app serves a handler on loopback, at the URL that it returns.
func app(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL + "/api/nelkap"
}

// answers is a handler that answers as an SDK does.
func answers(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(wire.HeaderSDK, "go/0.1.0")
		w.Header().Set("Content-Type", wire.ContentType)
		_, _ = io.WriteString(w, body)
	}
}

// request is a call of an app at a URL that an operator named.
func request(url string) call.Request {
	return call.Request{Target: call.Target{URL: url, Private: true}, ID: "call_1", Body: []byte(`{"type":"call"}`)}
}

// rawApp is an app without HTTP: it reads requests, and a script says what it does with the n-th of each connection.
type rawApp struct {
	t        *testing.T
	listener net.Listener
	wait     sync.WaitGroup

	mu          sync.Mutex
	connections int
	deliveries  map[string]int // by webhook-id
}

// exchange is one request that arrived whole at a rawApp.
type exchange struct {
	conn   net.Conn
	number int // of its connection, from 1
	id     string
}

// newRawApp serves until its test ends. The script tells whether the connection goes on.
func newRawApp(t *testing.T, script func(exchange) bool) *rawApp {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &rawApp{t: t, listener: listener, deliveries: map[string]int{}}
	a.wait.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			a.mu.Lock()
			a.connections++
			a.mu.Unlock()
			a.wait.Go(func() { a.serve(c, script) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		a.wait.Wait()
	})
	return a
}

func (a *rawApp) serve(c net.Conn, script func(exchange) bool) {
	defer c.Close()
	reader := bufio.NewReader(c)
	for number := 1; ; number++ {
		r, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		id := r.Header.Get("webhook-id")
		a.mu.Lock()
		a.deliveries[id]++
		a.mu.Unlock()
		if !script(exchange{conn: c, number: number, id: id}) {
			return
		}
	}
}

func (a *rawApp) url() string { return "http://" + a.listener.Addr().String() + "/api/nelkap" }

func (a *rawApp) delivered(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.deliveries[id]
}

func (a *rawApp) connected() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.connections
}

// answer writes an SDK's answer to a connection.
func answer(c net.Conn, body string) {
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nNelkap-SDK: go/0.1.0\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", wire.ContentType, len(body), body)
}
