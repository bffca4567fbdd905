package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/auth"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/httpapi"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
)

// silent is a store that answers when a test says, and counts who asks.
type silent struct {
	*memory.Store
	hangs, fails atomic.Bool
	asked        atomic.Int32
}

func (s *silent) NextTimer(ctx context.Context) (time.Time, error) {
	s.asked.Add(1)
	if s.hangs.Load() {
		<-ctx.Done()
		return time.Time{}, ctx.Err()
	}
	if s.fails.Load() {
		return time.Time{}, errors.New("canary: the database said no")
	}
	return s.Store.NextTimer(ctx)
}

// get asks a handler without a network, so that time is a test's own, and without a key.
func get(h http.Handler, path string) answer {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return answer{w.Code, w.Header(), w.Body.String()}
}

func handlerOn(t *testing.T, kept *silent, stopping <-chan struct{}) http.Handler {
	t.Helper()
	keys, err := auth.New(apiKey)
	if err != nil {
		t.Fatal(err)
	}
	return httpapi.New(httpapi.Options{Engine: engine.New(kept, nil, engine.Options{}), Reader: kept, Keys: keys, Version: "test", Stopping: stopping})
}

// A store that is away makes a server not ready within two seconds, and ready again by itself. That it lives does not depend on the store.
func TestAServerIsReadyWhileItsStoreAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &silent{Store: memory.New()}
		h := handlerOn(t, kept, nil)
		ready := func() answer {
			time.Sleep(time.Second) // the look before has passed
			return get(h, "/readyz")
		}
		if a := ready(); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
		kept.hangs.Store(true)
		begun := time.Now()
		a := ready()
		a.problem(t, http.StatusServiceUnavailable, "not_ready")
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("it took %v to say so", took)
		}
		if a.header.Get("Retry-After") == "" {
			t.Error("it does not say when to come again")
		}
		kept.hangs.Store(false)
		kept.fails.Store(true)
		if a := ready(); strings.Contains(a.body, "canary") {
			t.Errorf("it tells strangers what the store said: %s", a.body)
		} else {
			a.problem(t, http.StatusServiceUnavailable, "not_ready")
		}
		for _, path := range []string{"/livez", "/healthz", "/health"} {
			if a := get(h, path); a.status != http.StatusOK {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
		kept.fails.Store(false)
		if a := ready(); a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

// Anybody may ask, and the store hears of it once a second, however long it takes.
func TestManyWhoAskWhetherItIsReadyAreOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &silent{Store: memory.New()}
		h := handlerOn(t, kept, nil)
		for _, hangs := range []bool{false, true} {
			kept.hangs.Store(hangs)
			kept.asked.Store(0)
			begun := time.Now()
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() { get(h, "/readyz") })
			}
			all.Wait()
			if got := kept.asked.Load(); got != 1 {
				t.Errorf("the store was asked %d times", got)
			}
			if took := time.Since(begun); took > 2*time.Second {
				t.Errorf("they waited %v", took)
			}
			time.Sleep(time.Second)
		}
		// Who asks and goes away takes nobody's answer along.
		kept.hangs.Store(false)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", http.NoBody))
		if a := get(h, "/readyz"); a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

// A load balancer sends nothing more to a server that stops, while it still answers.
func TestAServerThatStopsIsNotReady(t *testing.T) {
	kept, stopping := &silent{Store: memory.New()}, make(chan struct{})
	h := handlerOn(t, kept, stopping)
	if a := get(h, "/readyz"); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	close(stopping)
	get(h, "/readyz").problem(t, http.StatusServiceUnavailable, "stopping")
	if a := get(h, "/livez"); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// readOnly is a store that can be read and not written.
type readOnly struct{ silent }

func (*readOnly) Commit(context.Context, []store.Change) ([]store.Result, error) {
	return nil, store.ErrUnavailable
}

// A node whose database does not write any more, as after a failover that it has not followed, is not ready though it can read.
func TestAServerThatCannotWriteIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &readOnly{silent{Store: memory.New()}}
		e := engine.New(kept, nil, engine.Options{})
		h := httpapi.New(httpapi.Options{Engine: e, Reader: kept, Hooks: hooks(t)})
		if a := get(h, "/readyz"); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/hooks/any", strings.NewReader("{}")))
		}()
		time.Sleep(5 * time.Second)
		get(h, "/readyz").problem(t, http.StatusServiceUnavailable, "not_ready")
		<-asked // it is given up after half a minute
		get(h, "/readyz").problem(t, http.StatusServiceUnavailable, "not_ready")
		time.Sleep(3 * time.Second)
		if a := get(h, "/readyz"); a.status != http.StatusOK {
			t.Errorf("nothing is written, so that nothing is known: %d %s", a.status, a.body)
		}
	})
}
