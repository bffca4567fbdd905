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
	b = appendItems(append(b, `,"items":`...), s.Items)
	return append(appendLines(b, s.Logs), '}')
}

// Size is about how many bytes the save takes in a request.
func (s *Save) Size() int {
	size := 192
	for _, it := range s.Items {
		size += it.Size()
	}
	for _, l := range s.Logs {
		size += l.Size()
	}
	return size
}

// appendLines appends the field of lines, nothing where there are none.
func appendLines(b []byte, lines []*Line) []byte {
	for i, l := range lines {
		if i == 0 {
			b = append(b, `,"logs":[`...)
		} else {
			b = append(b, ',')
		}
		b = l.appendJSON(b)
	}
	if len(lines) > 0 {
		b = append(b, ']')
	}
	return b
}

func (l *Line) appendJSON(b []byte) []byte {
	b = appendText(b, `{"level":`, l.Level)
	b = appendTime(b, `,"at":`, l.At)
	b = appendText(b, `,"message":`, l.Message)
	b = appendRaw(b, `,"fields":`, l.Fields)
	if l.Step != nil {
		b = append(appendRef(append(b, `,"step":`...), l.Step), '}')
	} else {
		b = appendInt(b, `,"entry":`, l.Entry)
	}
	b = appendInt(b, `,"attempt":`, int64(l.Attempt))
	return append(appendInt(b, `,"line":`, int64(l.Number)), '}')
}

// Size is about how many bytes the line takes in a request.
func (l *Line) Size() int {
	size := 160 + len(l.Message) + len(l.Fields)
	if l.Step != nil {
		size += len(l.Step.Name)
	}
	return size
}
