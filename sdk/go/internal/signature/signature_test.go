package signature

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	now   = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	keyA  = Key(strings.Repeat("a", 32))
	keyB  = Key(strings.Repeat("b", 32))
	stamp = strconv.FormatInt(now.Unix(), 10)
)

// The example of the Standard Webhooks specification's libraries.
func TestSignMatchesAPublishedVector(t *testing.T) {
	key, err := ParseKey("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := Sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
}

func TestVerify(t *testing.T) {
	body := []byte("{\"é\":\"😀\xff\r\n\"}")
	good := Sign(keyA, "msg_1", stamp, body)
	raw, _ := base64.StdEncoding.DecodeString(good[3:])
	cut := "v1," + base64.StdEncoding.EncodeToString(raw[:31])
	long := "v1," + base64.StdEncoding.EncodeToString(append(raw[:32:32], 0))
	at := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).Unix(), 10) }
	for _, c := range []struct {
		name, id, stamp, signature string
		body                       []byte
		keys                       []Key
		want                       error
	}{
		{"good", "msg_1", stamp, good, body, []Key{keyA}, nil},
		{"empty body", "msg_1", stamp, Sign(keyA, "msg_1", stamp, nil), nil, []Key{keyA}, nil},
		{"new key first", "msg_1", stamp, good, body, []Key{keyB, keyA}, nil},
		{"old key first", "msg_1", stamp, good, body, []Key{keyA, keyB}, nil},
		{"two signatures, ours last", "msg_1", stamp, Sign(keyB, "msg_1", stamp, body) + " " + good, body, []Key{keyA}, nil},
		{"two signatures, ours first", "msg_1", stamp, good + " v1a,xyz", body, []Key{keyA}, nil},
		{"none", "msg_1", stamp, "", body, []Key{keyA}, ErrUnsigned},
		{"no id", "", stamp, good, body, []Key{keyA}, ErrBad},
		{"no time", "msg_1", "", good, body, []Key{keyA}, ErrBad},
		{"no key", "msg_1", stamp, good, body, nil, ErrBad},
		{"removed key", "msg_1", stamp, good, body, []Key{keyB}, ErrBad},
		{"other id", "msg_2", stamp, good, body, []Key{keyA}, ErrBad},
		{"other body", "msg_1", stamp, good, append(body[:len(body):len(body)], ' '), []Key{keyA}, ErrBad},
		{"empty digest", "msg_1", stamp, "v1,", body, []Key{keyA}, ErrBad},
		{"one byte", "msg_1", stamp, "v1,AA==", body, []Key{keyA}, ErrBad},
		{"cut digest", "msg_1", stamp, cut, body, []Key{keyA}, ErrBad},
		{"long digest", "msg_1", stamp, long, body, []Key{keyA}, ErrBad},
		{"other version", "msg_1", stamp, "v2" + good[2:], body, []Key{keyA}, ErrBad},
		{"no version", "msg_1", stamp, good[3:], body, []Key{keyA}, ErrBad},
		{"not base64", "msg_1", stamp, "v1,!!!!", body, []Key{keyA}, ErrBad},
		{"time is no number", "msg_1", "now", Sign(keyA, "msg_1", "now", body), body, []Key{keyA}, ErrBad},
		{"4 min behind", "msg_1", at(-4 * time.Minute), Sign(keyA, "msg_1", at(-4*time.Minute), body), body, []Key{keyA}, nil},
		{"4 min ahead", "msg_1", at(4 * time.Minute), Sign(keyA, "msg_1", at(4*time.Minute), body), body, []Key{keyA}, nil},
		{"10 min behind", "msg_1", at(-10 * time.Minute), Sign(keyA, "msg_1", at(-10*time.Minute), body), body, []Key{keyA}, ErrClock},
		{"10 min ahead", "msg_1", at(10 * time.Minute), Sign(keyA, "msg_1", at(10*time.Minute), body), body, []Key{keyA}, ErrClock},
	} {
		t.Run(c.name, func(t *testing.T) {
			header := http.Header{}
			header.Set(HeaderID, c.id)
			header.Set(HeaderTimestamp, c.stamp)
			header.Set(HeaderSignature, c.signature)
			if err := Verify(c.keys, header, c.body, now); !errors.Is(err, c.want) {
				t.Errorf("Verify: %v, want %v", err, c.want)
			}
		})
	}
}

func TestClockRefusalNamesBothClocks(t *testing.T) {
	old := strconv.FormatInt(now.Add(-10*time.Minute).Unix(), 10)
	header := http.Header{HeaderID: {"m"}, HeaderTimestamp: {old}, HeaderSignature: {Sign(keyA, "m", old, nil)}}
	err := Verify([]Key{keyA}, header, nil, now)
	if err == nil || !strings.Contains(err.Error(), "11:50:00Z") || !strings.Contains(err.Error(), "12:00:00Z") {
		t.Errorf("the refusal is %v", err)
	}
}

func TestParseKeyRefusesWhatIsNoKeyAndNeverShowsIt(t *testing.T) {
	for _, text := range []string{"", "short-secret", "whsec_", "whsec_not base64", "whsec_c2hvcnQ="} {
		if _, err := ParseKey(text); err == nil {
			t.Errorf("ParseKey(%q) took it", text)
		} else if len(text) > 6 && strings.Contains(err.Error(), text) {
			t.Errorf("the error shows the key: %v", err)
		}
	}
}
