// Package typeid draws the ids of runs and events that the SDK knows before the server does (K6).
//
// An id is a TypeID: a prefix, an underscore and a UUIDv7 in 26 characters of Crockford's base32 in lower case, so that ids
// sort by the time they were drawn. It decides nothing else, and reads no id.
package typeid

import (
	"crypto/rand"
	"time"
)

const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// New draws an id such as run_01h455vb4pex5vsknk084sn02q.
func New(prefix string) string {
	var id [16]byte
	rand.Read(id[6:]) // never fails, by its contract
	ms := uint64(time.Now().UnixMilli())
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6] = id[6]&0x0f | 0x70 // version 7
	id[8] = id[8]&0x3f | 0x80 // the variant of RFC 9562
	return prefix + "_" + encode(id)
}

// encode writes 128 bits as 26 groups of five, the first of which has two zero bits in front.
func encode(id [16]byte) string {
	var out [26]byte
	var bits uint16
	have := 2
	at := 0
	for i := range out {
		if have < 5 {
			bits = bits<<8 | uint16(id[at])
			at++
			have += 8
		}
		have -= 5
		out[i] = alphabet[bits>>have&31]
	}
	return string(out[:])
}
