package httpapi

import (
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
)

// docs is where a code is explained.
const docs = "https://docs.nelkap.com/errors/"

func problem(status int, code, detail string) *apitype.Problem {
	return &apitype.Problem{Type: docs + code, Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

// known maps the engine's and the store's errors to problems: the one place that does. advice is what to do, where the error's own
// text does not say it.
var known = []struct {
	err    error
	status int
	code   string
	advice string
}{
	{store.ErrNotFound, http.StatusNotFound, "not_found", ""},
	{engine.ErrBusy, http.StatusTooManyRequests, "busy", "try again after Retry-After"},
	{engine.ErrStopping, http.StatusServiceUnavailable, "stopping", "try again after Retry-After"},
	{engine.ErrUnstored, http.StatusServiceUnavailable, "store_unavailable", "try again after Retry-After"},
	{store.ErrUnavailable, http.StatusServiceUnavailable, "store_unavailable", "try again after Retry-After"},
	{store.ErrRowLocked, http.StatusServiceUnavailable, "store_unavailable", "end that session, which pg_stat_activity shows, and try again after Retry-After"},
	{store.ErrUnknown, http.StatusServiceUnavailable, "outcome_unknown", "send the same request again, with its id, key or Idempotency-Key: it finds what was stored"},
	{engine.ErrUnknownWorkflow, http.StatusUnprocessableEntity, "workflow_unknown", "start the app that has it, or see GET /v1/workflows for those that there are"},
	{engine.ErrAmbiguousWorkflow, http.StatusUnprocessableEntity, "workflow_ambiguous", ""},
	{engine.ErrAmbiguousSend, http.StatusConflict, "ambiguous_send", ""},
	{engine.ErrIDUsed, http.StatusUnprocessableEntity, "invalid", "draw a new one for each run"},
	{engine.ErrRequestDiffers, http.StatusUnprocessableEntity, "idempotency_key_reused", "give each request a key of its own"},
	{engine.ErrSuperseded, http.StatusConflict, "superseded", "the newer call goes on with the run"},
	{engine.ErrEnded, http.StatusConflict, "ended", "nothing more is to be done for it"},
	{engine.ErrUnknownStep, http.StatusUnprocessableEntity, "step_unknown", ""},
	{engine.ErrBadSchedule, http.StatusUnprocessableEntity, "bad_schedule", ""},
	{engine.ErrDeclared, http.StatusConflict, "declared", ""},
	{engine.ErrUnknownApp, http.StatusNotFound, "not_found", "GET /v1/apps lists those that there are"},
	{engine.ErrAppUsed, http.StatusConflict, "app_used", ""},
	{engine.ErrAppUnusable, http.StatusUnprocessableEntity, "app_unusable", ""},
	{context.Canceled, 499, "client_closed_request", ""},
}

// private are errors whose texts tell of the database and of who uses it: they go to the log alone.
var private = []error{store.ErrUnavailable, store.ErrRowLocked, store.ErrUnknown}

// problemOf turns any error into a problem. What is not on the list is a fault of ours: its text goes to the log alone.
func (a *api) problemOf(ctx context.Context, err error) *apitype.Problem {
	var p *apitype.Problem
	if errors.As(err, &p) {
		return withID(ctx, p)
	}
	for _, k := range known {
		if errors.Is(err, k.err) {
			detail := err.Error()
			if slices.Contains(private, k.err) {
				a.Logger.Warn("a request could not be answered", "requestId", requestID(ctx), "error", err)
				detail = strings.TrimPrefix(k.err.Error(), "store: ")
			}
			if k.advice != "" {
				detail += ": " + k.advice
			}
			return withID(ctx, problem(k.status, k.code, detail))
		}
	}
	a.Logger.Error("a request failed", "requestId", requestID(ctx), "error", err)
	return withID(ctx, problem(http.StatusInternalServerError, "internal", "the server failed; its log has the details under this requestId"))
}

func withID(ctx context.Context, p *apitype.Problem) *apitype.Problem {
	copied := *p
	copied.RequestID = requestID(ctx)
	return &copied
}

// runError is the problem of a request for a run, which may not be there.
func (a *api) runError(ctx context.Context, runID string, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		detail := fmt.Sprintf("there is no run %q: GET /v1/runs lists those that there are", runID)
		if kept := a.Engine.RunsFor(); kept > 0 {
			detail += fmt.Sprintf(". Here runs are kept for %v once they have ended (--runs-for)", kept)
		}
		err = problem(http.StatusNotFound, "not_found", detail)
	}
	return a.errorOf(ctx, err)
}

// fail answers with a problem.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := a.problemOf(r.Context(), err)
	w.Header().Set("Content-Type", p.ContentType(""))
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	json.MarshalWrite(w, p, anyText) //nolint:errcheck // the client may be gone
}

// errorOf is fail for described routes: huma writes the problem.
func (a *api) errorOf(ctx context.Context, err error) error {
	p := a.problemOf(ctx, err)
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		return huma.ErrorWithHeaders(p, http.Header{"Retry-After": {"1"}})
	}
	return p
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.MarshalWrite(w, v, anyText) //nolint:errcheck // the client may be gone
}

// anyText: a path or a header that is shown may hold bytes that are no text; they become U+FFFD, and the answer stays whole.
var anyText = jsontext.AllowInvalidUTF8(true)

// writeMessage answers with a message of the protocol.
func writeMessage(w http.ResponseWriter, message any) error {
	body, err := wire.Encode(message)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body))) // a large answer would be sent in chunks without it
	w.Write(body)
	return nil
}
