package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/nelkap/nelkap/internal/wire"
)

// Limits of the protocol's requests (protocol/SPEC.md, section 2).
const (
	heartbeatBytesMax = 8 << 20 // some 40,000 calls of one process
	idBytesMax        = 256     // process ids, call ids, nonces, tokens
)

// protocol registers what apps send. Its messages bear their calls' tokens.
func (a *api) protocol() {
	a.mux.HandleFunc("POST /v1/saves", message(a, wire.SavesBytesMax, func(ctx context.Context, m wire.Saves) (any, error) {
		if err := checkProcess(m.Process); err != nil {
			return nil, err
		}
		return a.Engine.Save(ctx, m), nil
	}))
	a.mux.HandleFunc("POST /v1/ends", message(a, wire.CallBytesMax, func(ctx context.Context, m wire.Ends) (any, error) {
		if err := checkProcess(m.Process); err != nil {
			return nil, err
		}
		return a.Engine.End(ctx, m), nil
	}))
	a.mux.HandleFunc("POST /v1/heartbeats", message(a, heartbeatBytesMax, func(ctx context.Context, m wire.Heartbeat) (any, error) {
		if err := checkProcess(m.Process); err != nil {
			return nil, err
		}
		return a.Engine.Heartbeat(ctx, m)
	}))
	a.mux.HandleFunc("GET /v1/calls/{id}/steps", a.callSteps)
}

func checkProcess(process string) error {
	if process == "" || len(process) > idBytesMax {
		return problem(http.StatusBadRequest, "bad_request", "process must have 1 to 256 characters: the random id that the process drew when it started")
	}
	return nil
}

// message makes the handler of one kind of message: read within its limit, decode, hand over, answer.
func message[M any](a *api, bytesMax int64, handle func(context.Context, M) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, done, err := a.readBody(w, r, bytesMax)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		var m M
		err = wire.Decode(body, &m)
		done() // a heartbeat is held for long
		if err != nil {
			a.fail(w, r, problem(http.StatusBadRequest, "bad_request", err.Error()))
			return
		}
		answer, err := handle(r.Context(), m)
		if a.Engine.Apart() {
			// The next message is another node's to hear, also where a balancer deals out connections and not requests.
			w.Header().Set("Connection", "close")
		}
		if err == nil {
			err = writeMessage(w, answer)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	}
}

func (a *api) callSteps(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil || after < 0 {
		a.fail(w, r, problem(http.StatusBadRequest, "bad_request", "after must be the number of an entry"))
		return
	}
	f := wire.Fence{Call: r.PathValue("id"), Token: r.Header.Get(wire.HeaderToken), Nonce: r.Header.Get(wire.HeaderNonce)}
	page, err := a.Engine.Steps(r.Context(), f, after)
	if err == nil {
		err = writeMessage(w, page)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}
