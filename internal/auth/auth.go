// Package auth decides who may use the API. It keeps no key: only its SHA-256, which is enough for keys that are random and long.
package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"
)

// KeyBytesMin is the least length of an API key's text.
const KeyBytesMin = 32

// Keys are the API keys that are accepted. The zero value has none, and then everybody is allowed: only for dev.
type Keys struct{ sums [][sha256.Size]byte }

// New takes keys as their texts. It refuses one that is too short to be random.
func New(keys ...string) (Keys, error) {
	var k Keys
	for _, key := range keys {
		if len(key) < KeyBytesMin {
			return Keys{}, fmt.Errorf("an API key has at least %d characters, and this one has %d: make one with `openssl rand -hex 32`", KeyBytesMin, len(key))
		}
		k.sums = append(k.sums, sha256.Sum256([]byte(key)))
	}
	return k, nil
}

// Allow judges an Authorization header. Digests are compared whole and in constant time.
func (k Keys) Allow(header string) bool {
	if len(k.sums) == 0 {
		return true
	}
	scheme, key, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(key)))
	allowed := 0
	for i := range k.sums {
		allowed |= subtle.ConstantTimeCompare(sum[:], k.sums[i][:])
	}
	return allowed == 1
}
