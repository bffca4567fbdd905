package call

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Kind is what came of a call. The list is closed.
type Kind int

// The kinds of outcomes.
const (
	// Answered: the app's SDK answered. Body is the answer, not yet decoded.
	Answered Kind = iota + 1
	// NotSent: provably, no byte of the request reached the network. The begin is void (C3).
	NotSent
	// Unusable: what answered is not a Nelkap app: another status, another content type, a redirect, a page (C14).
	Unusable
	// Refused: the app's SDK refused the request; Code says why (protocol/SPEC.md, "Refusals").
	Refused
	// Lost: the connection closed before the answer was in, or a proxy said so (502, 503): the short question of C1.
	Lost
	// Silent: a 5xx or 408 that says nothing about whether the app still plays the call: the long question of C1.
	Silent
	// Ended: ctx ended after the request was sent.
	Ended
)

var kindNames = map[Kind]string{
	Answered: "answered", NotSent: "not sent", Unusable: "unusable", Refused: "refused",
	Lost: "lost", Silent: "silent", Ended: "ended",
}

// String is the kind's name, for logs and tests.
func (k Kind) String() string {
	if name, ok := kindNames[k]; ok {
		return name
	}
	return "kind " + strconv.Itoa(int(k))
}

// Codes of refusals (protocol/SPEC.md, "Refusals"). An app may send another, of a newer protocol.
const (
	CodeBadRequest          = "bad_request"
	CodeUnsigned            = "unsigned"
	CodeBadSignature        = "bad_signature"
	CodeClockDiffers        = "clock_differs"
	CodeWorkflowUnknown     = "workflow_unknown"
	CodeBodyTooLarge        = "body_too_large"
	CodeBadContentType      = "bad_content_type"
	CodeProtocolUnsupported = "protocol_unsupported"
	CodeInternal            = "internal"
	CodeStopping            = "stopping"
)

// Outcome is what came of one call.
type Outcome struct {
	Kind   Kind
	Status int    // of the HTTP answer; 0 where there was none
	SDK    string // such as "typescript/0.1.0"; empty where the answer is not Nelkap's
	Body   []byte // the answer of Answered; the caller's to keep
	Code   string // of Refused
	Detail string // of Refused: the app's own sentence
	Reason string // a sentence for people that says what to do; empty for Answered
	Err    error  // what is behind NotSent, Lost and Ended; else it may be nil
}

// NeedsPerson tells whether waiting mends nothing: someone must change a key, a clock, a limit or an address (C14).
func (o Outcome) NeedsPerson() bool {
	switch o.Kind {
	case NotSent:
		return errors.Is(o.Err, ErrAddress)
	case Unusable:
		return o.Status == http.StatusRequestEntityTooLarge
	case Refused:
		switch o.Code {
		case CodeUnsigned, CodeBadSignature, CodeClockDiffers, CodeBodyTooLarge, CodeBadContentType, CodeProtocolUnsupported:
			return true
		}
	case Answered, Lost, Silent, Ended:
	}
	return false
}

// excerptCharactersMax bounds what is shown of a stranger's answer.
const excerptCharactersMax = 200

// excerpt makes a stranger's text fit to be shown: its first characters, on one line, with everything that does not print
// escaped. It is text, not HTML: whoever puts it in a page escapes it for the page.
func excerpt(text string) string {
	var shown strings.Builder
	count, gap := 0, false
	for i, r := range text {
		if unicode.IsSpace(r) {
			gap = shown.Len() > 0
			continue
		}
		if count >= excerptCharactersMax {
			shown.WriteString("…")
			break
		}
		if gap {
			shown.WriteByte(' ')
			count++
			gap = false
		}
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&shown, `\x%02x`, text[i])
		case unicode.IsPrint(r):
			shown.WriteRune(r)
		default:
			shown.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
		count++
	}
	return shown.String()
}
