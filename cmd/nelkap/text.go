package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// printable makes a text from outside fit for a terminal: what does not print is escaped, so that no name and no payload can
// move the cursor, change a title or hide what it is. Line ends stay where the text is ours; use line for names.
func printable(text string) string {
	var out strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, text[i])
		case r == '\n' || r == ' ' || unicode.IsPrint(r):
			out.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&out, `\x%02x`, r)
		default:
			fmt.Fprintf(&out, `\u{%x}`, r)
		}
	}
	return out.String()
}

// line is printable on one line.
func line(text string) string { return strings.ReplaceAll(printable(text), "\n", `\n`) }

// printableJSON is printable for JSON: what does not print can only stand in texts there, and stays JSON.
func printableJSON(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || r == ' ' || unicode.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}
