package move

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"

	"github.com/nelkap/nelkap/internal/store"
)

// sum is what is compared of a table: how many rows it has, and the sum of their SHA-256, of which the first half counts. It is the same in
// whatever order the rows come, so that no side has to sort them, and another when a row is lost, doubled or changed. Its size is that of
// one row, however many there are.
type sum struct {
	rows      int64
	high, low uint64
}

func (s *sum) add(row store.Row) {
	h := sha256.New()
	var head [9]byte
	for i := range row {
		v := &row[i]
		head[0] = byte(v.Kind)
		switch v.Kind {
		case store.ValueInt:
			binary.BigEndian.PutUint64(head[1:], uint64(v.Int))
			h.Write(head[:])
		case store.ValueBytes:
			binary.BigEndian.PutUint64(head[1:], uint64(len(v.Bytes)))
			h.Write(head[:])
			h.Write(v.Bytes)
		default:
			h.Write(head[:1])
		}
	}
	var digest [sha256.Size]byte
	h.Sum(digest[:0])
	var carry uint64
	s.low, carry = bits.Add64(s.low, binary.BigEndian.Uint64(digest[8:]), 0)
	s.high, _ = bits.Add64(s.high, binary.BigEndian.Uint64(digest[:]), carry)
	s.rows++
}
