package wire_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/wire"
)

func TestUsersValuesKeepTheirText(t *testing.T) {
	for _, value := range []string{`"\u0041\ud800"`, `1.0`, `1e400`, `{"a":1,"a":2}`, `"a\u0000b"`, `"😀"`, `"\/"`, `null`, `""`, "\"\u2028<&>\""} {
		var save wire.Saves
		body := `{"process":"p","saves":[{"call":"c","token":"t","nonce":"n","seen":0,"items":[{"op":"completed","kind":"run","name":"a","number":1,"attempt":1,"output":` + value + `}]}]}`
		if err := wire.Decode([]byte(body), &save); err != nil {
			t.Errorf("%s: %v", value, err)
			continue
		}
		out, err := wire.Encode(save)
		if err != nil || !bytes.Contains(out, []byte(`"output":`+value)) {
			t.Errorf("%s became %s, %v", value, out, err)
		}
	}
}

func TestUndefinedIsNotNull(t *testing.T) {
	for body, undefined := range map[string]bool{`{"type":"completed"}`: true, `{"type":"completed","output":null}`: false} {
		var end wire.End
		if err := wire.Decode([]byte(body), &end); err != nil {
			t.Fatal(err)
		}
		if (end.Output == nil) != undefined {
			t.Errorf("%s: output %q", body, end.Output)
		}
	}
}

func TestWhatIsNotAMessageIsRefusedWithASentence(t *testing.T) {
	for _, body := range []string{"", "{", "[]", "\xff", `{"saves":1}`, `{"process":"p"} x`, strings.Repeat("[", 100_000)} {
		var saves wire.Saves
		err := wire.Decode([]byte(body), &saves)
		if err == nil || !strings.Contains(err.Error(), "the body is not") {
			t.Errorf("%.20q: %v", body, err)
		}
	}
}

// A large message whose parts are empty would take a hundred times its bytes in memory: it is refused before they are made. What means
// something has room.
func TestALargeMessageIsNoSwarmOfEmptyThings(t *testing.T) {
	many := func(before, one, after string) []byte {
		return []byte(before + strings.Repeat(one+",", (8<<20-200)/(len(one)+1)) + one + after)
	}
	for name, read := range map[string]func() error{
		"saves": func() error { return wire.Decode(many(`{"process":"p","saves":[`, `{}`, `]}`), new(wire.Saves)) },
		"items": func() error {
			return wire.Decode(many(`{"process":"p","saves":[{"items":[`, `{}`, `]}]}`), new(wire.Saves))
		},
		"lines": func() error {
			return wire.Decode(many(`{"process":"p","saves":[{"logs":[`, `{}`, `]}]}`), new(wire.Saves))
		},
		"calls": func() error { return wire.Decode(many(`{"process":"p","calls":[`, `{}`, `]}`), new(wire.Heartbeat)) },
		"ends":  func() error { return wire.Decode(many(`{"process":"p","ends":[`, `{}`, `]}`), new(wire.Ends)) },
		"trees": func() error {
			return wire.Decode(many(`{"type":"suspended","waits":[{"all":[`, `{}`, `]}]}`), new(wire.End))
		},
	} {
		if err := read(); err == nil || !strings.Contains(err.Error(), "too many things that say nothing") {
			t.Errorf("%s: %v", name, err)
		}
	}
	fence := `"call":"call_01jsnzk3k5e3vvfvjw4x5mxfwd","token":"01jsnzk3k5e3vvfvjw4x5mxfwd","nonce":"n"`
	for name, read := range map[string]func() error{
		"saves": func() error {
			return wire.Decode(many(`{"process":"p","saves":[`, `{`+fence+`}`, `]}`), new(wire.Saves))
		},
		"items": func() error {
			return wire.Decode(many(`{"process":"p","saves":[{"items":[`, `{"op":"undo","kind":"undo","name":"a","number":1}`, `]}]}`), new(wire.Saves))
		},
		"calls": func() error {
			return wire.Decode(many(`{"process":"p","calls":[`, `{`+fence+`}`, `]}`), new(wire.Heartbeat))
		},
		"trees": func() error {
			return wire.Decode(many(`{"type":"suspended","waits":[{"all":[`, `{"wait":{"name":"a","number":1}}`, `]}]}`), new(wire.End))
		},
		"an output": func() error {
			return wire.Decode(many(`{"process":"p","saves":[{`+fence+`,"items":[{"output":[`, `{}`, `]}]}]}`), new(wire.Saves))
		},
	} {
		if err := read(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTimesAreUTCWithMilliseconds(t *testing.T) {
	at := wire.At(time.Date(2026, 7, 1, 2, 3, 4, 5_600_000, time.FixedZone("", 7200)))
	out, err := wire.Encode(wire.SavesAnswer{Time: at})
	if err != nil || !bytes.Contains(out, []byte(`"2026-07-01T00:03:04.005Z"`)) {
		t.Errorf("%s, %v", out, err)
	}
	var back wire.SavesAnswer
	if err := wire.Decode([]byte(`{"time":"2026-07-01T02:03:04.0056+02:00"}`), &back); err != nil || !back.Time.Equal(at.Time) {
		t.Errorf("%v, %v", back.Time, err)
	}
	for _, bad := range []string{`{"time":5}`, `{"time":"yesterday"}`} {
		if wire.Decode([]byte(bad), &back) == nil {
			t.Errorf("%s was taken for a time", bad)
		}
	}
}

func TestItemsThatBreakTheProtocolAreNamed(t *testing.T) {
	good := wire.Item{Op: wire.OpCompleted, Kind: "run", Name: "a", Number: 1, Attempt: 1}
	if detail := wire.CheckItem(&good); detail != "" {
		t.Fatal(detail)
	}
	for what, change := range map[string]func(*wire.Item){
		"kind": func(i *wire.Item) { i.Kind = "sleep" }, "no name": func(i *wire.Item) { i.Name = "" },
		"long name": func(i *wire.Item) { i.Name = strings.Repeat("x", wire.NameBytesMax+1) }, "number": func(i *wire.Item) { i.Number = 0 },
		"attempt": func(i *wire.Item) { i.Attempt = -1 }, "op": func(i *wire.Item) { i.Op = "jump" }, "no error": func(i *wire.Item) { i.Op = wire.OpFailed },
		"a claim past all durations": func(i *wire.Item) { i.Op, i.Kind, i.Key, i.ForMs = wire.OpClaim, "claim", "k", 18446744073710 },
	} {
		bad := good
		change(&bad)
		if wire.CheckItem(&bad) == "" {
			t.Errorf("%s: not refused", what)
		}
	}
}

func TestDepth(t *testing.T) {
	for value, want := range map[string]int{`1`: 0, `"[{"`: 0, `"\"["`: 0, `[]`: 1, `{"a":[1,{"b":2}],"c":{}}`: 3, strings.Repeat("[", 300) + strings.Repeat("]", 300): 300} {
		if got := wire.Depth([]byte(value)); got != want {
			t.Errorf("%.20s: %d, want %d", value, got, want)
		}
	}
}
