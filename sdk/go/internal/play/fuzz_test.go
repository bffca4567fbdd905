package play

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzFields: whatever a line is given, it has a message and fields that travel.
func FuzzFields(f *testing.F) {
	f.Add("charged", "group", "amount", "o_1", 12.5, int64(7))
	f.Add("", "", "", "", 0.0, int64(0))
	f.Add("\xff\x00", "\xff", "\xff", "\xff", -1e308, int64(-1))
	f.Fuzz(func(t *testing.T, message, group, key, text string, number float64, whole int64) {
		if got := messageOf(message); !utf8.ValidString(got) || len(got) > messageBytesMax {
			t.Errorf("the message is %q", got)
		}
		h := &logHandler{given: []given{{attrs: []slog.Attr{slog.String(key, text)}}, {group: group + "g"}, {attrs: []slog.Attr{slog.Int64(key, whole)}}}}
		r := slog.NewRecord(time.Time{}, slog.LevelInfo, message, 0)
		r.Add(key, number, group, slog.GroupValue(slog.Any(key, []byte(text)), slog.Any("", text)), "error", json.RawMessage(text))
		var object map[string]any
		if fields := h.fields(r); len(fields) > fieldBytesMax || json.Unmarshal(fields, &object) != nil {
			t.Errorf("the fields are %q", fields)
		}
	})
}
