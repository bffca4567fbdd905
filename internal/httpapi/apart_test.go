package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/httpapi"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
)

// parted is a store that its node can be cut off from, beside others that reach it.
type parted struct {
	*memory.Store
	cut atomic.Bool
}

func (p *parted) Commit(ctx context.Context, changes []store.Change) ([]store.Result, error) {
	if p.cut.Load() {
		return nil, store.ErrUnavailable
	}
	return p.Store.Commit(ctx, changes)
}

// Rule C1: an app that polls a node which is cut off from the store is heard by no other while its connection stays there, and its calls would be
// taken for cut. A balancer that deals out connections has another node hear it only once this one closes.
func TestANodeThatDoesNotReachTheStoreKeepsNoConnectionOfAnApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &parted{Store: memory.New()}
		e := engine.New(kept, nil, engine.Options{Node: "node0"})
		h := httpapi.New(httpapi.Options{Engine: e, Reader: kept})
		ctx, cancel := context.WithCancel(t.Context())
		ready, ended := make(chan struct{}), make(chan error, 1)
		go func() { ended <- e.Run(ctx, func() { close(ready) }) }()
		<-ready
		closes := func() bool {
			t.Helper()
			time.Sleep(5 * time.Second)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/heartbeats", strings.NewReader(`{"process":"p","calls":[],"waitMs":1000}`)))
			if w.Code != http.StatusOK {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			return w.Header().Get("Connection") == "close"
		}
		if closes() {
			t.Error("a node that reaches the store closes the connections of apps")
		}
		kept.cut.Store(true)
		if !closes() {
			t.Error("the app keeps its connection, and no other node hears of it")
		}
		kept.cut.Store(false)
		if closes() {
			t.Error("it closes connections though it reaches the store again")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
