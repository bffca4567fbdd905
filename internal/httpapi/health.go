package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/nelkap/nelkap/internal/store"
)

const (
	// lookWithin bounds a look at the store: less than the time in which those who ask want an answer.
	lookWithin = 2 * time.Second
	// lookFor is how long a look's result stands. Anybody may ask whether the server is ready, without a key and as often as they like;
	// the store hears of it once a second.
	lookFor = time.Second
)

// state is what health answers.
type state struct {
	Status  string `json:"status"`
	Version string `json:"version,omitzero"`
	Held    bool   `json:"held,omitzero"`
}

// alive answers as long as the process does. It looks at nothing: who restarts a server because its database is away mends nothing.
func alive(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, state{Status: "ok"})
}

// readyz tells whether requests may be sent here: not while the store can't be read or written, and not to a server that stops. Reading is
// tried; of writing, the server's own commits are what is known.
func (a *api) readyz(w http.ResponseWriter, r *http.Request) {
	select {
	case <-a.Stopping:
		a.fail(w, r, problem(http.StatusServiceUnavailable, "stopping", "the server stops: send requests to another, or try again after Retry-After"))
		return
	default:
	}
	fresh, err := a.look.at(r.Context(), a.Reader)
	if err != nil {
		if fresh {
			a.Logger.Error("not ready: the store can't be read", "error", err)
		}
		a.fail(w, r, problem(http.StatusServiceUnavailable, "not_ready", "the store can't be read now"))
		return
	}
	if a.Engine.Unstored() {
		a.fail(w, r, problem(http.StatusServiceUnavailable, "not_ready", "the store can't be written now"))
		return
	}
	writeJSON(w, state{Status: "ready", Version: a.Version, Held: a.Held})
}

// look is the last look at the store.
type look struct {
	turn  chan struct{} // holds one value while one looks: the others wait for its result
	until time.Time     // when the result is too old
	err   error
}

// at looks at the store, or gives the result of who has just looked; fresh: it looked. The look ends within lookWithin, and goes on
// when who asked for it has gone, since others wait for the result.
func (l *look) at(ctx context.Context, reader store.Reader) (fresh bool, err error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if time.Now().Before(l.until) {
		return false, l.err
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookWithin)
	defer cancel()
	_, l.err = reader.NextTimer(limited)
	l.until = time.Now().Add(lookFor)
	return true, l.err
}
