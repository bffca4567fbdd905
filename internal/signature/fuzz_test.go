package signature_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/nelkap/nelkap/internal/signature"
)

// FuzzVerify: what passes was signed with the key, over exactly these bytes, and not long ago.
func FuzzVerify(f *testing.F) {
	keys, err := signature.ParseKeys(textKey)
	if err != nil {
		f.Fatal(err)
	}
	header := http.Header{}
	keys.Sign(header, "call_1", now, []byte("{}"))
	timestamp, good := header.Get(signature.HeaderTimestamp), header.Get(signature.HeaderSignature)
	f.Add("call_1", timestamp, good, []byte("{}"))
	f.Add("call_1", timestamp, "v1,AAAA v2,x "+good, []byte("{}"))
	f.Add("call_1", timestamp, good, []byte("{} "))
	f.Add("call_1", "+"+timestamp, good, []byte("{}"))
	f.Add("", "-1", "v1,", []byte(nil))
	f.Add("a.1", "9223372036854775808", strings.Repeat("v1,", 1000), []byte("."))
	f.Fuzz(func(t *testing.T, id, timestamp, signatures string, body []byte) {
		forged := http.Header{}
		forged.Set(signature.HeaderID, id)
		forged.Set(signature.HeaderTimestamp, timestamp)
		forged.Set(signature.HeaderSignature, signatures)
		err := keys.Verify(forged, body, now)
		if err != nil {
			if !errors.Is(err, signature.ErrUnsigned) && !errors.Is(err, signature.ErrBadSignature) && !errors.Is(err, signature.ErrClockDiffers) {
				t.Errorf("an error that is on no list: %v", err)
			}
			return
		}
		want := http.Header{}
		keys.Sign(want, id, now, body)
		if !strings.Contains(signatures, want.Get(signature.HeaderSignature)) {
			t.Errorf("accepted %q at %q for %q", signatures, timestamp, id)
		}
	})
}

// FuzzParseKey: a key that is taken signs as the scheme's own library does, and one that is refused is not shown.
func FuzzParseKey(f *testing.F) {
	for _, text := range []string{"", textKey, encodedKey, "whsec_", " " + textKey, "whsec_" + textKey, encodedKey + "\n", strings.TrimRight(encodedKey, "="), "whsec_-_-_" + encodedKey[6:], "thirty-two bytes of \xff\x00 odd text"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := signature.ParseKey(text)
		if err != nil {
			if len(text) > 8 && strings.Contains(err.Error(), text) {
				t.Errorf("the key is shown: %v", err)
			}
			return
		}
		header, body := http.Header{}, []byte(`{"a":1}`)
		at := time.Now() // the library's clock can't be set
		signature.Keys{key}.Sign(header, "call_1", at, body)
		oracle, err := standardwebhooks.NewWebhookRaw([]byte(text))
		if strings.HasPrefix(text, "whsec_") {
			oracle, err = standardwebhooks.NewWebhook(text)
		}
		if err != nil {
			t.Fatalf("%q is taken, and the scheme's library refuses it: %v", text, err)
		}
		if err := oracle.Verify(body, header); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if err := (signature.Keys{key}).Verify(header, body, at); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
