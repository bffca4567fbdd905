package contact

import (
	"slices"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// keptBytesMax bounds what the calls of a destination keep that the server has not accepted: sixteen results of the largest size. An
// app that can't reach its server for hours must not die of what it keeps for it (C11).
const keptBytesMax = 64 << 20

// keeping is what calls keep that the server has not accepted.
type keeping struct {
	calls []*Call // the one that has kept something for the longest comes first
	bytes int     // of all
}

// Keep says how many bytes of results c keeps that the server has not accepted. When the calls keep too much together, those that
// have kept theirs for the longest hear that they have ended: to the server that is a cut, and their unsaved steps run again.
func (d *Destination) Keep(c *Call, bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keeping.set(c, bytes)
	for d.keeping.bytes > keptBytesMax {
		oldest := d.keeping.calls[0]
		d.keeping.set(oldest, 0)
		d.settings.Logger.Warn("nelkap: too much waits for a server that can't be reached; the oldest results are let go, and their steps run again",
			"url", d.address, "call", oldest.ID)
		// On its own: the caller holds the lock of its playing, and this takes that of another one.
		go oldest.News(&wire.News{Call: oldest.ID, Nonce: oldest.Nonce, Status: wire.StatusEnded})
	}
}

// set notes what c keeps.
func (k *keeping) set(c *Call, bytes int) {
	k.bytes += bytes - c.kept
	switch {
	case c.kept == 0 && bytes > 0:
		k.calls = append(k.calls, c)
	case c.kept > 0 && bytes == 0:
		at := slices.Index(k.calls, c)
		k.calls = slices.Delete(k.calls, at, at+1)
	}
	c.kept = bytes
}
