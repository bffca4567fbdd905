package filter_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/nelkap/nelkap/internal/filter"
)

var created = time.Date(2026, 11, 29, 23, 30, 0, 0, time.UTC)

func compile(t testing.TB, text string) *filter.Filter {
	t.Helper()
	f, err := filter.Compile(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func event(t testing.TB, payload string) filter.Event {
	t.Helper()
	e, err := filter.NewEvent("evt_1", "order.paid", created, []byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestAFilterSaysWhichEventsAreMeant(t *testing.T) {
	const order = `{"total":3.5,"count":3,"big":9007199254740993,"huge":18446744073709551615,"id":"o_1","none":null,"paid":true,"a.b":1,
		"items":[{"sku":"x","qty":1},{"sku":"y","qty":20}],"tags":["new","é"],"note":"half \ud800","exact":3.0,"at":"2026-11-29T00:00:00Z"}`
	tests := []struct {
		text  string
		match bool
		err   string // a part of it; then there is no match
	}{
		// numbers
		{text: "payload.total > 0", match: true},
		{text: "payload.count > 0", match: true},
		{text: "payload.count == 3 && payload.count == 3.0 && payload.count == 3u", match: true},
		{text: "payload.exact == 3 && payload.exact == payload.count", match: true},
		{text: "payload.total == 3", match: false},
		{text: "payload.big == 9007199254740993", match: true},
		{text: "payload.big == 9007199254740992", match: false},
		{text: "payload.big > 9007199254740992", match: true},
		{text: "payload.huge == 18446744073709551615u", match: true},
		{text: "payload.huge > payload.big", match: true},
		{text: "payload.total * 2 == 7 && payload.count * 2 == 6 && payload.count * 1.5 == 4.5", match: true},
		{text: "payload.count / 2 == 1.5 && 7 / 2 == 3.5 && payload.count / 3 == 1", match: true},
		{text: "payload.count - 4 == -1 && -payload.total < 0", match: true},
		{text: "payload.count % 2 == 1", match: true},
		{text: "payload.huge + 1 > payload.huge - 1", match: false}, // beyond 64 bits both are the same double
		{text: "payload.big * payload.big > payload.big", match: true},
		{text: "payload.huge - payload.big > 0 && payload.big - payload.huge < 0", match: true},
		{text: "payload.total / (payload.count - 3) > 0", err: "division by zero"},
		{text: "payload.id * 2 == 2", err: "no such overload"},
		{text: "payload.id > 3", err: "no such overload"},
		{text: "string(payload.count) == '3' && string(payload.big) == '9007199254740993'", match: true},
		{text: "int(payload.total) == 3", match: true},
		// what is there, and what is not
		{text: "payload.missing == 1", err: "no such key: missing"},
		{text: "payload.missing != 1", err: "no such key: missing"},
		{text: "has(payload.missing)", match: false},
		{text: "has(payload.missing) && payload.missing == 1", match: false},
		{text: "!has(payload.missing) || payload.missing == 1", match: true},
		{text: "payload.missing == 1 || payload.count == 3", match: true}, // CEL: what decides is enough
		{text: "has(payload.none) && payload.none == null", match: true},
		{text: "payload.none == 0 || payload.none == ''", match: false},
		{text: "payload['a.b'] == 1 && 'a.b' in payload", match: true},
		{text: "payload.id.x == 1", err: "no such key"},
		// texts, lists, macros
		{text: "payload.id.startsWith('o_') && payload.id.size() == 3 && 'o_' + '1' == payload.id", match: true},
		{text: "payload.id in ['o_1', 'o_2']", match: true},
		{text: "'new' in payload.tags && payload.tags[1] == 'é'", match: true},
		{text: "payload.tags == ['new', 'é'] && payload.tags != []", match: true},
		{text: "payload.tags[2] == ''", err: "index out of bounds: 2"},
		{text: "payload.items.exists(i, i.sku == 'y' && i.qty > 10)", match: true},
		{text: "payload.items.all(i, i.qty > 0) && payload.items.exists_one(i, i.qty == 1)", match: true},
		{text: "payload.items.filter(i, i.qty > 10).size() == 1 && 'y' in payload.items.map(i, i.sku)", match: true},
		{text: "payload.items[0] == {'sku': 'x', 'qty': 1}", match: true},
		{text: "payload.id.matches('^o_[0-9]+$')", match: true},
		{text: "matches(payload.id, 'x')", match: false},
		{text: "payload.count.matches('3')", err: "no such overload"},
		{text: "payload.note == 'half \ufffd'", match: true},
		{text: "payload.items in [payload.items]", err: "a list or map is looked for"},
		{text: "'x' in payload.id", err: "no such overload"},
		// the event itself
		{text: "event.event == 'order.paid' && event.id == 'evt_1' && event.payload.id == payload.id", match: true},
		{text: "event.createdAt > timestamp('2026-11-29T23:00:00Z') && event.createdAt.getHours() == 23", match: true},
		{text: "event.createdAt - timestamp(payload.at) < duration('24h')", match: true},
		{text: "event.createdAt + duration('1h') > event.createdAt && event.createdAt - duration('1h') < event.createdAt", match: true},
		// results that are known only when they are there
		{text: "payload.paid", match: true},
		{text: "payload.id", err: "gave a value of type string"},
		{text: "payload.none", err: "gave a value of type null_type"},
		// white space and comments are CEL's
		{text: "\n\n  payload.paid // because\n\n&& // and\n\ttrue\n", match: true},
	}
	e := event(t, order)
	for _, test := range tests {
		match, err := compile(t, test.text).Match(e)
		switch {
		case match != test.match:
			t.Errorf("%s: %v (%v), want %v", test.text, match, err, test.match)
		case test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%s: error %v, want %q", test.text, err, test.err)
		}
	}
}

func TestAPayloadNeedsNoObject(t *testing.T) {
	for payload, text := range map[string]string{
		`"o_1"`:         "payload == 'o_1'",
		`3`:             "payload > 2",
		`[1,2]`:         "payload[1] == 2",
		`null`:          "payload == null",
		``:              "payload == null && event.event == 'order.paid'",
		"\n{}":          "payload.size() == 0",
		`1e400`:         "payload > 9007199254740993.0",
		`-1e400`:        "payload < 0",
		`1e-400`:        "payload == 0",
		`-0.0`:          "payload == 0",
		`1e2`:           "payload == 100 && payload % 7 == 2",
		`{"a":1,"a":2}`: "payload.a == 2",
	} {
		if match, err := compile(t, text).Match(event(t, payload)); !match {
			t.Errorf("%s on %s: %v", text, payload, err)
		}
	}
	if match, err := compile(t, "payload == null").Match(filter.Event{}); !match {
		t.Errorf("an event without anything: %v", err)
	}
}

// A filter that can't be used is refused when an app is described or a wait is made, with its place and what to do (R1 of the scenarios).
func TestWhatIsNoFilterIsRefused(t *testing.T) {
	tests := []struct{ text, want string }{
		{"", "such as payload.total > 0"},
		{" \n// nothing\n\n", "can't be used"},
		{"payload.total = 3", "line 1, column 15: "},
		{"payload.total > 0 &&", "line 1, column 21: "},
		{"payload.a == 1\n  || totl == 1", "line 2, column 6: undeclared reference to 'totl'"},
		{"payload.a == 'é", "column 14: "},
		{"payload.upper() == 'A'", "undeclared reference to 'upper'"},
		{"event.name == 'x'", "undeclared reference to 'event'. Write an expression over payload, event.id, event.event and event.createdAt"},
		{"event.event == 3", "no matching overload"},
		{"1 + 'a' == 2", "no matching overload"},
		{"event.createdAt.getHours('Europe/Berlin') > 1", "no matching overload"},
		{"event.id", "is of type string: compare it with something"},
		{"size(payload.items)", "is of type int: compare it"},
		{"payload.s.matches(payload.p)", "column 26: the pattern of matches is computed: write it as a text"},
		{"payload.s.matches('(')", "column 19: error parsing regexp: missing closing )"},
		{"payload.s.matches('(a{100}){9}')", "simplify it to at most 250"},
		{"payload.s.matches('(((a{100}){100}){100}){100}')", "column 19: "},
		{"payload.at > timestamp('yesterday')", "invalid timestamp"},
		{"payload.a == 99999999999999999999", "invalid int literal"},
		{strings.Repeat("(", 2000) + "1" + strings.Repeat(")", 2000) + " == 1", "recursion limit exceeded"},
		{strings.Repeat("payload.a + ", 300) + "1 > 0", "recursion depth exceeded"},
		{"payload.a == '" + strings.Repeat("a", 4<<10) + "'", "has 4111 bytes: use at most 4096"},
		{"payload.a \x00\xff", "line 1, column 11: "},
	}
	for _, test := range tests {
		f, err := filter.Compile(test.text)
		if err == nil {
			t.Errorf("%.80q is accepted: %v", test.text, f)
			continue
		}
		if text := err.Error(); !strings.Contains(text, test.want) || !isSentence(text) {
			t.Errorf("%.80q: %v, want … %s …", test.text, text, test.want)
		}
	}
}

func isSentence(text string) bool {
	return utf8.ValidString(text) && len(text) < 3_000 && !strings.ContainsAny(text, "\n\x00") && (strings.HasPrefix(text, "the filter ") || strings.HasPrefix(text, "filters can't "))
}

// Invariant 2: whatever a filter asks for, and whatever comes, the answer is there soon.
func TestHostileFiltersEndSoon(t *testing.T) {
	many := strings.Repeat("1,", 40_000) + "1"
	e := event(t, `{"s":"`+strings.Repeat("a", 500_000)+`","r":"`+strings.Repeat("a", 500_000)+`","t":"`+strings.Repeat("a", 10_000)+`","l":[`+many+`],"d":[[[[[[`+many+`]]]]]]}`)
	// Each list holds the one before it twice: after thirty times it has a billion elements, and takes no memory at all.
	doubled := "x30 == x30"
	for i := 30; i > 0; i-- {
		doubled = fmt.Sprintf("[[x%d, x%d]].exists(x%d, %s)", i-1, i-1, i, doubled)
	}
	// And each list here is the one before it and itself again.
	joined := "7 in x28"
	for i := 28; i > 0; i-- {
		joined = fmt.Sprintf("[x%d + x%d].exists(x%d, %s)", i-1, i-1, i, joined)
	}
	joined = "[[1]].exists(x0, " + joined + ")"
	tests := []struct{ text, want string }{
		{joined, "steps"},
		{strings.NewReplacer("7 in x28", "7 in (x28 + x28 + x28)").Replace(joined), "steps"},
		{"payload.l.all(i, payload.l.all(j, true))", "steps"},
		{"payload.l.all(i, payload.l.all(j, i == j))", "steps"},
		{"payload.l.all(i, payload.s <= payload.r)", "steps"},
		{"payload.l.all(i, payload.s == payload.r)", "steps"},
		{"payload.l.all(i, payload.s.size() > 0)", "steps"},
		{"payload.l.all(i, payload.s.contains('b') || true)", "steps"},
		{"payload.l.all(i, 7 in payload.l || true)", "steps"},
		{"payload.l.all(i, payload.d == payload.d || true)", "steps"},
		{"payload.l.all(i, [payload.d] == [payload.d] || true)", "steps"},
		{"payload.l.map(i, payload.l) == payload.l.map(i, payload.l)", "steps"},
		{"payload.l.all(i, (payload.l + payload.l + payload.l + payload.l).size() > 0)", "steps"},
		{"payload.d == payload.d", "more than 100 values are compared at once"},
		{strings.Replace(doubled, "[x0, x0]", "[payload.d, payload.d]", 1), "more than 100 values are compared at once"},
		{"payload.t + payload.t + payload.t + payload.t + payload.t + payload.t + payload.t == 'a'", "the joined text has more than 65536 bytes"},
		{"payload[payload.d] == 1", "invalid qualifier type"},
		{"payload.s.matches('b')", "steps"},
		{"payload.t.matches('(a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a)*b') || payload.t.matches('(x*)*b')", ""},
		{"payload.l.all(i, payload.t.matches('(a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a)*b') || true)", "steps"},
	}
	for _, test := range tests {
		f := compile(t, test.text)
		begin := time.Now()
		match, err := f.Match(e)
		if took := time.Since(begin); took > 5*time.Second { // some 30 ms; the race detector and other work on the machine have their share
			t.Errorf("%.80s took %v", test.text, took)
		}
		if test.want != "" && (match || err == nil || !strings.Contains(err.Error(), test.want) || !isSentence(err.Error())) {
			t.Errorf("%.80s: %v, %v, want %q", test.text, match, err, test.want)
		}
	}
}

func TestPayloadsThatFiltersCannotRead(t *testing.T) {
	for want, payload := range map[string]string{
		"more than 4194304":        `"` + strings.Repeat("a", 4<<20) + `"`,
		"more than 100000 values":  `[` + strings.Repeat("1,", 100_000) + `1]`,
		"more than 200 deep":       strings.Repeat("[", 300) + strings.Repeat("]", 300),
		"more than one value":      `{} {}`,
		"evt_1":                    `{"a":`,
		"can't read the payload":   `{"a":1,}`,
		"the payload of event evt": `[1 2]`,
	} {
		_, err := filter.NewEvent("evt_1", "e", created, []byte(payload))
		if err == nil || !strings.Contains(err.Error(), want) || !isSentence(err.Error()) {
			t.Errorf("%.40s: %v, want … %s …", payload, err, want)
		}
	}
}

// Numbers compare by their values, exactly where both are whole and have 64 bits.
func TestNumbersCompareByValue(t *testing.T) {
	whole := rapid.OneOf(
		rapid.Int64Range(-10, 10), rapid.Int64(), rapid.Int64Range(1<<53-3, 1<<53+3), rapid.Int64Range(-1<<53-3, -1<<53+3),
		rapid.Int64Range(1<<62, 1<<63-1), rapid.Just[int64](-1<<63),
	)
	rapid.Check(t, func(t *rapid.T) {
		inPayload, inFilter := whole.Draw(t, "in the payload"), whole.Draw(t, "in the filter")
		if rapid.Bool().Draw(t, "near") && inFilter < 1<<62 {
			inPayload = inFilter + rapid.Int64Range(-1, 1).Draw(t, "off")
		}
		written := rapid.SampledFrom([]string{"%d", "%d.0", "%d.000", "%d0e-1", "%de0", "%d00E-02"}).Draw(t, "written")
		if inPayload == 0 {
			written = "%d.00"
		}
		e, err := filter.NewEvent("e", "e", created, fmt.Appendf(nil, written, inPayload))
		if err != nil {
			t.Fatal(err)
		}
		want := big.NewInt(inPayload).Cmp(big.NewInt(inFilter))
		for operator, holds := range map[string]bool{"==": want == 0, "!=": want != 0, "<": want < 0, "<=": want <= 0, ">": want > 0, ">=": want >= 0} {
			f, err := filter.Compile(fmt.Sprintf("payload %s %d", operator, inFilter))
			if err != nil {
				t.Fatal(err)
			}
			if match, err := f.Match(e); match != holds || err != nil {
				t.Fatalf("%s on "+written+": %v, %v", f, inPayload, match, err)
			}
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		compile(b, "payload.total > 0 && event.event == 'order.paid'")
	}
}

func BenchmarkMatch(b *testing.B) {
	f, e := compile(b, "payload.total > 0 && event.event == 'order.paid'"), event(b, `{"id":"o_1","total":3.5}`)
	for b.Loop() {
		if match, err := f.Match(e); !match {
			b.Fatal(err)
		}
	}
}

func TestAFilterSeesTheRunThatItIsOf(t *testing.T) {
	f, err := filter.Compile(`payload.id == run.payload.id && run.key == "k" && run.id != ""`)
	if err != nil {
		t.Fatal(err)
	}
	event, err := filter.NewEvent("evt_1", "cancelled", time.Time{}, []byte(`{"id":"o_1"}`))
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := f.Match(event); ok || err == nil {
		t.Errorf("in a trigger: %v, %v", ok, err)
	}
	for payload, want := range map[string]bool{`{"id":"o_1"}`: true, `{"id":"o_2"}`: false} {
		of, err := event.For("run_1", "k", []byte(payload))
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := f.Match(of); ok != want || err != nil {
			t.Errorf("for %s: %v, %v", payload, ok, err)
		}
	}
}
