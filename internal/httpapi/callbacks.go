package httpapi

import (
	"encoding/json"
	"errors"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"unicode/utf8"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
)

// endCallback gives a callback the body as its payload: JSON, or a form's fields; the query's, where there is no body. It is
// acknowledged once it is durable, and taken once.
func (a *api) endCallback(w http.ResponseWriter, r *http.Request) {
	body, done, err := a.readBody(w, r, eventBytesMax)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	defer done()
	payload, err := callbackPayload(r, body)
	if err == nil {
		err = a.Engine.EndCallback(r.Context(), r.PathValue("token"), payload)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		err = problem(http.StatusNotFound, "not_found", "there is no callback of this address: check that it was copied whole")
	case errors.Is(err, engine.ErrCallbackOver):
		err = problem(http.StatusGone, "callback_over", "this callback was answered before, or its time or its run is over")
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, state{Status: "ok"})
}

func callbackPayload(r *http.Request, body []byte) (json.RawMessage, error) {
	payload := json.RawMessage(body)
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case kind == "application/x-www-form-urlencoded" && len(body) > 0: // clients say so of a POST without a body, too
		fields, err := url.ParseQuery(string(body))
		if err != nil {
			return nil, problem(http.StatusBadRequest, "bad_request", "the body is not the form that its Content-Type says")
		}
		payload, _ = json.Marshal(first(fields)) // texts: it can't fail
	case len(body) == 0 && len(r.URL.Query()) > 0:
		payload, _ = json.Marshal(first(r.URL.Query())) // likewise
	case len(body) == 0:
		return nil, nil
	case !utf8.Valid(body):
		return nil, problem(http.StatusBadRequest, "bad_request", "the body is not valid UTF-8: send JSON in UTF-8")
	case !json.Valid(body):
		return nil, problem(http.StatusBadRequest, "bad_request", "the body is not JSON: send JSON, a form, or no body")
	}
	return payload, checkPayload(payload, eventBytesMax)
}

// confirm asks before it posts: mail scanners and previews follow links, and would answer for their readers.
var confirm = template.Must(template.New("confirm").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="robots" content="noindex"><title>Confirm</title>
<body><form method="post">{{range $name, $value := .}}<input type="hidden" name="{{$name}}" value="{{$value}}">
<p>{{$name}}: {{$value}}</p>{{end}}<button>Confirm</button></form></body></html>
`))

// confirmCallback shows a link's reader what it would answer, and a button.
func (a *api) confirmCallback(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; form-action 'self'; frame-ancestors 'none'")
	// The address is the secret. Its own origin may see it: with no referrer at all a browser says of the form that its origin is null, and it
	// would be refused as another origin's.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if err := confirm.Execute(w, first(r.URL.Query())); err != nil {
		a.Logger.Debug("writing a page", "error", err)
	}
}
