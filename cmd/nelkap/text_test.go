package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/lmittmann/tint"
)

func TestNothingMovesTheCursor(t *testing.T) {
	for text, want := range map[string]string{
		"plain, Ünïcödé ✓ 日本": "plain, Ünïcödé ✓ 日本", "a\x1b[31mb": `a\x1b[31mb`, "\u009b31m": `\x9b31m`, "a\tb\r\x00\x07": `a\x09b\x0d\x00\x07`,
		"\xff": `\xff`, "a\u202eb": `a\u{202e}b`, "two\nlines": "two\nlines", "": "", "\u200b": `\u{200b}`,
	} {
		if got := printable(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := line("two\nlines"); got != `two\nlines` {
		t.Errorf("got %q", got)
	}
}

func TestEscapedJSONIsTheSameJSON(t *testing.T) {
	for _, value := range []string{"a\u009b31m", "\u202e", "𝒳\U000e0001", "\u200b\u2028", "plain ✓"} {
		text, err := marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		shown := printableJSON(string(text))
		var back string
		if err := json.Unmarshal([]byte(shown), &back); err != nil || back != value {
			t.Errorf("%q came back as %q, %v", value, back, err)
		}
		if strings.ContainsAny(shown, "\u009b\u202e\u200b\U000e0001") {
			t.Errorf("%q is shown as it is", shown)
		}
	}
}

// With colours, the log's handler turns texts that look like an escape back into one.
func TestNoEscapeGetsThroughAColouredLog(t *testing.T) {
	var plain, out bytes.Buffer
	handler := func(w *bytes.Buffer) *slog.Logger {
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: slog.LevelDebug, TimeFormat: "15", ReplaceAttr: shownAttr}))
	}
	handler(&plain).Info("message", "text", "abc", "error", errors.New("abc"), "kind", "abc")
	for _, evil := range []string{"\x1b[2J", `\x1b[2J`, `\\x1b[2J`, "\u009b2J", "a b\x1b]0;title\x07", "a\nb"} {
		out.Reset()
		handler(&out).Info("message", "text", evil, "error", errors.New(evil), "kind", evil)
		if got, want := strings.Count(out.String(), "\x1b"), strings.Count(plain.String(), "\x1b"); got != want || strings.ContainsAny(out.String(), "\x07\u009b") || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%q is shown as %q: %d escapes, want %d", evil, out.String(), got, want)
		}
	}
}
