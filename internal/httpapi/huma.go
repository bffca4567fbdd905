package httpapi

import (
	"bytes"
	"encoding/json"
	"encoding/json/jsontext"
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

// Bounds of what is made of a described body before it is known to fit, and of what is said of one that does not.
const (
	membersMax     = 100      // of the body itself: several times those that are known
	opaqueBytesMin = 64 << 10 // what has more, and has parts, is a user's value, or does not fit anyway
	faultsMax      = 10       // of a request, each with its place
)

// unmarshal reads a described body. Users' values in it keep their bytes, so numbers are not turned into Go's, which are smaller. huma reads
// each body twice: first into an any, to look whether it fits.
func unmarshal(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("the body is not valid UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	into := v
	if look, ok := v.(*any); ok {
		into = &looked{look}
	}
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON")
	}
	return nil
}

// errHalf is what is wrong with a name, a key or an id with a lone surrogate, such as "\ud83d". Go reads each of them as the same U+FFFD: two
// keys would be one.
var errHalf = errors.New("there is half a character, a surrogate without the other one,")

// looked is the any that huma looks at. A user's value in it stays as it came, without its parts, which would take fifty times its bytes.
type looked struct{ into *any }

// opaque stands for a value whose parts are not looked at.
type opaque struct{}

// UnmarshalJSON is given JSON that is one value, and whole.
func (l *looked) UnmarshalJSON(text []byte) error {
	if text[0] != '{' {
		return l.read(text)
	}
	members := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if _, err := decoder.Token(); err != nil {
		return err
	}
	for n := 0; decoder.More(); n++ {
		if n == membersMax {
			return fmt.Errorf("the body has more than %d fields, most of which are not known: a value of your own goes into its payload", membersMax)
		}
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		var member json.RawMessage
		if err := decoder.Decode(&member); err != nil {
			return err
		}
		if name != "payload" && !member.IsValid(jsontext.AllowDuplicateNames(true)) {
			return fmt.Errorf("%w in %q", errHalf, name)
		}
		var value any
		if err := (&looked{&value}).read(member); err != nil {
			return err
		}
		members[fmt.Sprint(name)] = value
	}
	*l.into = members
	return nil
}

func (l *looked) read(text []byte) error {
	if len(text) > opaqueBytesMin && (text[0] == '{' || text[0] == '[') {
		*l.into = opaque{}
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(l.into)
}

// checkQuery refuses a query that huma would read in part: it takes the first of several values, and leaves out what is empty, or not escaped
// as it has to be. A filter that is left out selects more than was asked for. An empty cursor is the first page's.
func checkQuery(query string) error {
	seen := map[string]bool{}
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		escaped, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(escaped)
		if err == nil {
			_, err = url.QueryUnescape(value)
		}
		switch {
		case err != nil:
			return fmt.Errorf("the query can't be read: %w; a %% is written %%25", err)
		case seen[name]:
			return fmt.Errorf("the query has %q twice: give it once", name)
		case value == "" && name != "cursor":
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

// storeElsewhere is the advice to who sends too much.
const storeElsewhere = "store the data elsewhere and send a reference to it"

// newHumaError makes the problems of requests that don't fit their description.
func newHumaError(status int, message string, errs ...error) *apitype.Problem {
	code := codes[status]
	if code == "" {
		code = "internal"
	}
	p := problem(status, code, message)
	for i, err := range errs {
		if i == faultsMax {
			p.Detail += fmt.Sprintf(", and %d more", len(errs)-i)
			break
		}
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
	switch status {
	case http.StatusUnsupportedMediaType:
		p.Detail += ": the body is JSON, " + sendJSON
	case http.StatusRequestEntityTooLarge:
		p.Detail += ": " + storeElsewhere
	}
	return p
}
