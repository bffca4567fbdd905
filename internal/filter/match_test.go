package filter_test

import (
	"encoding/json/jsontext"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nelkap/nelkap/internal/filter"
)

// match makes a match of paths and JSON values, one after the other.
func match(pairs ...string) map[string]jsontext.Value {
	all := map[string]jsontext.Value{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = jsontext.Value(pairs[i+1])
	}
	return all
}

func TestAMatchIsFoundByTheKeyOfItsEvent(t *testing.T) {
	const order = `{"id":"o_1","total":1.0,"paid":true,"none":null,"items":[{"sku":"x"}],"0":"zero","":{"":1},"text":"1","half":"\ud800","deep":{"big":9007199254740993},"e":1e2,"wild":1e99999999999}`
	tests := []struct {
		story string
		match map[string]jsontext.Value
		want  bool
	}{
		{"a text", match("payload.id", `"o_1"`), true},
		{"a text that is written otherwise", match("payload.id", `"\u006f_1"`), true},
		{"another text", match("payload.id", `"o_2"`), false},
		{"texts have cases", match("payload.id", `"O_1"`), false},
		{"a number", match("payload.total", `1`), true},
		{"a number in any form", match("payload.total", `10e-1`), true},
		{"powers are numbers", match("payload.e", `100.0`), true},
		{"a large number", match("payload.deep.big", `9007199254740993`), true},
		{"its neighbour, which JavaScript takes for the same", match("payload.deep.big", `9007199254740992`), false},
		{"a number is no text", match("payload.text", `1`), false},
		{"a text is no number", match("payload.total", `"1"`), false},
		{"true", match("payload.paid", `true`), true},
		{"false", match("payload.paid", `false`), false},
		{"true is no text", match("payload.paid", `"true"`), false},
		{"null", match("payload.none", `null`), true},
		{"nothing is not null", match("payload.missing", `null`), false},
		{"null is no text", match("payload.none", `""`), false},
		{"an element of an array", match("payload.items.0.sku", `"x"`), true},
		{"no such element", match("payload.items.1.sku", `"x"`), false},
		{"elements have one number each", match("payload.items.00.sku", `"x"`), false},
		{"nor a sign", match("payload.items.-0.sku", `"x"`), false},
		{"a member that is called as an element is", match("payload.0", `"zero"`), true},
		{"an object is no value", match("payload.items.0", `null`), false},
		{"a path beyond a value", match("payload.id.x", `"o_1"`), false},
		{"all of several", match("payload.id", `"o_1"`, "payload.total", `1`, "payload.none", `null`), true},
		{"all but one", match("payload.id", `"o_1"`, "payload.total", `2`), false},
		{"values of each other's paths", match("payload.id", `"1"`, "payload.text", `"o_1"`), false},
		{"what is no Unicode is equal to nothing", match("payload.half", `"\ufffd"`), false},
		{"an absurd number", match("payload.wild", `1`), false},
		{"white space around it", match("payload.id", ` "o_1" `), true},
	}
	e := event(t, order)
	for _, test := range tests {
		m, err := filter.ParseMatch(test.match)
		if err != nil {
			t.Errorf("%s: %v", test.story, err)
			continue
		}
		if key, ok := m.Paths.Key(e); (ok && key == m.Key) != test.want {
			t.Errorf("%s: %s and %s (%v), want %v", test.story, m.Key, key, ok, test.want)
		}
	}
	m, err := filter.ParseMatch(match("payload", `"o_1"`))
	if err != nil {
		t.Fatal(err)
	}
	if key, ok := m.Paths.Key(event(t, ` "o_1"`)); !ok || key != m.Key {
		t.Error("a payload that is a value is not found")
	}
	if _, ok := m.Paths.Key(filter.Event{}); ok {
		t.Error("an event without a payload has a key")
	}
}

// The keys stand in stores: another form of them would be a migration.
func TestAKeyStaysWhatItIs(t *testing.T) {
	m, err := filter.ParseMatch(match("payload.id", `"o_1"`, "payload.a", `-1.50e1`, "payload.b", `null`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(filter.Match{Paths: filter.Paths{"payload.a", "payload.b", "payload.id"}, Key: "oUyHebVEWnVmVGxwMCNbudhI_A9bBK4LVY5v1Mn-h74"}, m); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsNoMatchIsRefused(t *testing.T) {
	many := map[string]jsontext.Value{}
	for i := range 11 {
		many[fmt.Sprintf("payload.%d", i)] = jsontext.Value("1")
	}
	long := map[string]jsontext.Value{}
	for i := range 9 {
		long["payload."+strings.Repeat("a", 230)+fmt.Sprint(i)] = jsontext.Value("1")
	}
	tests := []struct {
		match map[string]jsontext.Value
		want  string
	}{
		{nil, "match is empty: leave it out"},
		{many, "has 11 paths: use at most 10"},
		{long, "the paths of match have 2151 bytes together: use at most 2000"},
		{match("id", "1"), `the path "id" leads nowhere: write payload and the names of members`},
		{match("payloads.id", "1"), "leads nowhere"},
		{match("", "1"), "leads nowhere"},
		{match("payload.", "1"), "leads nowhere"},
		{match("payload..id", "1"), "leads nowhere"},
		{match("event.id", "1"), "leads nowhere"},
		{match("payload.\xff", "1"), "leads nowhere"},
		{match("payload.a\nb", "1"), "leads nowhere"},
		{match("payload."+strings.Repeat("a", 300), "1"), "has 308 bytes: use at most 256"},
		{match("payload.id", `"`+strings.Repeat("a", 5000)+`"`), "has 5002 bytes: use at most 4096"},
		{match("payload.id", `{}`), `the value of "payload.id" can't be compared: use a text, a number, true, false or null`},
		{match("payload.id", `[1]`), "can't be compared"},
		{match("payload.id", `"\ud800"`), "can't be compared"},
		{match("payload.id", `1e99999999999`), "can't be compared"},
		{match("payload.id", `nul`), "can't be compared"},
		{match("payload.id", `1 2`), "can't be compared"},
		{match("payload.id", ``), "can't be compared"},
	}
	for _, test := range tests {
		if m, err := filter.ParseMatch(test.match); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.100v: %v, %v, want … %s …", test.match, m, err, test.want)
		}
	}
}

// written draws the JSON of a scalar, in one of its forms.
func written(t *rapid.T, label string) string {
	number := func() string {
		digits := rapid.StringMatching(`0|[1-9][0-9]{0,3}|900719925474099[0-9]`).Draw(t, label+" digits")
		return rapid.SampledFrom([]string{"", "-"}).Draw(t, label+" sign") + digits +
			rapid.SampledFrom([]string{"", ".0", ".5", ".50", ".05"}).Draw(t, label+" fraction") +
			rapid.SampledFrom([]string{"", "e0", "e1", "E-1", "e+2", "e-2"}).Draw(t, label+" power")
	}
	switch rapid.IntRange(0, 3).Draw(t, label+" kind") {
	case 0:
		return rapid.SampledFrom([]string{"true", "false", "null"}).Draw(t, label)
	case 1:
		return rapid.SampledFrom([]string{`""`, `"a"`, `"\u0061"`, `"1"`, `"null"`, `"A"`, `"\u0000"`, `"é"`, `"e\u0301"`}).Draw(t, label)
	default:
		return number()
	}
}

// same is the oracle: whether two JSON scalars have the same value.
func same(t *rapid.T, one, other string) bool {
	kind := func(text string) byte {
		if text[0] == '-' || text[0] >= '0' && text[0] <= '9' {
			return '0'
		}
		return text[0]
	}
	if kind(one) != kind(other) {
		return false
	}
	switch kind(one) {
	case '0':
		a, ok := new(big.Rat).SetString(one)
		b, ok2 := new(big.Rat).SetString(other)
		if !ok || !ok2 {
			t.Fatalf("%s and %s are no numbers", one, other)
		}
		return a.Cmp(b) == 0
	case '"':
		a, err := jsontext.AppendUnquote(nil, one)
		b, err2 := jsontext.AppendUnquote(nil, other)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		return string(a) == string(b)
	}
	return one == other
}

// Invariant 3: an event has the key of a match if all its values are those of the match, and only then.
func TestKeysAreEqualWhereAllValuesAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "é", "x y"}), 1, 4, rapid.ID[string]).Draw(t, "names")
		wanted, members, equal := map[string]jsontext.Value{}, []string{`"other":[{}]`}, true
		for _, name := range names {
			inMatch := written(t, "in the match")
			inEvent := inMatch
			if rapid.IntRange(0, 2).Draw(t, "differs") == 0 {
				inEvent = written(t, "in the event")
			}
			equal = equal && same(t, inMatch, inEvent)
			wanted["payload."+name+".0"] = jsontext.Value(inMatch)
			members = append(members, fmt.Sprintf(`%q: [%s, 1]`, name, inEvent))
		}
		m, err := filter.ParseMatch(wanted)
		if err != nil {
			t.Fatal(err)
		}
		e, err := filter.NewEvent("e", "e", created, []byte("{"+strings.Join(rapid.Permutation(members).Draw(t, "order"), ",")+"}"))
		if err != nil {
			t.Fatal(err)
		}
		if key, ok := m.Paths.Key(e); !ok || (key == m.Key) != equal {
			t.Fatalf("%s on %v: %s, %v, want equal: %v", wanted, members, key, ok, equal)
		}
	})
}
