package signature_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/nelkap/nelkap/internal/signature"
)

const (
	textKey  = "a text of thirty-two bytes or more"
	otherKey = "another text of thirty-two or more"
)

var encodedKey = "whsec_" + base64.StdEncoding.EncodeToString([]byte("twenty-four random bytes"))

var now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// bodies are those on which signatures have broken elsewhere (bytes taken for text, JSON encoded twice).
var bodies = map[string]string{
	"empty":            "",
	"escapes":          `{"a":"& < > \u2028"}`,
	"several bytes":    `{"é":"😀"}`,
	"byte order mark":  "\ufeff{}",
	"not UTF-8":        "\xff\xfe\x00",
	"line ends":        "{\r\n}\r\n",
	"numbers":          `[1.0,1e21,0.1]`,
	"names twice":      `{"b":1,"a":2,"b":3}`,
	"a body with dots": "id.123.body",
}

func mustParse(t *testing.T, texts ...string) signature.Keys {
	t.Helper()
	keys, err := signature.ParseKeys(texts...)
	if err != nil {
		t.Fatalf("ParseKeys: %v", err)
	}
	return keys
}

func TestSignsAsTheSchemesOwnLibraryDoes(t *testing.T) {
	fromText, err := standardwebhooks.NewWebhookRaw([]byte(textKey))
	if err != nil {
		t.Fatal(err)
	}
	fromEncoded, err := standardwebhooks.NewWebhook(encodedKey)
	if err != nil {
		t.Fatal(err)
	}
	for key, oracle := range map[string]*standardwebhooks.Webhook{textKey: fromText, encodedKey: fromEncoded} {
		for name, body := range bodies {
			header := http.Header{}
			mustParse(t, key).Sign(header, "call_1", now, []byte(body))
			want, err := oracle.Sign("call_1", now, []byte(body))
			if err != nil {
				t.Fatal(err)
			}
			if got := header.Get(signature.HeaderSignature); got != want {
				t.Errorf("%s: signed %s, the library signs %s", name, got, want)
			}
			if err := oracle.VerifyIgnoringTimestamp([]byte(body), header); err != nil {
				t.Errorf("%s: the library refuses it: %v", name, err)
			}
			if err := mustParse(t, key).Verify(header, []byte(body), now); err != nil {
				t.Errorf("%s: refused by its own key: %v", name, err)
			}
		}
	}
}

func TestTheSchemesPublishedVector(t *testing.T) {
	header := http.Header{}
	mustParse(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").Sign(header, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if got, want := header.Get(signature.HeaderSignature), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signed %s, published is %s", got, want)
	}
}

// Keys change without a gap, in the documented order: the server signs with both, then the app takes the new one.
func TestAKeyChangesWithoutAGap(t *testing.T) {
	body := []byte("{}")
	tests := []struct {
		server, app []string
		want        error
	}{
		{server: []string{textKey}, app: []string{textKey}},
		{server: []string{otherKey, textKey}, app: []string{textKey}},
		{server: []string{otherKey, textKey}, app: []string{otherKey}},
		{server: []string{textKey}, app: []string{otherKey, textKey}},
		{server: []string{otherKey}, app: []string{otherKey, textKey}},
		{server: []string{textKey}, app: []string{otherKey}, want: signature.ErrBadSignature},
		{server: []string{textKey}, app: nil, want: signature.ErrBadSignature},
		{server: nil, app: []string{textKey}, want: signature.ErrUnsigned},
	}
	for _, test := range tests {
		header := http.Header{}
		mustParse(t, test.server...).Sign(header, "call_1", now, body)
		if err := mustParse(t, test.app...).Verify(header, body, now); !errors.Is(err, test.want) {
			t.Errorf("signed with %d keys, verified with %d: %v, want %v", len(test.server), len(test.app), err, test.want)
		}
	}
}

func TestRefusesWhatIsForged(t *testing.T) {
	keys := mustParse(t, textKey)
	signed := func() http.Header {
		header := http.Header{}
		keys.Sign(header, "call_1", now, []byte("{}"))
		return header
	}
	right := strings.TrimPrefix(signed().Get(signature.HeaderSignature), "v1,")
	tests := map[string]struct {
		change func(http.Header)
		body   string
		want   error
	}{
		"genuine":             {func(http.Header) {}, "{}", nil},
		"after a foreign one": {func(h http.Header) { h.Set(signature.HeaderSignature, "v1a,x v2,y v1,"+right) }, "{}", nil},
		"another body":        {func(http.Header) {}, "{} ", signature.ErrBadSignature},
		"another id":          {func(h http.Header) { h.Set(signature.HeaderID, "call_2") }, "{}", signature.ErrBadSignature},
		"another time":        {func(h http.Header) { h.Set(signature.HeaderTimestamp, "1") }, "{}", signature.ErrBadSignature},
		"no number":           {func(h http.Header) { h.Set(signature.HeaderTimestamp, "now") }, "{}", signature.ErrBadSignature},
		"no id":               {func(h http.Header) { h.Del(signature.HeaderID) }, "{}", signature.ErrUnsigned},
		"no timestamp":        {func(h http.Header) { h.Del(signature.HeaderTimestamp) }, "{}", signature.ErrUnsigned},
		"no signature":        {func(h http.Header) { h.Del(signature.HeaderSignature) }, "{}", signature.ErrUnsigned},
		"an empty one":        {func(h http.Header) { h.Set(signature.HeaderSignature, "v1,") }, "{}", signature.ErrBadSignature},
		"one byte":            {func(h http.Header) { h.Set(signature.HeaderSignature, "v1,"+right[:1]) }, "{}", signature.ErrBadSignature},
		"cut":                 {func(h http.Header) { h.Set(signature.HeaderSignature, "v1,"+right[:40]) }, "{}", signature.ErrBadSignature},
		"too long":            {func(h http.Header) { h.Set(signature.HeaderSignature, "v1,"+right+right) }, "{}", signature.ErrBadSignature},
		"no version":          {func(h http.Header) { h.Set(signature.HeaderSignature, right) }, "{}", signature.ErrBadSignature},
		"another version":     {func(h http.Header) { h.Set(signature.HeaderSignature, "v2,"+right) }, "{}", signature.ErrBadSignature},
		"too many": {func(h http.Header) {
			h.Set(signature.HeaderSignature, strings.Repeat("v1,"+strings.Repeat("A", 43)+"= ", 16)+"v1,"+right)
		}, "{}", signature.ErrBadSignature},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			header := signed()
			test.change(header)
			if err := keys.Verify(header, []byte(test.body), now); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestClocksMayDifferByFiveMinutesEitherWay(t *testing.T) {
	keys := mustParse(t, textKey)
	for _, off := range []time.Duration{0, 4 * time.Minute, 5 * time.Minute, 5*time.Minute + time.Second, 10 * time.Minute} {
		for _, sent := range []time.Time{now.Add(-off), now.Add(off)} {
			header := http.Header{}
			keys.Sign(header, "call_1", sent, nil)
			err := keys.Verify(header, nil, now)
			if refused := errors.Is(err, signature.ErrClockDiffers); refused != (off > signature.Tolerance) {
				t.Errorf("sent at %v, now %v: %v", sent, now, err)
			}
			if err != nil && (!strings.Contains(err.Error(), now.Format(time.RFC3339)) || !strings.Contains(err.Error(), sent.Format(time.RFC3339))) {
				t.Errorf("the refusal does not name both clocks: %v", err)
			}
		}
	}
}

func TestKeys(t *testing.T) {
	tests := map[string]struct {
		text string
		ok   bool
	}{
		"text of 32 bytes":          {strings.Repeat("k", 32), true},
		"text of 31 bytes":          {strings.Repeat("k", 31), false},
		"32 bytes in 16 characters": {strings.Repeat("é", 16), true},
		"encoded":                   {encodedKey, true},
		"encoded, too short":        {"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23)), false},
		"encoded, nothing":          {"whsec_", false},
		"encoded, URL's alphabet":   {"whsec_" + strings.Repeat("-_-_", 8), false},
		"encoded, a line end":       {"whsec_" + strings.Repeat("AAAA", 8) + "\nAAAA", false},
		"a line end after it":       {strings.Repeat("k", 32) + "\n", false},
		"nothing":                   {"", false},
	}
	for name, test := range tests {
		_, err := signature.ParseKey(test.text)
		if (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && test.text != "" && strings.Contains(err.Error(), strings.TrimPrefix(test.text, "whsec_")) && test.text != "whsec_" {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
	}
	if keys := mustParse(t, "", textKey, ""); len(keys) != 1 {
		t.Errorf("settings that were not given made %d keys", len(keys)-1)
	}
}

func TestAKeyIsNeverPrinted(t *testing.T) {
	keys := mustParse(t, textKey)
	held := struct{ keys signature.Keys }{keys}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if got := fmt.Sprintf(format+format, keys, held); strings.Contains(got, "thirty") || strings.Contains(got, "7468697274") || strings.Contains(got, "116 104") {
			t.Errorf("%s shows the key: %s", format, got)
		}
	}
}
