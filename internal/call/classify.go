package call

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/nelkap/nelkap/internal/wire"
)

const (
	problemType = "application/problem+json"
	// problemBytesMax bounds a refusal: a sentence or two.
	problemBytesMax = 64 << 10
	// strangerBytesMax is what is read of an answer that is not Nelkap's, to show its beginning.
	strangerBytesMax = 4 << 10
	// strangerTimeMax is how long that may take: a page that drips must not hold the call.
	strangerTimeMax = 2 * time.Second
	// codeBytesMax bounds a refusal's code.
	codeBytesMax = 64
)

// answerLimits are the sizes of one call, what was sent and what may come back, and the time for a stranger's answer.
type answerLimits struct {
	callBytes       int
	answerBytesMax  int64
	strangerTimeMax time.Duration
}

// reader reads one answer to its outcome.
type reader struct {
	ctx      context.Context // the caller's
	cancel   context.CancelCauseFunc
	response *http.Response
	limits   answerLimits
}

// classify reads an answer and sorts it. Cancel ends the request.
func classify(ctx context.Context, cancel context.CancelCauseFunc, response *http.Response, limits answerLimits) Outcome {
	r := reader{ctx, cancel, response, limits}
	outcome := r.sort()
	outcome.Status = response.StatusCode
	outcome.SDK = excerpt(response.Header.Get(wire.HeaderSDK))
	return outcome
}

func (r reader) sort() Outcome {
	status := r.response.StatusCode
	ours := r.response.Header.Get(wire.HeaderSDK) != ""
	contentType, _, err := mime.ParseMediaType(r.response.Header.Get("Content-Type"))
	if err != nil {
		contentType = ""
	}
	switch {
	case ours && status == http.StatusOK && contentType == wire.ContentType && r.encoding() == "":
		return r.answer()
	case ours && status >= 400 && contentType == problemType && r.encoding() == "":
		return r.refusal()
	case status == http.StatusBadGateway || status == http.StatusServiceUnavailable:
		return r.stranger(Lost, fmt.Sprintf("something before the app answered %d: is the app running?", status))
	case status >= 500 || status == http.StatusRequestTimeout:
		return r.stranger(Silent, fmt.Sprintf("the app answered %d, not Nelkap's answer: see its log.", status))
	default:
		return r.stranger(Unusable, r.why(contentType, ours))
	}
}

// answer reads the whole of an app's answer.
func (r reader) answer() Outcome {
	if r.response.ContentLength > r.limits.answerBytesMax {
		return r.tooLarge()
	}
	body, err := io.ReadAll(io.LimitReader(r.response.Body, r.limits.answerBytesMax+1))
	switch {
	case err != nil:
		return r.broken(err)
	case int64(len(body)) > r.limits.answerBytesMax:
		return r.tooLarge()
	}
	return Outcome{Kind: Answered, Body: body}
}

func (r reader) tooLarge() Outcome {
	return Outcome{Kind: Unusable, Reason: fmt.Sprintf(
		"the app's answer is larger than %d bytes: store large results elsewhere and return where they are", r.limits.answerBytesMax)}
}

// broken is the outcome of an answer that began and did not come to its end.
func (r reader) broken(err error) Outcome {
	if r.ctx.Err() != nil {
		return ended(r.ctx)
	}
	return Outcome{Kind: Lost, Reason: "the connection closed in the middle of the app's answer", Err: err}
}

// problem is the body of a refusal.
type problem struct {
	Code    string `json:"code"`
	Detail  string `json:"detail"`
	AppTime string `json:"appTime"`
}

// refusal reads why the app's SDK refuses.
func (r reader) refusal() Outcome {
	body, err := io.ReadAll(io.LimitReader(r.response.Body, problemBytesMax))
	if err != nil {
		return r.broken(err)
	}
	var p problem
	if err := wire.Decode(body, &p); err != nil || p.Code == "" || len(p.Code) > codeBytesMax {
		if r.response.StatusCode >= 500 {
			return Outcome{Kind: Silent, Reason: "the app's SDK failed and did not say why: see the app's log"}
		}
		return Outcome{Kind: Unusable, Reason: "the app's SDK refused the call without a code: is something between changing its answers? It began: " + excerpt(string(body))}
	}
	code, detail := excerpt(p.Code), excerpt(p.Detail)
	if r.response.StatusCode >= 500 && p.Code != CodeStopping {
		return Outcome{Kind: Silent, Reason: sentence("the app's SDK failed ("+code+")", detail)}
	}
	reason := sentence("the app refused the call ("+code+")", detail)
	if p.Code == CodeClockDiffers {
		reason = sentence(fmt.Sprintf("the clocks differ: it is %s here and %s in the app",
			time.Now().UTC().Format(time.RFC3339), excerpt(p.AppTime)), "set the one that is wrong")
	}
	return Outcome{Kind: Refused, Code: code, Detail: detail, Reason: reason}
}

// stranger is the outcome of an answer that is not Nelkap's: the reason, and how the answer began.
func (r reader) stranger(kind Kind, reason string) Outcome {
	slow := time.AfterFunc(r.limits.strangerTimeMax, func() { r.cancel(nil) })
	defer slow.Stop()
	// Whatever came until an error is worth showing: the reason stands already.
	body, _ := io.ReadAll(io.LimitReader(r.response.Body, strangerBytesMax))
	if r.ctx.Err() != nil && kind != Unusable {
		return ended(r.ctx)
	}
	if shown := excerpt(string(body)); shown != "" && r.encoding() == "" {
		reason += " It began: " + shown
	}
	return Outcome{Kind: kind, Reason: reason}
}

// why says what is wrong with an answer that is not Nelkap's, and what to do.
func (r reader) why(contentType string, ours bool) string {
	status, path := r.response.StatusCode, excerpt(r.response.Request.URL.EscapedPath())
	switch {
	case r.encoding() != "":
		return fmt.Sprintf("the app's answer is compressed (%s), which was not asked for: switch it off for this path", excerpt(r.encoding()))
	case status >= 300 && status < 400:
		return redirectReason(status, r.response.Header.Get("Location"))
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fmt.Sprintf("something before the app answered %d: exclude this path from your login middleware or access protection.", status)
	case status == http.StatusNotFound || status == http.StatusGone:
		return fmt.Sprintf("the app answered %d for %s: is the path right, and is that version deployed?", status, path)
	case status == http.StatusMethodNotAllowed:
		return fmt.Sprintf("the app answered 405 for %s: its route must take POST.", path)
	case status == http.StatusRequestEntityTooLarge:
		return fmt.Sprintf("the app's host answered 413: its limit for a request's body is less than the %d bytes of this call. Raise it to %d MiB for this path.",
			r.limits.callBytes, wire.CallBytesMax>>20)
	case status == http.StatusUnsupportedMediaType:
		return fmt.Sprintf("the app's host answered 415: let %s through for this path.", wire.ContentType)
	case status == http.StatusTooManyRequests:
		return "the app's host answered 429: raise its rate limit for this path."
	case status == http.StatusOK && contentType == wire.ContentType && !ours:
		return fmt.Sprintf("the answer has no %s header: let it through where proxies drop headers.", wire.HeaderSDK)
	}
	if contentType == "" {
		contentType = "without a content type"
	}
	return fmt.Sprintf("the app answered %d %s, not Nelkap's answer: is the path right?", status, excerpt(contentType))
}

func redirectReason(status int, location string) string {
	if location == "" {
		return fmt.Sprintf("the app answered %d, which is no answer to a call: is the path right?", status)
	}
	answer := fmt.Sprintf("the app answered %d to %s", status, excerpt(location))
	if to, err := url.Parse(location); err == nil && looksLikeLogin(to.Path) {
		return answer + ": exclude this path from your login middleware."
	}
	return answer + ": redirects are not followed. Register the address where the app itself answers, or exclude this path from what redirects it."
}

func looksLikeLogin(path string) bool {
	path = strings.ToLower(path)
	for _, word := range []string{"login", "log-in", "signin", "sign-in", "sign_in", "auth", "session", "sso"} {
		if strings.Contains(path, word) {
			return true
		}
	}
	return false
}

// encoding is the answer's content encoding; empty where there is none.
func (r reader) encoding() string {
	encoding := strings.ToLower(strings.TrimSpace(r.response.Header.Get("Content-Encoding")))
	if encoding == "identity" {
		return ""
	}
	return encoding
}

// sentence joins what happened and what to do.
func sentence(what, detail string) string {
	if detail == "" {
		return what
	}
	return what + ": " + detail
}
