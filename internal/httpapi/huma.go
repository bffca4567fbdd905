package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/nelkap/nelkap/internal/apitype"
)

// setUpHuma sets what huma keeps for the whole process.
var setUpHuma = sync.OnceFunc(func() {
	huma.ValidateStrictCasing = true
	huma.DefaultArrayNullable = false // lists are always there
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		return newHumaError(status, message, errs...)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, message string, errs ...error) huma.StatusError {
		p := newHumaError(status, message, errs...)
		if ctx != nil {
			p.RequestID = requestID(ctx.Context())
		}
		return p
	}
})

// unmarshal reads a described body. Users' values in it keep their bytes, so numbers are not turned into Go's, which are smaller.
func unmarshal(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("the body is not valid UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(v); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON")
	}
	return nil
}

// checkQuery refuses a query that huma would read in part: it takes the first of several values, and leaves out what is empty, or not escaped
// as it has to be. A filter that is left out selects more than was asked for. An empty cursor is the first page's.
func checkQuery(query string) error {
	seen := map[string]bool{}
	for pair := range strings.SplitSeq(query, "&") {
		escaped, value, valued := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(escaped)
		if err == nil {
			_, err = url.QueryUnescape(value)
		}
		switch {
		case err != nil:
			return fmt.Errorf("the query can't be read: %w; a %% is written %%25", err)
		case seen[name] && pair != "":
			return fmt.Errorf("the query has %q twice: give it once", name)
		case valued && value == "" && name != "cursor":
			return fmt.Errorf("the query's %q is empty: give it a value, or leave it out", name)
		}
		seen[name] = true
	}
	return nil
}

// codes are the codes of refusals that huma makes.
var codes = map[int]string{
	http.StatusBadRequest: "bad_request", http.StatusUnprocessableEntity: "invalid", http.StatusRequestEntityTooLarge: "body_too_large",
	http.StatusUnsupportedMediaType: "bad_content_type", http.StatusRequestTimeout: "request_timeout", http.StatusNotAcceptable: "not_acceptable",
}

// sendJSON is the advice to a request of another type, which curl's -d makes unless it is told.
const sendJSON = "send it with the header Content-Type: application/json"

// newHumaError makes the problems of requests that don't fit their description.
func newHumaError(status int, message string, errs ...error) *apitype.Problem {
	code := codes[status]
	if code == "" {
		code = "internal"
	}
	p := problem(status, code, message)
	for _, err := range errs {
		var detailer huma.ErrorDetailer
		if errors.As(err, &detailer) {
			d := detailer.ErrorDetail()
			p.Errors = append(p.Errors, apitype.ProblemDetail{Location: d.Location, Message: d.Message})
			p.Detail += ": " + d.Message + " at " + d.Location
		} else if err != nil {
			p.Errors = append(p.Errors, apitype.ProblemDetail{Message: err.Error()})
			p.Detail += ": " + err.Error()
		}
	}
	if status == http.StatusUnsupportedMediaType {
		p.Detail += ": the body is JSON, " + sendJSON
	}
	return p
}
