package wire

import "unicode/utf8"

// causesMax is how many causes an error carries below itself.
const causesMax = 8

// Fit cuts e down to what may travel: at most 8 causes and ErrorBytesMax as JSON. The stacks go first, then the fields, then
// the messages, on whole characters. It changes e in place and returns it.
func Fit(e *Error) *Error {
	last := e
	for depth := 0; last.Cause != nil && depth < causesMax; depth++ {
		last = last.Cause
	}
	last.Cause = nil
	for _, cut := range []func(*Error, int) int{cutStack, dropFields, cutMessage} {
		for layer := e; layer != nil; layer = layer.Cause {
			over := len(AppendError(nil, e)) - ErrorBytesMax
			for over > 0 && cut(layer, over) > 0 {
				over = len(AppendError(nil, e)) - ErrorBytesMax
			}
		}
	}
	return e
}

// Each cut returns how many bytes it took; none means that there is nothing left for it.

func cutStack(e *Error, over int) int {
	before := len(e.Stack)
	e.Stack = cutText(e.Stack, over)
	return before - len(e.Stack)
}

func dropFields(e *Error, _ int) int {
	taken := len(e.Fields)
	e.Fields = nil
	return taken
}

func cutMessage(e *Error, over int) int {
	before := len(e.Message)
	e.Message = cutText(e.Message, over)
	return before - len(e.Message)
}

// cutText takes at least one and about a sixth of over bytes from s, since a byte may be written as six: callers repeat it.
func cutText(s string, over int) string {
	keep := max(0, len(s)-over/6-1)
	for keep > 0 && keep < len(s) && !utf8.RuneStart(s[keep]) {
		keep--
	}
	return s[:keep]
}
