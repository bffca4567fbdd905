package discover

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nelkap/nelkap/internal/wire"
)

// appAt answers as an app does at a path, and 404 elsewhere, and counts what it is asked.
func appAt(path string, asked *atomic.Int32) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Method == http.MethodGet && r.URL.Path == path {
			w.Header().Set(wire.HeaderSDK, "typescript/0.1.0")
			return
		}
		http.NotFound(w, r)
	})
}

// serve serves on loopback, at a free port of a host.
func serve(t *testing.T, host string, handler http.Handler) (server *httptest.Server, number int) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	server = serveOn(listener, handler)
	t.Cleanup(server.Close)
	return server, listener.Addr().(*net.TCPAddr).Port
}

func serveOn(listener net.Listener, handler http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(handler)
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	return server
}

func TestAppsAreFoundWhereTheyUsuallyAre(t *testing.T) {
	var asked atomic.Int32
	_, first := serve(t, "127.0.0.1", appAt("/api/nelkap", &asked))
	_, second := serve(t, "::1", appAt("/nelkap", &asked))
	_, stranger := serve(t, "127.0.0.1", http.NotFoundHandler())
	_, greedy := serve(t, "127.0.0.1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	_, away := serve(t, "127.0.0.1", http.RedirectHandler("http://127.0.0.1:"+strconv.Itoa(first)+"/api/nelkap", http.StatusFound))
	var own atomic.Int32
	_, me := serve(t, "127.0.0.1", appAt("/api/nelkap", &own))
	found := map[string]int{}
	s := newScanner(me, []int{first, second, stranger, greedy, away, me}, func(url string) { found[url]++ })
	for range 3 {
		s.Look(t.Context())
	}
	want := map[string]int{
		"http://127.0.0.1:" + strconv.Itoa(first) + "/api/nelkap": 1,
		"http://[::1]:" + strconv.Itoa(second) + "/nelkap":        1,
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Error(diff)
	}
	if own.Load() > 0 {
		t.Error("the server asked itself")
	}
	if asked.Load() > 3 {
		t.Errorf("apps that were found are asked again: %d times", asked.Load())
	}
}

func TestAnAppThatComesBackIsFoundAgain(t *testing.T) {
	const portsTried = 20
	for range portsTried {
		if found, back := foundAgain(t); back {
			if found != 2 {
				t.Errorf("found %d times", found)
			}
			return
		}
	}
	t.Fatalf("each of %d ports was taken by another program between the app's end and its return", portsTried)
}

// foundAgain looks for an app that is there, then gone, then there again, and tells how often it was found. back is false where its
// port was taken by another program meanwhile.
func foundAgain(t *testing.T) (found int, back bool) {
	t.Helper()
	var asked atomic.Int32
	server, number := serve(t, "127.0.0.1", appAt("/api/nelkap", &asked))
	s := newScanner(0, []int{number}, func(string) { found++ })
	s.Look(t.Context())
	server.Close()
	s.Look(t.Context())
	listener, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(number))
	if errors.Is(err, syscall.EADDRINUSE) {
		return found, false
	}
	if err != nil {
		t.Fatal(err)
	}
	defer serveOn(listener, appAt("/api/nelkap", &asked)).Close()
	s.Look(t.Context())
	return found, true
}

// What else answers at such a port is not asked all the time: it writes a line into its log for each question.
func TestStrangersAreAskedMoreAndMoreRarely(t *testing.T) {
	var asked atomic.Int32
	_, number := serve(t, "127.0.0.1", appAt("/other", &asked))
	s := newScanner(0, []int{number}, func(url string) { t.Errorf("found %s", url) })
	for range 50 {
		s.Look(t.Context())
	}
	if looks := int(asked.Load()) / len(paths); looks < 5 || looks > 15 {
		t.Errorf("%d looks of 50", looks)
	}
}
