package main

import (
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/lmittmann/tint"
	"github.com/mattn/go-isatty"
)

// newLogger makes the server's log: for dev lines that people read, with every call and step, in production JSON.
func newLogger(w io.Writer, dev bool, environ []string) *slog.Logger {
	if !dev {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(tint.NewTextHandler(w, &tint.Options{
		Level: slog.LevelDebug, TimeFormat: "15:04:05.000", NoColor: !isTerminal(w) || noColor(environ), ReplaceAttr: shownAttr,
	}))
}

// shownAttr makes texts from outside fit for a terminal. With colours the handler turns every `\x1b` back into an escape
// character, one that was escaped before too: so none may reach it.
func shownAttr(_ []string, attr slog.Attr) slog.Attr {
	var text string
	switch value := attr.Value.Any().(type) {
	case string:
		text = value
	case error:
		text = value.Error()
	default:
		return attr
	}
	return slog.String(attr.Key, strings.ReplaceAll(line(text), `\x1b`, "␛"))
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}

// noColor follows no-color.org: set to anything but the empty text.
func noColor(environ []string) bool {
	return slices.ContainsFunc(environ, func(line string) bool {
		value, ok := strings.CutPrefix(line, "NO_COLOR=")
		return ok && value != ""
	})
}
