// Package id makes and checks the typed ids of runs, events and calls: TypeIDs (https://github.com/jetify-com/typeid, version 0.3),
// a prefix and a UUIDv7 in lower-case Crockford base32, so that ids sort by time.
package id

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"uuid"

	"github.com/oklog/ulid/v2"
)

// The prefixes.
const (
	Run      = "run"
	Event    = "evt"
	Call     = "call"
	Schedule = "sched"
	Delivery = "dlv"
	Move     = "move"
	Node     = "node"
)

// New draws an id.
func New(prefix string) string { return FromUUID(prefix, uuid.NewV7()) }

// FromUUID writes u as an id. A ULID's text is the suffix of a TypeID, but for its case.
func FromUUID(prefix string, u uuid.UUID) string {
	return prefix + "_" + strings.ToLower(ulid.ULID(u).String())
}

// Check tells whether text is an id of that prefix, in its one canonical form.
func Check(prefix, text string) error {
	suffix, ok := strings.CutPrefix(text, prefix+"_")
	if !ok {
		return fmt.Errorf("%q is not an id of the form %s_…", clip(text), prefix)
	}
	// It is compared with how it is written: ToUpper makes letters of ASCII out of others (ſ, for one).
	if u, err := ulid.ParseStrict(strings.ToUpper(suffix)); err != nil || suffix != strings.ToLower(u.String()) {
		return fmt.Errorf("%q is not an id: after %s_ come 26 characters of lower-case Crockford base32", clip(text), prefix)
	}
	return nil
}

// Secret draws a random text of 32 hexadecimal characters: 128 bits.
func Secret() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: it ends the process instead
	return hex.EncodeToString(b[:])
}

// clip keeps hostile texts out of errors: at most 64 bytes.
func clip(text string) string {
	if len(text) > 64 {
		return strings.ToValidUTF8(text[:64], "") + "…"
	}
	return text
}
