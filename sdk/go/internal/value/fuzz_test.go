package value

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
	"unicode/utf8"
)

// FuzzDecode: a saved value that is read and saved again is the same value: replays see what was.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{`null`, `1e400`, `-0`, `"\ud800"`, `"<&>\u2028"`, `{"a":1,"a":2}`, `[[[{}]]]`, `9007199254740993`, `"a\u0000"`, `{"":""}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var v any
		if Decode(text, &v) != nil {
			return
		}
		once, err := Encode("result", &v)
		if err != nil {
			t.Fatalf("%s was read, and can't be saved: %v", text, err)
		}
		var back any
		if err := Decode(once, &back); err != nil {
			t.Fatal(err)
		}
		twice, err := Encode("result", &back)
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s became %s, then %s (%v)", text, once, twice, err)
		}
	})
}

// FuzzEncode: a Go value is saved as it is, or refused.
func FuzzEncode(f *testing.F) {
	f.Add("", 0.0, []byte(nil), int64(0))
	f.Add("<&>\u2028\uFFFD", math.Inf(1), []byte{0xff}, int64(math.MinInt64))
	f.Add("\xff", math.NaN(), []byte("text"), int64(math.MaxInt64))
	f.Add("\xed\xa0\x80", math.SmallestNonzeroFloat64, []byte{}, int64(1))
	f.Fuzz(func(t *testing.T, s string, x float64, b []byte, n int64) {
		type value struct {
			S  string
			X  float64
			B  []byte
			N  int64
			In map[string]any
		}
		v := value{s, x, b, n, map[string]any{s: []any{s}}}
		text, err := Encode("result", &v)
		broken := !utf8.ValidString(s) || math.IsNaN(x) || math.IsInf(x, 0)
		if broken != (err != nil) {
			t.Fatalf("%q %v: error %v", s, x, err)
		}
		if err != nil {
			return
		}
		var back value
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if back.S != s || back.X != x || !bytes.Equal(back.B, b) || back.N != n || back.In[s].([]any)[0] != s {
			t.Errorf("%+v came back as %+v", v, back)
		}
	})
}
