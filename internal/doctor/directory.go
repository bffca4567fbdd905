package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/nelkap/nelkap/internal/store"
)

// Directory is what is known of the embedded store's directory. internal/store/sqlite finds it out, field by field.
type Directory struct {
	File        string
	Bytes       int64
	IsStore     bool
	Schema      int64
	SchemaKnown int64
	OthersRead  bool
	Phase       store.Phase
	Place       string
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
	checks := append(d.phase(), ok("store", "%s, %d MiB; one server uses it at a time", d.File, (d.Bytes+mib-1)/mib))
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

// phase says what keeps servers from going on with the store (N5); nothing where nothing does.
func (d Directory) phase() []Check {
	dir := filepath.Dir(d.File)
	switch d.Phase {
	case store.PhaseHeld:
		return []Check{ok("phase", "%s was restored from a backup, and its runs are held", dir).warn(goOn("--data " + dir))}
	case store.PhaseMoving:
		return []Check{ok("phase", "%s is on its way to %s, and no server may use it", dir, d.Place).
			fail(fmt.Sprintf("go on with nelkap migrate --from %s --to and that database's URL, or go back with nelkap migrate --from %[1]s --abort", dir))}
	case store.PhaseMoved:
		return []Check{ok("phase", "%s has moved, and no server uses it any more: its runs are in %s now", dir, d.Place).
			warn("start the server with --store and that database's URL, and have doctor look there")}
	default:
		return nil
	}
}

// goOn is what to do about a store that is held, which the command is given so.
func goOn(flags string) string {
	return fmt.Sprintf("a server on it answers reads and cancels alone, since steps that ran after the backup would run again. If they may, stop the server, run nelkap restore --go-on %s, and start it again", flags)
}
