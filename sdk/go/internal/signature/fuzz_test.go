package signature

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

// FuzzVerify: what passes was signed by one of the keys, over exactly these bytes, and not long ago.
func FuzzVerify(f *testing.F) {
	good := Sign(keyA, "msg_1", stamp, []byte("{}"))
	f.Add("msg_1", stamp, good, []byte("{}"))
	f.Add("msg_1", stamp, "v1,AAAA v2,x "+good, []byte("{}"))
	f.Add("msg_1", "+"+stamp, good, []byte("{}"))
	f.Add("", "-1", "v1,", []byte(nil))
	f.Add("a.1", "9223372036854775808", strings.Repeat("v1, ", 1000), []byte("."))
	f.Fuzz(func(t *testing.T, id, timestamp, signatures string, body []byte) {
		header := http.Header{HeaderID: {id}, HeaderTimestamp: {timestamp}, HeaderSignature: {signatures}}
		err := Verify([]Key{keyB, keyA}, header, body, now)
		if err != nil {
			if !errors.Is(err, ErrUnsigned) && !errors.Is(err, ErrBad) && !errors.Is(err, ErrClock) {
				t.Errorf("an error that is on no list: %v", err)
			}
			return
		}
		if !strings.Contains(signatures, Sign(keyA, id, timestamp, body)) && !strings.Contains(signatures, Sign(keyB, id, timestamp, body)) {
			t.Errorf("accepted %q at %q for %q", signatures, timestamp, id)
		}
	})
}

// FuzzParseKey: a key that is refused is not shown, and one that is taken is long enough.
func FuzzParseKey(f *testing.F) {
	for _, text := range []string{"", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", strings.Repeat("k", 31), strings.Repeat("k", 32), "whsec_" + strings.Repeat("=", 40), "whsec_\n\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := ParseKey(text)
		switch {
		case err != nil && len(text) > 8 && strings.Contains(err.Error(), text):
			t.Errorf("the key is shown: %v", err)
		case err == nil && len(key) < keyBytesMinEncoded:
			t.Errorf("a key of %d bytes is taken", len(key))
		}
	})
}
