package wire

import (
	"encoding/json/jsontext"
	"fmt"
	"slices"
)

// The bounds of a run's log.
const (
	LogMessageBytesMax = 8 << 10
	LogFieldsBytesMax  = 8 << 10
	LogLinesMax        = 1_000  // in one message
	LogChapterLinesMax = 10_000 // of one chapter of a run
)

// logLevels are the levels of lines.
var logLevels = []string{"debug", "info", "warn", "error"}

// LogLine is a line of a run's log. Step is set where it was written in a step; else Entry is the highest entry that the code had been
// shown. A line is known by entry, attempt and line, or by call, step, attempt and line.
type LogLine struct {
	At      Time           `json:"at"`
	Level   string         `json:"level"`
	Message string         `json:"message"`
	Fields  jsontext.Value `json:"fields,omitzero"`
	Step    *StepRef       `json:"step,omitzero"`
	Entry   int64          `json:"entry,omitzero"`
	Attempt int            `json:"attempt"`
	Line    int            `json:"line"`
}

// CheckLogs gives the rule that lines break, as a sentence; empty if they break none.
func CheckLogs(lines []LogLine) string {
	if len(lines) > LogLinesMax {
		return fmt.Sprintf("a message carries at most %d lines of a log, not %d", LogLinesMax, len(lines))
	}
	for i := range lines {
		l := &lines[i]
		switch {
		case !slices.Contains(logLevels, l.Level):
			return fmt.Sprintf("a line's level must be debug, info, warn or error, not %q", clip(l.Level))
		case len(l.Message) > LogMessageBytesMax:
			return fmt.Sprintf("a line's message has at most %d bytes, not %d", LogMessageBytesMax, len(l.Message))
		case len(l.Fields) > LogFieldsBytesMax || l.Fields != nil && Depth(l.Fields) > DepthMax:
			return fmt.Sprintf("a line's fields have at most %d bytes, nested at most %d deep", LogFieldsBytesMax, DepthMax)
		case l.Attempt < 1 || l.Line < 1 || l.Entry < 0:
			return "a line's attempt and line count from 1"
		case l.Step != nil && (l.Step.Name == "" || len(l.Step.Name) > NameBytesMax || l.Step.Number < 1):
			return fmt.Sprintf("a line's step has a name of 1 to %d bytes and a number from 1", NameBytesMax)
		}
	}
	return ""
}
