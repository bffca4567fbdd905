package doctor

import (
	"errors"
	"io/fs"
)

// Directory is what is known of the embedded store's directory. internal/store/sqlite finds it out, field by field.
type Directory struct {
	File        string
	Bytes       int64
	IsStore     bool
	Schema      int64
	SchemaKnown int64
	OthersRead  bool
}

// NoDirectory is the check of a directory that can't be looked at.
func NoDirectory(err error) []Check {
	c := ok("store", "%v", err)
	if errors.Is(err, fs.ErrNotExist) {
		return []Check{c.fail("give the directory that the server has as --store or --data; if no server has begun there yet, start it")}
	}
	return []Check{c.fail("run doctor as the server's user")}
}

// Checks says of a directory what is good and what is not.
func (d Directory) Checks() []Check {
	if !d.IsStore {
		return []Check{ok("store", "%s is no store", d.File).fail("restore it from a backup, and find out what wrote there")}
	}
	const mib = 1 << 20
	checks := []Check{ok("store", "%s, %d MiB; one server uses it at a time", d.File, (d.Bytes+mib-1)/mib)}
	schema := ok("schema", "version %d", d.Schema)
	switch {
	case d.Schema > d.SchemaKnown:
		schema = ok("schema", "version %d; this program knows %d", d.Schema, d.SchemaKnown).fail("use the nelkap that the server was last started with, or a newer one")
	case d.Schema < d.SchemaKnown:
		schema = ok("schema", "version %d; a server of this version takes it to %d when it starts", d.Schema, d.SchemaKnown)
	}
	permissions := ok("permissions", "others on the machine can't read the store")
	if d.OthersRead {
		permissions = ok("permissions", "others on the machine can read the store").warn("chmod 700 its directory: payloads and results are in it")
	}
	return append(checks, schema, permissions, ok("replication", "what was acknowledged survives a crash and a power cut, and not the loss of the disk").warn("back it up; for more, keep the data in Postgres with a synchronous standby"))
}
