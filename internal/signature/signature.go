// Package signature signs requests and checks signatures by Standard Webhooks (protocol/SPEC.md, "Signatures"): HMAC-SHA-256
// over `id.timestamp.body`, where the body is exactly the bytes that travel. It decides what a key is and whether a message is
// genuine and fresh. It refuses to parse bodies, to read a clock and to remember messages.
//
// Calls to apps are signed here, and webhooks from outside that use the same scheme are checked here.
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

// The headers of a signed message.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp" // seconds since 1970
	HeaderSignature = "webhook-signature" // `v1,` and base64; several, separated by spaces
)

const (
	// Tolerance is how far a message's timestamp may be off, in either direction.
	Tolerance = 5 * time.Minute

	encodedPrefix = "whsec_"
	versionPrefix = "v1,"

	// textKeyBytesMin is the protocol's: a key of text has less chance per byte than a random one.
	textKeyBytesMin = 32
	// encodedKeyBytesMin is Standard Webhooks' least size of a secret.
	encodedKeyBytesMin = 24
	// signaturesMax bounds the work that one message can ask for. Senders sign with two keys while they change them.
	signaturesMax = 16
)

// Errors of Verify. A message is wrapped around each that says what to do.
var (
	// ErrUnsigned: a header of the signature is missing.
	ErrUnsigned = errors.New("the message is not signed")
	// ErrBadSignature: no key made this signature. The key differs, or the body was changed on its way.
	ErrBadSignature = errors.New("no key made this signature")
	// ErrClockDiffers: the signature is right, and its timestamp is too far off.
	ErrClockDiffers = errors.New("the clocks differ")
)

// Key is one signing key. It is never printed: every way of formatting it gives a placeholder.
type Key struct {
	secret func() []byte // a function, since fmt would print bytes, and a pointer's too, in another type's private field
}

// Format writes a placeholder, whatever the verb.
func (Key) Format(state fmt.State, _ rune) { fmt.Fprint(state, "(signing key)") }

// ParseKey reads a key as users write it: `whsec_` and base64, or any text of at least 32 bytes, whose bytes are the key. The
// error says what is wrong with the text without showing it.
func ParseKey(text string) (Key, error) {
	if text != strings.TrimSpace(text) {
		return Key{}, errors.New("the signing key begins or ends with white space: remove it, here and in the app")
	}
	encoded, ok := strings.CutPrefix(text, encodedPrefix)
	if !ok {
		if len(text) < textKeyBytesMin {
			return Key{}, fmt.Errorf("the signing key has %d bytes: use at least %d, or %s and base64", len(text), textKeyBytesMin, encodedPrefix)
		}
		return keyOf([]byte(text)), nil
	}
	secret, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || strings.ContainsAny(encoded, "\r\n") {
		return Key{}, fmt.Errorf("what follows %s in the signing key is not base64 (standard alphabet, with padding)", encodedPrefix)
	}
	if len(secret) < encodedKeyBytesMin {
		return Key{}, fmt.Errorf("the signing key holds %d bytes after %s: use at least %d random bytes", len(secret), encodedPrefix, encodedKeyBytesMin)
	}
	return keyOf(secret), nil
}

func keyOf(secret []byte) Key { return Key{func() []byte { return secret }} }

// Keys are the keys in use: the current one, then the previous one while there is one. With none, nothing is signed and nothing
// can be verified. Keys are never changed after they are parsed.
type Keys []Key

// ParseKeys reads several keys. Empty texts are left out, since they are settings that were not given.
func ParseKeys(texts ...string) (Keys, error) {
	var keys Keys
	for _, text := range texts {
		if text == "" {
			continue
		}
		key, err := ParseKey(text)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Sign sets the headers of a message: its id, its time, and one signature per key. Without keys it sets none of them. The body
// must be the bytes that are sent.
func (keys Keys) Sign(header http.Header, id string, at time.Time, body []byte) {
	if len(keys) == 0 {
		return
	}
	timestamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(keys))
	for i, key := range keys {
		signatures[i] = versionPrefix + base64.StdEncoding.EncodeToString(key.digest(id, timestamp, body))
	}
	header.Set(HeaderID, id)
	header.Set(HeaderTimestamp, timestamp)
	header.Set(HeaderSignature, strings.Join(signatures, " "))
}

// Verify checks a message at now against every key. It returns nil, or an error that is ErrUnsigned, ErrBadSignature or
// ErrClockDiffers. The clock is looked at last, so that only who has a key learns ours. A message may be verified twice: whoever
// needs it once remembers ids for twice Tolerance.
func (keys Keys) Verify(header http.Header, body []byte, now time.Time) error {
	id, timestamp, signatures := header.Get(HeaderID), header.Get(HeaderTimestamp), header.Get(HeaderSignature)
	if id == "" || timestamp == "" || signatures == "" {
		return fmt.Errorf("%w: it needs the headers %s, %s and %s", ErrUnsigned, HeaderID, HeaderTimestamp, HeaderSignature)
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: %s is not a number of seconds", ErrBadSignature, HeaderTimestamp)
	}
	if !keys.made(signatures, id, timestamp, body) {
		return fmt.Errorf("%w: check that both sides have the same key, and that nothing between them changes the body", ErrBadSignature)
	}
	if sent := time.Unix(seconds, 0); sent.Before(now.Add(-Tolerance)) || sent.After(now.Add(Tolerance)) {
		return fmt.Errorf("%w by more than %v: it is %s here, and the message is of %s: set the clock that is wrong",
			ErrClockDiffers, Tolerance, now.UTC().Format(time.RFC3339), sent.UTC().Format(time.RFC3339))
	}
	return nil
}

// made tells whether one of the signatures was made with one of the keys. Digests are compared whole and in constant time.
func (keys Keys) made(signatures, id, timestamp string, body []byte) bool {
	var given [][]byte
	for signature := range strings.FieldsSeq(signatures) {
		encoded, ok := strings.CutPrefix(signature, versionPrefix)
		if !ok || len(given) == signaturesMax {
			continue
		}
		digest, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if err == nil && len(digest) == sha256.Size {
			given = append(given, digest)
		}
	}
	if len(given) == 0 {
		return false
	}
	for _, key := range keys {
		want := key.digest(id, timestamp, body)
		for _, digest := range given {
			if hmac.Equal(want, digest) {
				return true
			}
		}
	}
	return false
}

func (key Key) digest(id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, key.secret())
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}
