package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "a", "a\"b\\c", "\x00\x1f\x7f", "é😀\u2028", "\xff\xc3\x28", "<&>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := AppendString(nil, s)
		var back string
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatalf("%q became %s: %v", s, text, err)
		}
		if want := strings.ToValidUTF8(s, "\uFFFD"); utf8.ValidString(s) && back != want {
			t.Errorf("%q came back as %q", s, back)
		}
		if !utf8.Valid(text) {
			t.Errorf("%q became %q, which is not UTF-8", s, text)
		}
	})
}

func TestItemsAreWrittenAsTheyAreRead(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
	after := int64(0)
	for _, item := range []*Item{
		{Op: OpStart, Kind: KindRun, Name: "a\"<", Number: 1, Attempt: 2},
		{Op: OpCompleted, Kind: KindRun, Name: "a", Number: 1, Attempt: 1, Output: json.RawMessage("null"), StartedAt: at, EndedAt: at},
		{Op: OpFailed, Kind: KindRun, Name: "a", Number: 1, Attempt: 1, Retriable: true, Retries: 4, RetryAfterMs: &after, Error: &Error{
			Name: "E", Message: "m\x00", Stack: "s", Fields: json.RawMessage(`{"a":1}`), Cause: &Error{Name: "C", Message: "c"},
		}},
	} {
		var back Item
		if err := json.Unmarshal(item.AppendJSON(nil), &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(item, &back); diff != "" {
			t.Errorf("(-written +read):\n%s", diff)
		}
	}
}

func TestFitCutsStackThenFieldsThenMessage(t *testing.T) {
	long := strings.Repeat("😀\n", 20000)
	fields := json.RawMessage(`{"a":"` + strings.Repeat("x", 1000) + `"}`)
	for _, c := range []struct {
		name                   string
		err                    *Error
		stack, fields, message bool // what is left whole
	}{
		{"small", &Error{Name: "E", Message: "m", Stack: "s", Fields: fields}, true, true, true},
		{"long stack", &Error{Name: "E", Message: "m", Stack: long, Fields: fields}, false, true, true},
		{"long message", &Error{Name: "E", Message: long, Stack: "s", Fields: fields}, false, false, false},
		{"long cause", &Error{Name: "E", Message: "m", Cause: &Error{Name: "C", Message: "c", Stack: long}}, true, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := *c.err
			got := Fit(c.err)
			if size := len(AppendError(nil, got)); size > ErrorBytesMax {
				t.Errorf("it has %d bytes", size)
			}
			if got.Stack == before.Stack != c.stack || len(got.Fields) == len(before.Fields) != c.fields || got.Message == before.Message != c.message {
				t.Errorf("stack %d, fields %d, message %d bytes are left", len(got.Stack), len(got.Fields), len(got.Message))
			}
			if !utf8.ValidString(got.Message) || !utf8.ValidString(got.Stack) {
				t.Error("it was cut inside a character")
			}
			if c.name == "long message" && len(AppendError(nil, got)) < ErrorBytesMax*3/4 {
				t.Errorf("it was cut down to %d bytes", len(AppendError(nil, got)))
			}
		})
	}
}

func TestFitCutsLoopsAndDeepChains(t *testing.T) {
	loop := &Error{Name: "E", Message: "m"}
	loop.Cause = loop
	deep := &Error{Name: "E", Message: "m"}
	for range 20 {
		deep = &Error{Name: "E", Message: "m", Cause: deep}
	}
	depth := 0
	for e := Fit(deep).Cause; e != nil; e = e.Cause {
		depth++
	}
	if depth != causesMax {
		t.Errorf("%d causes", depth)
	}
	if Fit(loop).Cause != nil {
		t.Error("the loop was not cut")
	}
}

// Durations and instants are rounded up: nothing is over before its time.
func TestTermsAreWrittenWithTheFieldsOfTheirKind(t *testing.T) {
	for _, c := range []struct {
		terms Terms
		want  string
	}{
		{Terms{Op: OpWait, Kind: KindSleep, Delay: 1}, `"delayMs":1`},
		{Terms{Op: OpWait, Kind: KindSleep}, `"delayMs":0`},
		{Terms{Op: OpWait, Kind: KindSleep, Until: time.Date(2027, 1, 1, 0, 0, 0, 1, time.UTC)}, `"until":"2027-01-01T00:00:00.001Z"`},
		{Terms{Op: OpWait, Kind: KindEvent, Events: []string{"a", "b"}}, `"events":["a","b"]`},
		{
			Terms{Op: OpWait, Kind: KindEvent, Events: []string{"a"}, Match: []Match{{"p\"", json.RawMessage("1")}, {"q", json.RawMessage(`"x"`)}}, If: "x", Since: "wait", Timeout: new(time.Duration(1<<63 - 1))},
			`"events":["a"],"match":{"p\"":1,"q":"x"},"if":"x","since":"wait","timeoutMs":9223372036855`,
		},
		{Terms{Op: OpWait, Kind: KindInvoke, Workflow: "w"}, `"workflow":"w"`},
		{Terms{Op: OpWait, Kind: KindInvoke, Workflow: "w", App: "a", Payload: json.RawMessage("null"), Timeout: new(time.Second)}, `"workflow":"w","app":"a","payload":null,"timeoutMs":1000`},
		{Terms{Op: OpCallback, Kind: KindCallback}, ``},
		{Terms{Op: OpCallback, Kind: KindCallback, Timeout: new(time.Duration(0))}, `"timeoutMs":0`},
		{Terms{Op: OpWait, Kind: KindCallback, Of: 3}, `"of":3`},
		{Terms{Op: OpClaim, Kind: KindClaim, Key: "k"}, `"key":"k"`},
		{Terms{Op: OpClaim, Kind: KindClaim, Key: "k", FreedWhen: "failed", For: time.Second, Once: true}, `"key":"k","until":"failed","forMs":1000,"once":true`},
	} {
		item := Item{Op: c.terms.Op, Kind: c.terms.Kind, Name: "n", Number: 2, Terms: &c.terms}
		want := `{"op":"` + c.terms.Op + `","kind":"` + c.terms.Kind + `","name":"n","number":2`
		if c.want != "" {
			want += "," + c.want
		}
		if got := string(item.AppendJSON(nil)); got != want+"}" {
			t.Errorf("%s\nwant %s}", got, want)
		} else if size := item.Size(); size < len(got) {
			t.Errorf("%s has %d bytes, and its size is said to be %d", got, len(got), size)
		}
	}
}
