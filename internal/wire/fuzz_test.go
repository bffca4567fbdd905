package wire_test

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/nelkap/nelkap/internal/wire"
)

// messages are all that come from outside, apps' and servers'.
var messages = []func() any{
	func() any { return new(wire.Saves) },
	func() any { return new(wire.Ends) },
	func() any { return new(wire.Heartbeat) },
	func() any { return new(wire.End) },
	func() any { return new(wire.Manifest) },
	func() any { return new(wire.Call) },
	func() any { return new(wire.SavesAnswer) },
	func() any { return new(wire.StepsPage) },
}

// FuzzMessage: whatever comes is a message or an error that is a sentence, and a message that is written again is the same message.
func FuzzMessage(f *testing.F) {
	for kind, body := range []string{
		`{"process":"p","saves":[{"call":"c","token":"t","nonce":"n","seen":1,"items":[{"op":"failed","kind":"run","name":"a","number":1,"attempt":1,"error":{"name":"E","message":"m","cause":{"name":"E","message":"c"}},"retryAfterMs":5}]}]}`,
		`{"process":"p","ends":[{"call":"c","token":"t","nonce":"n","end":{"type":"completed","output":"\ud800"}}]}`,
		`{"process":"p","calls":[{"call":"c","token":"t","nonce":"n"}],"waitMs":5000}`,
		`{"type":"suspended","seen":7,"waits":[{"retry":{"name":"a","number":1}}]}`,
		`{"app":"shop","sdk":{"language":"go","version":"1"},"protocol":1,"hash":"h","workflows":[{"name":"w","triggers":[{"event":"e","if":"x > 1"}],"retries":0}]}`,
		`{"type":"call","run":{"id":"r","payload":1e400,"event":null,"key":null},"call":{"id":"c","sentAt":"2026-01-02T03:04:05.678Z"},"steps":{"entries":[{"entry":1,"output":{"a":1,"a":2}}],"next":1}}`,
		`{"time":"2026-01-02T05:04:05+02:00","saves":[{"call":"c","status":"accepted","items":[{"status":"saved","entry":9007199254740993}]}]}`,
		`{"time":null,"entries":[],"next":null}`,
	} {
		f.Add(uint8(kind), []byte(body))
	}
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		fresh := messages[int(kind)%len(messages)]
		once, twice := fresh(), fresh()
		if err := wire.Decode(body, once); err != nil {
			if !strings.HasPrefix(err.Error(), "the body is not ") || !utf8.ValidString(err.Error()) {
				t.Errorf("no sentence: %q", err)
			}
			return
		}
		text, err := wire.Encode(once)
		if err != nil {
			t.Fatalf("what was decoded can't be encoded: %v", err)
		}
		if err := wire.Decode(text, twice); err != nil {
			t.Fatalf("what was encoded can't be decoded: %v\n%s", err, text)
		}
		again, err := wire.Encode(twice)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(text), string(again)); diff != "" {
			t.Fatal(diff)
		}
		if saves, ok := once.(*wire.Saves); ok {
			checkItems(t, saves)
		}
	})
}

// checkItems: an item that no rule refuses keeps the bounds that everything behind it relies on.
func checkItems(t *testing.T, saves *wire.Saves) {
	for i := range saves.Saves {
		for j := range saves.Saves[i].Items {
			item := &saves.Saves[i].Items[j]
			switch detail := wire.CheckItem(item); {
			case detail != "" && len(detail) > 4*wire.NameBytesMax:
				t.Errorf("a sentence of %d bytes", len(detail))
			case detail == "" && (item.Name == "" || len(item.Name) > wire.NameBytesMax || item.Number < 1 || item.Attempt < 1 || item.Kind != "run"):
				t.Errorf("accepted: %+v", item)
			}
		}
	}
}

// FuzzValue: a user's value comes through a message byte by byte, and its depth is what a whole parser says.
func FuzzValue(f *testing.F) {
	for _, value := range []string{
		`"\u0041\ud800"`, `1.0`, `1e400`, `{"a":1,"a":2}`, `"a\u0000b"`, `"\/"`, `null`, `""`, "\"\u2028<&>\"", `[[[{"]":"\\"}]]]`, ` [ 1 , 2 ] `, `-0`,
	} {
		f.Add([]byte(value))
	}
	options := []jsontext.Options{jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)}
	f.Fuzz(func(t *testing.T, value []byte) {
		if !utf8.Valid(value) || !jsontext.Value(value).IsValid(options...) {
			return
		}
		var end wire.End
		if err := wire.Decode(append(append([]byte(`{"type":"completed","output":`), value...), '}'), &end); err != nil {
			if depth(t, value, options) > 1_000 {
				return // the parser's own bound
			}
			t.Fatalf("%s: %v", value, err)
		}
		if !bytes.Equal(end.Output, bytes.TrimSpace(value)) {
			t.Errorf("%s came in as %s", value, end.Output)
		}
		text, err := wire.Encode(end)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, compact(t, value, options)) {
			t.Errorf("%s went out as %s", value, text)
		}
		if got, want := wire.Depth(value), depth(t, value, options); got != want {
			t.Errorf("%s: depth %d, want %d", value, got, want)
		}
	})
}

func compact(t *testing.T, value []byte, options []jsontext.Options) []byte {
	v := jsontext.Value(bytes.Clone(value))
	if err := v.Compact(append(options, jsontext.PreserveRawStrings(true))...); err != nil {
		t.Fatal(err)
	}
	return v
}

// depth is the deepest that a decoder gets.
func depth(t *testing.T, value []byte, options []jsontext.Options) int {
	decoder, deepest := jsontext.NewDecoder(bytes.NewReader(value), options...), 0
	for {
		if _, err := decoder.ReadToken(); errors.Is(err, io.EOF) {
			return deepest
		} else if err != nil {
			t.Fatal(err)
		}
		deepest = max(deepest, decoder.StackDepth())
	}
}
