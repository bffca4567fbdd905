package filter_test

import (
	"encoding/json/jsontext"
	"strings"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/filter"
)

// FuzzFilter: whatever the text and the payload, there is an answer or a sentence, soon, and the same once more.
func FuzzFilter(f *testing.F) {
	const payload = `{"total":3.5,"count":3,"id":"o_1","items":[{"sku":"x","qty":1}],"none":null,"big":18446744073709551616}`
	for _, text := range []string{
		"payload.total > 0", "has(payload.x) && payload.x == 1", "payload.items.exists(i, i.qty > 0)", "payload.id.matches('^o_')",
		"event.event == 'order.paid' ? payload.count / 2 > 1 : false", "payload.big % 2 == 0", "payload['id'] in ['o_1']", "\n\n// a\n",
		"payload.items == [{'sku': 'x', 'qty': 1}]", "[[1,[2]]].all(x, x == x)", "event.createdAt.getFullYear() == 2026", "payload.count - -1u == 4.0",
		"(((((payload", "payload.items.map(i, i.qty).filter(q, q > 0).size() == 1", "'a' + string(payload.count) == b'a'", "-9223372036854775808 - 1 < payload",
	} {
		f.Add(text, []byte(payload))
	}
	f.Add("payload[0][0] == ''", []byte(`[["\ud800"]]`))
	f.Add("payload > 1", []byte(`1e400`))
	f.Add("payload.a", []byte(`{"a":1,"a":true}`))
	f.Fuzz(func(t *testing.T, text string, payload []byte) {
		begin := time.Now()
		compiled, err := filter.Compile(text)
		if err != nil && !isSentence(err.Error()) {
			t.Errorf("no sentence: %q", err)
		}
		e, err2 := filter.NewEvent("evt_1", "order.paid", created, payload)
		if err2 != nil && !strings.HasPrefix(err2.Error(), "filters can't read the payload of event evt_1: ") {
			t.Errorf("no sentence: %q", err2)
		}
		if err != nil || err2 != nil {
			return
		}
		match, err := compiled.Match(e)
		if err != nil && (match || !isSentence(err.Error())) {
			t.Errorf("%v with %q", match, err)
		}
		if again, err2 := compiled.Match(e); again != match || (err2 == nil) != (err == nil) {
			t.Errorf("%v (%v), then %v (%v)", match, err, again, err2)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// FuzzMatch: a match is refused with a sentence, or the event that holds its value where it says so has its key, and no other has.
func FuzzMatch(f *testing.F) {
	for _, value := range []string{`"o_1"`, `1.0`, `-0`, `1e-7`, `null`, `true`, `"\u0000"`, `"\ud800"`, `{}`, `1e9999999999`, `0.1e1`} {
		f.Add("payload.id", []byte(value), []byte(`1`))
	}
	f.Add("payload", []byte(`"x"`), []byte(`"\u0078"`))
	f.Add("payload.a.0.b", []byte(`12e1`), []byte(`120`))
	f.Fuzz(func(t *testing.T, path string, value, other []byte) {
		m, err := filter.ParseMatch(map[string]jsontext.Value{path: value})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "match") {
				t.Errorf("no sentence: %q", err)
			}
			return
		}
		key, ok := m.Paths.Key(at(t, path, value))
		if !ok || key != m.Key {
			t.Errorf("%q at %q is not found in an event that holds it there", value, path)
		}
		otherMatch, err := filter.ParseMatch(map[string]jsontext.Value{path: other})
		if err != nil {
			return
		}
		key, ok = m.Paths.Key(at(t, path, other))
		if !ok || key != otherMatch.Key {
			t.Errorf("%q at %q is not found in an event that holds it there", other, path)
		}
	})
}

// at makes an event that holds a value at a path, of objects alone.
func at(t *testing.T, path string, value []byte) filter.Event {
	text := string(value)
	parts := strings.Split(path, ".")
	for i := len(parts) - 1; i > 0; i-- {
		name, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(parts[i], "\ufffd"))
		if err != nil {
			t.Fatal(err)
		}
		text = "{" + string(name) + ":" + text + "}"
	}
	e, err := filter.NewEvent("e", "e", created, []byte(text))
	if err != nil {
		t.Skip(err) // nested more deeply than a payload may be
	}
	return e
}
