package standin

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// waitMax bounds how long GET /control/holds/{id} waits.
const waitMax = time.Minute

// A request passes two places at which it can be held.
const (
	holdWork   = "work"   // before the effect: the key is in use meanwhile
	holdAnswer = "answer" // after the effect, its answer kept under the key: the caller does not know of it yet
)

// control is how a test or the demo takes a hand in what happens.
type control struct {
	mu       sync.Mutex
	pace     time.Duration
	holds    map[string]*hold
	failures map[string][]int // statuses for the next requests, by path
}

// hold stops the next request that it fits, until it is released or the caller hangs up.
type hold struct {
	ID        string `json:"id"`
	Path      string `json:"path"`
	KeyPrefix string `json:"keyPrefix"`
	At        string `json:"at"`

	key      string        // of the request that is held; set before taken is closed
	taken    chan struct{} // closed once a request is held
	released chan struct{} // closed by release
}

func newControl() *control {
	return &control{holds: map[string]*hold{}, failures: map[string][]int{}}
}

// enter lets a request pass at a place, later if it is to be held there. A provider carries on when its caller hangs up, so
// the request goes on in any case.
func (c *control) enter(r *http.Request, place string) {
	if place == holdAnswer {
		c.mu.Lock()
		pace := c.pace
		c.mu.Unlock()
		pause(r.Context(), pace)
	}
	if h := c.take(r, place); h != nil {
		select {
		case <-h.released:
		case <-r.Context().Done():
		}
	}
}

// take finds a hold for the request. A hold stops one request only.
func (c *control) take(r *http.Request, place string) *hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	for _, h := range c.holds {
		if h.At == place && h.Path == r.URL.Path && strings.HasPrefix(key, h.KeyPrefix) && !closed(h.taken) && !closed(h.released) {
			h.key = key
			close(h.taken)
			return h
		}
	}
	return nil
}

// failure gives the status that the next request of a path is to fail with, or 0.
func (c *control) failure(path string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.failures[path]
	if len(waiting) == 0 {
		return 0
	}
	c.failures[path] = waiting[1:]
	return waiting[0]
}

func (c *control) addHold(w http.ResponseWriter, r *http.Request) {
	h := &hold{At: holdAnswer, taken: make(chan struct{}), released: make(chan struct{})}
	if !read(w, r, h) {
		return
	}
	if h.Path == "" || (h.At != holdWork && h.At != holdAnswer) {
		refuse(w, http.StatusUnprocessableEntity, `a hold needs a path, and at is "work" or "answer"`)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h.ID = fmt.Sprintf("hold_%d", len(c.holds)+1)
	c.holds[h.ID] = h
	reply(w, http.StatusCreated, h)
}

// getHold tells whether a request is held. With ?waitMs= it waits for that.
func (c *control) getHold(w http.ResponseWriter, r *http.Request) {
	h := c.find(w, r)
	if h == nil {
		return
	}
	if ms, err := strconv.Atoi(r.URL.Query().Get("waitMs")); err == nil && ms > 0 {
		timer := time.NewTimer(min(time.Duration(ms)*time.Millisecond, waitMax))
		defer timer.Stop()
		select {
		case <-h.taken:
		case <-h.released:
		case <-timer.C:
		case <-r.Context().Done():
		}
	}
	state := map[string]any{"id": h.ID, "holding": closed(h.taken) && !closed(h.released)}
	if closed(h.taken) {
		state["key"] = h.key
	}
	reply(w, http.StatusOK, state)
}

func (c *control) releaseHold(w http.ResponseWriter, r *http.Request) {
	h := c.find(w, r)
	if h == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !closed(h.released) {
		close(h.released)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (c *control) find(w http.ResponseWriter, r *http.Request) *hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.holds[r.PathValue("id")]
	if h == nil {
		refuse(w, http.StatusNotFound, "no such hold")
	}
	return h
}

func (c *control) addFailure(w http.ResponseWriter, r *http.Request) {
	var wanted struct {
		Path   string `json:"path"`
		Status int    `json:"status"`
	}
	if !read(w, r, &wanted) {
		return
	}
	if wanted.Path == "" || wanted.Status < 500 || wanted.Status > 599 {
		refuse(w, http.StatusUnprocessableEntity, "a failure needs a path and a status from 500 to 599")
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures[wanted.Path] = append(c.failures[wanted.Path], wanted.Status)
	w.WriteHeader(http.StatusNoContent)
}

// setPace makes every answer take that long.
func (c *control) setPace(w http.ResponseWriter, r *http.Request) {
	var wanted struct {
		DelayMs int `json:"delayMs"`
	}
	if !read(w, r, &wanted) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pace = time.Duration(max(wanted.DelayMs, 0)) * time.Millisecond
	w.WriteHeader(http.StatusNoContent)
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
