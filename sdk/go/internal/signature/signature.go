// Package signature checks that a request came from the server, by Standard Webhooks.
//
// It decides only whether bytes were signed by one of the app's keys, and when. It refuses keys that are too short to be
// keys. The signature is over the raw bytes, digests are compared whole and in constant time, and every key is tried, so
// that keys can be changed without a gap.
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

const (
	// keyBytesMin is the shortest key taken: as long as the digest.
	keyBytesMin = 32
	// keyBytesMinEncoded is the shortest key after whsec_: what the scheme asks for.
	keyBytesMinEncoded = 24
	// ageMax is how far the timestamp may be off, in either direction.
	ageMax = 5 * time.Minute
	// signaturesMax bounds how many signatures of one request are looked at.
	signaturesMax = 16
)

// What Verify refuses, checked with errors.Is.
var (
	ErrUnsigned = errors.New("the request is not signed")
	ErrBad      = errors.New("no key of this app made this signature")
	ErrClock    = errors.New("the clocks of server and app are more than five minutes apart")
)

// Key is a signing key.
type Key []byte

// ParseKey reads a key as it stands in a variable: base64 after whsec_, else its text. Its errors never contain the key.
func ParseKey(text string) (Key, error) {
	encoded, ok := strings.CutPrefix(text, "whsec_")
	if !ok {
		if len(text) < keyBytesMin {
			return nil, fmt.Errorf("a signing key has at least %d bytes, this one has %d", keyBytesMin, len(text))
		}
		return Key(text), nil
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, errors.New("a signing key that starts with whsec_ must be base64 after it, and this one is not")
	}
	if len(key) < keyBytesMinEncoded {
		return nil, fmt.Errorf("a signing key after whsec_ has at least %d bytes, this one has %d", keyBytesMinEncoded, len(key))
	}
	return key, nil
}

// Sign is the signature of one key, as it stands in the header.
func Sign(key Key, id, timestamp string, body []byte) string {
	return "v1," + base64.StdEncoding.EncodeToString(digest(key, id, timestamp, body))
}

func digest(key Key, id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// Verify checks that one of the keys signed body, at most five minutes from now. It fails with ErrUnsigned, ErrBad or
// ErrClock; the time is only judged once the signature is known to be good.
func Verify(keys []Key, header http.Header, body []byte, now time.Time) error {
	id, timestamp, list := header.Get(HeaderID), header.Get(HeaderTimestamp), header.Get(HeaderSignature)
	if list == "" {
		return ErrUnsigned
	}
	if id == "" || timestamp == "" || !signedByAny(keys, id, timestamp, body, list) {
		return ErrBad
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return ErrBad
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > ageMax || age < -ageMax {
		return fmt.Errorf("%w: the server signed at %s, the app's clock says %s", ErrClock,
			time.Unix(seconds, 0).UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

func signedByAny(keys []Key, id, timestamp string, body []byte, list string) bool {
	given := digests(list)
	for _, key := range keys {
		want := digest(key, id, timestamp, body)
		for _, d := range given {
			if hmac.Equal(d, want) {
				return true
			}
		}
	}
	return false
}

// digests are the whole digests of version 1 in a header; anything else in it is passed over.
func digests(list string) (found [][]byte) {
	for text := range strings.SplitSeq(list, " ") {
		encoded, ok := strings.CutPrefix(text, "v1,")
		if !ok || len(found) == signaturesMax {
			continue
		}
		d, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if err == nil && len(d) == sha256.Size {
			found = append(found, d)
		}
	}
	return found
}
