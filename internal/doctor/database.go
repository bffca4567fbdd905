package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/nelkap/nelkap/internal/store"
)

// versionMin is the oldest Postgres that its makers still mend.
const versionMin = 15

// nodesFew is how many nodes there should be room for: during a rolling upgrade there is one more than usual.
const nodesFew = 3

// transactionLong is from when on an open transaction is told: vacuums come a minute apart.
const transactionLong = 10 * time.Minute

// Database is what is known of a Postgres database. internal/store/postgres finds it out, field by field; internal/store/postgres.Facts
// says what each is.
type Database struct {
	Place       string
	Version     int64
	VersionText string
	Pooled      bool

	ReadOnly  bool
	CanChange bool
	CanCreate bool

	Schema      int64
	SchemaFrom  int64
	SchemaKnown int64
	Phase       store.Phase

	SynchronousCommit, Fsync, FullPageWrites, Autovacuum string
	SynchronousStandbys                                  string
	SynchronousNow                                       int64
	SeesStandbys                                         bool

	ConnectionsMax, ConnectionsReserved, ConnectionsUsed int64
	PoolMax                                              int64

	OldestTransaction time.Duration
	OldestHolder      string

	Ahead time.Duration
}

// Unreachable is the check of a store that can't be looked at. The error shows no password.
func Unreachable(err error) []Check {
	return []Check{ok("store", "%v", err).fail("check its address, its user and password, and that it lets this machine in")}
}

// Checks says of a database what is good and what is not.
func (d Database) Checks() []Check {
	reached := ok("database", "%s answers, Postgres %s", d.Place, d.VersionText)
	if d.Version/10_000 < versionMin {
		reached = reached.fail(fmt.Sprintf("upgrade it: Nelkap needs Postgres %d or newer", versionMin))
	}
	checks := append([]Check{reached, d.schema()}, d.phase()...)
	checks = append(checks, d.writes(), d.disk(), d.pages(), d.commits(), d.replication(), d.connections(), clock("database clock", "the database's", d.Ahead))
	vacuum := ok("autovacuum", "autovacuum = %s", d.Autovacuum)
	if d.Autovacuum != "on" {
		vacuum = vacuum.warn("switch it on: rows that changed take up space for ever, and plans grow stale")
	}
	checks = append(checks, vacuum, d.transactions())
	if d.Pooled {
		checks = append(checks, ok("pooler", "a pooler stands between, which is fine: transaction mode suffices"))
	}
	return checks
}

func (d Database) schema() Check {
	switch {
	case d.Schema == 0:
		return ok("schema", "there is none yet: the first server makes it")
	case d.SchemaFrom > d.SchemaKnown:
		return ok("schema", "version %d, which servers of version %d and newer can use; this program knows %d", d.Schema, d.SchemaFrom, d.SchemaKnown).fail("start a newer nelkap: this one can't use the database any more")
	case d.Schema > d.SchemaKnown:
		return ok("schema", "version %d; this program knows %d, and can use it still", d.Schema, d.SchemaKnown).warn("finish the upgrade: start the newer nelkap everywhere")
	case d.Schema < d.SchemaKnown:
		return ok("schema", "version %d; a server of this version takes it to %d when it starts", d.Schema, d.SchemaKnown)
	default:
		return ok("schema", "version %d", d.Schema)
	}
}

// phase says what keeps servers from using the database (N5); nothing where nothing does.
func (d Database) phase() []Check {
	switch d.Phase {
	case store.PhaseIncoming:
		return []Check{ok("phase", "a store was on its way to %s, and has not arrived: no server may use it", d.Place).
			fail("go on with the nelkap migrate that was broken off, --from its directory; if the move was given up with --abort, drop this database")}
	case store.PhaseHeld:
		return []Check{ok("phase", "%s was restored, and its runs are held", d.Place).warn(goOn("--store and the database's URL"))}
	default:
		return nil
	}
}

func (d Database) writes() Check {
	switch {
	case d.ReadOnly:
		return ok("writing", "this server takes no writes: it is a standby, or set to read only").fail("name the primary, or all servers of the cluster: postgres://USER@HOST1,HOST2/DATABASE")
	case !d.CanChange:
		return ok("writing", "the user may not change the tables").fail("have the database owned by Nelkap's user, or grant SELECT, INSERT, UPDATE and DELETE on its tables")
	case !d.CanCreate:
		return ok("writing", "the user may change the tables, and make none").warn("a newer server makes tables when it starts: have the database owned by Nelkap's user, or grant CREATE on its schema for upgrades")
	default:
		return ok("writing", "it takes writes, and the user may write")
	}
}

func (d Database) disk() Check {
	c := ok("fsync", "fsync = %s", d.Fsync)
	if d.Fsync != "on" {
		return c.fail("set fsync = on: a power cut loses what was acknowledged, and can leave the whole database unreadable")
	}
	return c
}

func (d Database) pages() Check {
	c := ok("full_page_writes", "full_page_writes = %s", d.FullPageWrites)
	if d.FullPageWrites != "on" {
		return c.fail("set full_page_writes = on: after a power cut a page may be half old and half new. (Where the file system writes each page whole, such as ZFS, this is no fault.)")
	}
	return c
}

func (d Database) commits() Check {
	c := ok("synchronous_commit", "synchronous_commit = %s", d.SynchronousCommit)
	switch {
	case d.SynchronousCommit == "off":
		c.Detail += ", which Nelkap sets on for what it acknowledges"
	case d.SynchronousStandbys != "" && (d.SynchronousCommit == "local" || d.SynchronousCommit == "remote_write"):
		return c.warn("set it on: commits do not wait until a standby has them on disk, so a failover can lose what was acknowledged")
	}
	return c
}

// replication says which is the case (N6).
func (d Database) replication() Check {
	const survives = "what was acknowledged survives the loss of a Nelkap node"
	waits := d.SynchronousCommit != "local" && d.SynchronousCommit != "remote_write"
	switch {
	case strings.TrimSpace(d.SynchronousStandbys) == "":
		return ok("replication", "%s, and not the loss of the database server: no standby is synchronous", survives).warn("for both, replicate synchronously (Patroni: synchronous_mode), unless the disk beneath does so, as some hosted databases' disks do")
	case !waits:
		return ok("replication", "%s, and not surely that of the database server", survives).warn("set synchronous_commit = on")
	case !d.SeesStandbys:
		return ok("replication", "%s and, as long as a standby follows, that of the database server (synchronous_standby_names = '%s'); this user may not see whether one does", survives, d.SynchronousStandbys).warn("GRANT pg_monitor to the user, so that doctor sees it")
	case d.SynchronousNow == 0:
		return ok("replication", "no standby follows that synchronous_standby_names = '%s' means, and commits wait for one", d.SynchronousStandbys).fail("start the standby, or set synchronous_standby_names for those that run")
	default:
		return ok("replication", "%s and that of the database server: %d standbys are synchronous", survives, d.SynchronousNow)
	}
}

// transactions says whether rows that have changed can be removed: what looks for what is due goes past all that can't.
func (d Database) transactions() Check {
	if d.OldestTransaction < transactionLong {
		return ok("transactions", "none has been open for long")
	}
	return ok("transactions", "that of %s has been open for %v", d.OldestHolder, d.OldestTransaction.Round(time.Second)).
		warn("end it, and take long dumps and reports from a standby: while it is open no row that has changed since goes, and what is due is found ever more slowly")
}

func (d Database) connections() Check {
	free := d.ConnectionsMax - d.ConnectionsReserved
	c := ok("connections", "%d of %d are in use; a node like this machine takes at most %d, so there is room for %d nodes and nothing else", d.ConnectionsUsed, free, d.PoolMax, free/max(1, d.PoolMax))
	const advice = "raise max_connections, set pool_max_conns=N in the database's URL, or put a transaction pooler between"
	switch {
	case free < d.PoolMax:
		return c.fail(advice)
	case free < nodesFew*d.PoolMax && !d.Pooled:
		return c.warn(advice)
	default:
		return c
	}
}
