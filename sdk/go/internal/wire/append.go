package wire

import (
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// AppendString appends s as JavaScript's JSON.stringify writes it: nothing is escaped for HTML, U+2028 and U+2029 stand as
// they are. Bytes that are not UTF-8 become U+FFFD: callers who must not lose them check before.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				b = append(append(b, s[start:i]...), "\uFFFD"...)
				start = i + 1
			}
			i += size
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		b = appendEscape(append(b, s[start:i]...), c)
		i++
		start = i
	}
	return append(append(b, s[start:]...), '"')
}

func appendEscape(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\b':
		return append(b, `\b`...)
	case '\f':
		return append(b, `\f`...)
	case '\n':
		return append(b, `\n`...)
	case '\r':
		return append(b, `\r`...)
	case '\t':
		return append(b, `\t`...)
	}
	return append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

func appendText(b []byte, field, s string) []byte {
	return AppendString(append(b, field...), s)
}

func appendInt(b []byte, field string, n int64) []byte {
	return strconv.AppendInt(append(b, field...), n, 10)
}

func appendBool(b []byte, field string, v bool) []byte {
	return strconv.AppendBool(append(b, field...), v)
}

// appendTime writes nothing for the zero time: such fields may be absent.
func appendTime(b []byte, field string, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	b = append(append(b, field...), '"')
	b = t.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
	return append(b, '"')
}

func appendRaw(b []byte, field string, v json.RawMessage) []byte {
	if v == nil {
		return b
	}
	return append(append(b, field...), v...)
}

// AppendError appends e as JSON.
func AppendError(b []byte, e *Error) []byte {
	b = appendText(b, `{"name":`, e.Name)
	b = appendText(b, `,"message":`, e.Message)
	if e.Stack != "" {
		b = appendText(b, `,"stack":`, e.Stack)
	}
	if e.Cause != nil {
		b = AppendError(append(b, `,"cause":`...), e.Cause)
	}
	return append(appendRaw(b, `,"fields":`, e.Fields), '}')
}

// AppendJSON appends the item as JSON, with the fields that its Op has.
func (it *Item) AppendJSON(b []byte) []byte {
	b = appendText(b, `{"op":`, it.Op)
	b = appendText(b, `,"kind":`, it.Kind)
	b = appendText(b, `,"name":`, it.Name)
	b = appendInt(b, `,"number":`, int64(it.Number))
	if it.Terms != nil {
		return append(it.Terms.appendFields(b), '}')
	}
	b = appendInt(b, `,"attempt":`, int64(it.Attempt))
	if it.Once {
		b = append(b, `,"once":true`...)
	}
	if it.Op == OpFailed {
		b = AppendError(append(b, `,"error":`...), it.Error)
		b = appendBool(b, `,"retriable":`, it.Retriable)
		b = appendInt(b, `,"retries":`, int64(it.Retries))
		if it.RetryAfterMs != nil {
			b = appendInt(b, `,"retryAfterMs":`, *it.RetryAfterMs)
		}
	}
	b = appendRaw(b, `,"output":`, it.Output)
	b = appendTime(b, `,"startedAt":`, it.StartedAt)
	return append(appendTime(b, `,"endedAt":`, it.EndedAt), '}')
}

// Size is about how many bytes the item takes in a request.
func (it *Item) Size() int {
	size := 256 + len(it.Name) + len(it.Output) + it.Terms.size()
	for e := it.Error; e != nil; e = e.Cause {
		size += 64 + len(e.Name) + len(e.Message) + len(e.Stack) + len(e.Fields)
	}
	return size
}

func appendItems(b []byte, items []*Item) []byte {
	b = append(b, '[')
	for i, it := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = it.AppendJSON(b)
	}
	return append(b, ']')
}

// AppendJSON appends the save as JSON.
func (s *Save) AppendJSON(b []byte) []byte {
	b = appendText(b, `{"call":`, s.Call)
	b = appendText(b, `,"token":`, s.Token)
	b = appendText(b, `,"nonce":`, s.Nonce)
	b = appendInt(b, `,"seen":`, s.Seen)
	return append(appendItems(append(b, `,"items":`...), s.Items), '}')
}

// Size is about how many bytes the save takes in a request.
func (s *Save) Size() int {
	size := 192
	for _, it := range s.Items {
		size += it.Size()
	}
	return size
}

// AppendJSON appends the answer as JSON, with the fields that its Type has.
func (a *Answer) AppendJSON(b []byte) []byte {
	b = appendText(b, `{"type":`, a.Type)
	if a.Nonce != "" {
		b = appendText(b, `,"nonce":`, a.Nonce)
	}
	if a.Manifest != "" {
		b = appendText(b, `,"manifest":`, a.Manifest)
	}
	switch a.Type {
	case AnswerCompleted:
		b = appendRaw(b, `,"output":`, a.Output)
	case AnswerFailed:
		b = a.appendFailure(b)
	case AnswerSuspended:
		b = appendInt(b, `,"seen":`, a.Seen)
		if len(a.Register) > 0 {
			b = appendItems(append(b, `,"register":`...), a.Register)
		}
		b = appendWaits(b, a.Waits)
	case AnswerYielded:
		b = appendInt(b, `,"seen":`, a.Seen)
		if a.Excused {
			b = append(b, `,"excused":true`...)
		}
	}
	if len(a.Unsaved) > 0 {
		b = appendItems(append(b, `,"unsaved":`...), a.Unsaved)
	}
	return append(b, '}')
}

func (a *Answer) appendFailure(b []byte) []byte {
	b = AppendError(append(b, `,"error":`...), a.Error)
	b = appendBool(b, `,"retriable":`, a.Retriable)
	b = appendInt(b, `,"retries":`, int64(a.Retries))
	if a.RetryAfterMs != nil {
		b = appendInt(b, `,"retryAfterMs":`, *a.RetryAfterMs)
	}
	return b
}

func appendWaits(b []byte, waits []Wait) []byte {
	b = append(b, `,"waits":[`...)
	for i, w := range waits {
		if i > 0 {
			b = append(b, ',')
		}
		if w.Retry != nil {
			b = appendLeaf(b, `{"retry":{"name":`, w.Retry)
		} else {
			b = appendLeaf(b, `{"wait":{"name":`, w.Wait)
		}
	}
	return append(b, ']')
}

func appendLeaf(b []byte, opening string, step *StepRef) []byte {
	b = appendText(b, opening, step.Name)
	return append(appendInt(b, `,"number":`, int64(step.Number)), "}}"...)
}

// AppendJSON appends the end as JSON.
func (e *End) AppendJSON(b []byte) []byte {
	b = appendText(b, `{"call":`, e.Call)
	b = appendText(b, `,"token":`, e.Token)
	b = appendText(b, `,"nonce":`, e.Nonce)
	inner := *e.End
	inner.Nonce = "" // it stands beside the end
	return append(inner.AppendJSON(append(b, `,"end":`...)), '}')
}

// Size is about how many bytes the end takes in a request.
func (e *End) Size() int {
	size := 512 + len(e.End.Output)
	for _, it := range e.End.Unsaved {
		size += it.Size()
	}
	for _, it := range e.End.Register {
		size += it.Size()
	}
	if e.End.Error != nil {
		size += ErrorBytesMax
	}
	return size
}
