package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/id"
)

// at makes a client of a handler.
func at(t *testing.T, key string, handler http.HandlerFunc) *client.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return to(t, server.URL, key)
}

func to(t *testing.T, url, key string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: url, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func answerJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(value)
}

// A password may stand in the address, for what is before the server: it is sent, and no error shows it.
func TestNoErrorShowsAPasswordOfTheAddress(t *testing.T) {
	var password string
	c := at(t, "", func(w http.ResponseWriter, r *http.Request) {
		_, password, _ = r.BasicAuth()
		answerJSON(w, http.StatusOK, "no list")
	})
	strange := to(t, strings.Replace(c.Shown(), "://", "://ann:canary-password@", 1), "")
	nobody := to(t, "http://ann:canary-password@127.0.0.1:1", "")
	for _, c := range []*client.Client{strange, nobody} {
		if _, err := c.Apps(t.Context()); err == nil || strings.Contains(err.Error(), "canary") || strings.Contains(c.Shown(), "canary") {
			t.Errorf("%s: %v", c.Shown(), err)
		}
	}
	if password != "canary-password" {
		t.Errorf("the password that came is %q", password)
	}
}

// A try whose answer is lost is followed by another, with the id of the first.
// Rule K6.
func TestALostAnswerIsAskedForAgainWithTheSameID(t *testing.T) {
	var mu sync.Mutex
	var ids []string
	c := at(t, "", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ ID string }
		json.NewDecoder(r.Body).Decode(&body)
		mu.Lock()
		ids = append(ids, body.ID)
		n := len(ids)
		mu.Unlock()
		switch n {
		case 1: // the connection breaks before an answer
			conn, _, _ := w.(http.Hijacker).Hijack()
			conn.Close()
		case 2: // the server stops
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			json.NewEncoder(w).Encode(apitype.Problem{Status: 503, Code: "stopping", Detail: "the server is stopping"})
		default:
			answerJSON(w, http.StatusCreated, map[string]any{"id": body.ID, "created": true})
		}
	})
	run, err := c.StartRun(t.Context(), client.StartRun{Workflow: "w"})
	if err != nil || !run.Created || run.ID != ids[0] || id.Check(id.Run, run.ID) != nil {
		t.Fatalf("%+v, %v", run, err)
	}
	if len(ids) != 3 || ids[1] != ids[0] || ids[2] != ids[0] {
		t.Errorf("the tries had the ids %v", ids)
	}
}

func TestNobodyThere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	_, err = to(t, "http://"+listener.Addr().String(), "").Apps(t.Context())
	if !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), "nelkap dev") || !strings.Contains(err.Error(), listener.Addr().String()) {
		t.Errorf("got %v", err)
	}
}

func TestAStrangerIsToldApart(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"a page": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") },
		"a 404":  http.NotFound,
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		},
		"JSON of its own": func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, 200, []int{1}) },
		"an empty problem": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := at(t, "", handler).Apps(t.Context()); !errors.Is(err, client.ErrStranger) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestTheKeyGoesToTheServerAlone(t *testing.T) {
	const key = "canary-api-key-0123456789abcdefghij"
	c := at(t, key, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer "+key {
			t.Errorf("got %q", got)
		}
		w.WriteHeader(http.StatusTeapot)
	})
	if _, err := c.Apps(t.Context()); err == nil || strings.Contains(err.Error(), key) {
		t.Errorf("got %v", err)
	}
}

func TestAContextEndsARequest(t *testing.T) {
	reached, release := make(chan struct{}), make(chan struct{})
	c := at(t, "", func(http.ResponseWriter, *http.Request) {
		close(reached)
		<-release
	})
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Run(ctx, "run_1", time.Minute)
		ended <- err
	}()
	<-reached
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestAnAddressThatIsNone(t *testing.T) {
	for _, url := range []string{"", "localhost:6355", "ftp://x", "http://", "http://x?y=1", "://"} {
		if _, err := client.New(client.Options{URL: url}); err == nil {
			t.Errorf("%q was taken", url)
		}
	}
}
