package value

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"
)

type (
	point   struct{ X, Y int }
	hidden  struct{ Shown, secret int } //nolint:unused // a field that JSON would lose
	outer   struct{ In []map[string]hidden }
	loop    struct{ Next *loop }
	holder  struct{ V any }
	base    struct{ ID string }
	derived struct {
		base
		N int `json:"n"`
	}
	left struct {
		A int
		F func() `json:"-"`
		_ struct{}
	}
)

func TestEncodeKeepsWhatJSONCanHold(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		v    any
		want string
	}{
		{nil, "null"},
		{1, "1"},
		{"<a href='x'>&</a>", `"<a href='x'>&</a>"`},
		{point{1, 2}, `{"X":1,"Y":2}`},
		{at, `"2026-01-02T03:04:05Z"`},
		{&at, `"2026-01-02T03:04:05Z"`},
		{[]byte{0, 255}, `"AP8="`},
		{map[string]int{"a": 1}, `{"a":1}`},
		{json.RawMessage(`{"b": 1.0}`), `{"b":1.0}`},
		{big.NewInt(7), "7"},
		{derived{base{"x"}, 2}, `{"ID":"x","n":2}`},
		{left{A: 1}, `{"A":1}`},
		{(*point)(nil), "null"},
		{[]int(nil), "null"},
		{"a\x00b", `"a\u0000b"`},
		{"\uFFFD", ""},
		{holder{point{1, 2}}, `{"V":{"X":1,"Y":2}}`},
		{[]any{1, "a", nil}, `[1,"a",null]`},
	} {
		got, err := Encode("result", &c.v)
		if err != nil {
			t.Errorf("Encode(%#v): %v", c.v, err)
		} else if c.want != "" && string(got) != c.want {
			t.Errorf("Encode(%#v) = %s, want %s", c.v, got, c.want)
		}
	}
	if got, err := Encode("result", &struct{}{}); got != nil || err != nil {
		t.Errorf("Encode(None) = %q, %v; want nothing", got, err)
	}
}

func TestEncodeRefusesWithThePath(t *testing.T) {
	ring := &loop{}
	ring.Next = &loop{Next: ring}
	self := map[string]any{}
	self["me"] = self
	list := make([]any, 1)
	list[0] = list
	for _, c := range []struct {
		v    any
		path string
	}{
		{math.NaN(), "result "},
		{[]float64{1, math.Inf(1)}, "result[1] "},
		{make(chan int), "result "},
		{func() {}, "result "},
		{complex(1, 2), "result "},
		{hidden{}, "result "},
		{outer{[]map[string]hidden{{"k": {}}}}, `result.In[0]["k"] `},
		{holder{func() {}}, "result.V "},
		{holder{hidden{}}, "result.V "},
		{ring, "result.Next.Next "},
		{self, `result["me"] `},
		{list, "result[0] "},
		{"a\xff", "result "},
		{point2{"\xc3\x28"}, "result.Name "},
		{map[string]string{"\xff": "x"}, "result "},
		{holder{map[string]any{"a": []any{math.NaN()}}}, `result.V["a"][0] `},
	} {
		_, err := Encode("result", &c.v)
		var refusal *RefusalError
		if !errors.As(err, &refusal) {
			t.Errorf("Encode(%T): %v, want a refusal", c.v, err)
		} else if !strings.HasPrefix(err.Error(), c.path) {
			t.Errorf("Encode(%T): %q, want the path %q", c.v, err, c.path)
		}
	}
}

type point2 struct{ Name string }

type money struct{ cents int }

func (m *money) MarshalJSON() ([]byte, error) { return json.Marshal(m.cents) }

type (
	panicsAsJSON struct{}
	panicsAsText struct{}
)

func (panicsAsJSON) MarshalJSON() ([]byte, error) { panic("no") }
func (panicsAsText) MarshalText() ([]byte, error) { panic("no") }

func TestAMethodThatPanicsIsAnError(t *testing.T) {
	for _, v := range []any{
		panicsAsJSON{}, &panicsAsText{}, holder{panicsAsJSON{}}, map[panicsAsText]int{{}: 1}, []any{math.NaN(), panicsAsText{}},
	} {
		if text, err := Encode("result", &v); err == nil || text != nil {
			t.Errorf("Encode(%T) = %s, %v", v, text, err)
		}
	}
	if _, err := Encode("result", &panicsAsJSON{}); err == nil || !strings.Contains(err.Error(), "panicked: no") {
		t.Errorf("the error is %v", err)
	}
}

// The encoder finds a pointer's MarshalJSON only where the value has an address: elsewhere the fields would be lost.
func TestMarshalJSONOfAPointer(t *testing.T) {
	in := func(text json.RawMessage, err error) string {
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	for want, got := range map[string]string{
		"5":             in(Encode("result", &money{5})),
		"[5]":           in(Encode("result", &[]money{{5}})),
		`{"In":5}`:      in(Encode("result", &struct{ In money }{money{5}})),
		`{"a":5}`:       in(Encode("result", &map[string]*money{"a": {5}})),
		`result["a"] `:  in(Encode("result", &map[string]money{"a": {5}})),
		"result.V is a": in(Encode("result", &holder{money{5}})),
		`{"V":7}`:       in(Encode("result", &holder{big.NewInt(7)})),
	} {
		if !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

type broken struct{}

func (broken) MarshalJSON() ([]byte, error) { return nil, errors.New("no JSON today") }

func TestEncodePassesErrorsOfMarshalJSON(t *testing.T) {
	_, err := Encode("result", &broken{})
	if err == nil || !strings.Contains(err.Error(), "no JSON today") {
		t.Errorf("Encode: %v", err)
	}
}

func TestNullAndAbsentAreToldApart(t *testing.T) {
	var m struct {
		A json.RawMessage `json:"a,omitempty"`
		B json.RawMessage `json:"b,omitempty"`
	}
	if err := json.Unmarshal([]byte(`{"a":null}`), &m); err != nil || string(m.A) != "null" || m.B != nil {
		t.Errorf("a is %q, b is %q, %v", m.A, m.B, err)
	}
}
