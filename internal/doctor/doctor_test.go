package doctor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/doctor"
	"github.com/nelkap/nelkap/internal/store"
)

// good is a database that has nothing wrong.
func good() doctor.Database {
	return doctor.Database{
		Place: "postgres db:5432/nelkap", Version: 170_002, VersionText: "17.2", CanChange: true, CanCreate: true, Schema: 3, SchemaFrom: 2, SchemaKnown: 3,
		SynchronousCommit: "on", Fsync: "on", FullPageWrites: "on", Autovacuum: "on", SynchronousStandbys: "ANY 1 (a, b)", SynchronousNow: 2, SeesStandbys: true,
		ConnectionsMax: 100, ConnectionsReserved: 3, ConnectionsUsed: 9, PoolMax: 8, Ahead: -20 * time.Millisecond,
	}
}

// what is all that is not well, each as "status name: advice".
func what(checks []doctor.Check) string {
	var list []string
	for _, c := range checks {
		if c.Detail == "" || (c.Status == doctor.OK) != (c.Advice == "") {
			list = append(list, "half said: "+c.Name)
		}
		if c.Status != doctor.OK {
			list = append(list, string(c.Status)+" "+c.Name+": "+c.Advice)
		}
	}
	return strings.Join(list, "\n")
}

// N6 among others: each thing that can be wrong is said alone, as bad as it is, with what to do.
func TestADatabaseIsJudged(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*doctor.Database)
		want   string // the beginning of what is said; empty: all is well
		advice string
	}{
		"all is well":                           {func(*doctor.Database) {}, "", ""},
		"a pooler":                              {func(d *doctor.Database) { d.Pooled = true }, "", ""},
		"no schema yet":                         {func(d *doctor.Database) { d.Schema, d.SchemaFrom = 0, 0 }, "", ""},
		"an older schema":                       {func(d *doctor.Database) { d.Schema = 2 }, "", ""},
		"synchronous_commit off":                {func(d *doctor.Database) { d.SynchronousCommit = "off" }, "", ""},
		"an old Postgres":                       {func(d *doctor.Database) { d.Version, d.VersionText = 140_020, "14.20" }, "fail database", "15 or newer"},
		"the oldest":                            {func(d *doctor.Database) { d.Version, d.VersionText = 150_000, "15.0" }, "", ""},
		"a newer schema that still works":       {func(d *doctor.Database) { d.Schema, d.SchemaFrom = 4, 3 }, "warn schema", "finish the upgrade"},
		"a newer schema":                        {func(d *doctor.Database) { d.Schema, d.SchemaFrom = 5, 4 }, "fail schema", "newer nelkap"},
		"a store that has not arrived":          {func(d *doctor.Database) { d.Phase = store.PhaseIncoming }, "fail phase", "nelkap migrate"},
		"a store that was restored":             {func(d *doctor.Database) { d.Phase = store.PhaseHeld }, "warn phase", "--go-on --store"},
		"a standby":                             {func(d *doctor.Database) { d.ReadOnly = true }, "fail writing", "HOST1,HOST2"},
		"no rights":                             {func(d *doctor.Database) { d.CanChange = false }, "fail writing", "grant"},
		"no right to upgrade":                   {func(d *doctor.Database) { d.CanCreate = false }, "warn writing", "upgrades"},
		"no fsync":                              {func(d *doctor.Database) { d.Fsync = "off" }, "fail fsync", "fsync = on"},
		"torn pages":                            {func(d *doctor.Database) { d.FullPageWrites = "off" }, "fail full_page_writes", "ZFS"},
		"no autovacuum":                         {func(d *doctor.Database) { d.Autovacuum = "off" }, "warn autovacuum", "on"},
		"one database server (N6)":              {func(d *doctor.Database) { d.SynchronousStandbys, d.SynchronousNow = "", 0 }, "warn replication", "synchronous_mode"},
		"a standby that has gone (N6)":          {func(d *doctor.Database) { d.SynchronousNow = 0 }, "fail replication", "start the standby"},
		"a standby that nobody may see":         {func(d *doctor.Database) { d.SynchronousNow, d.SeesStandbys = 0, false }, "warn replication", "pg_monitor"},
		"commits that wait for no standby (N6)": {func(d *doctor.Database) { d.SynchronousCommit = "local" }, "warn synchronous_commit", "failover can lose"},
		"too few connections":                   {func(d *doctor.Database) { d.ConnectionsMax = 10 }, "fail connections", "pool_max_conns"},
		"few connections":                       {func(d *doctor.Database) { d.ConnectionsMax = 26 }, "warn connections", "max_connections"},
		"enough":                                {func(d *doctor.Database) { d.ConnectionsMax = 27 }, "", ""},
		"few behind a pooler":                   {func(d *doctor.Database) { d.ConnectionsMax, d.Pooled = 26, true }, "", ""},
		"a transaction that is open for hours":  {func(d *doctor.Database) { d.OldestTransaction, d.OldestHolder = 3*time.Hour, "session 7 (psql)" }, "warn transactions", "standby"},
		"one that takes its time":               {func(d *doctor.Database) { d.OldestTransaction, d.OldestHolder = 9*time.Minute, "session 7 (psql)" }, "", ""},
		"a clock that is odd":                   {func(d *doctor.Database) { d.Ahead = 11 * time.Second }, "warn database clock", "NTP"},
		"a clock that is wrong":                 {func(d *doctor.Database) { d.Ahead = -301 * time.Second }, "fail database clock", "NTP"},
	} {
		t.Run(name, func(t *testing.T) {
			d := good()
			c.change(&d)
			got := what(d.Checks())
			if !strings.HasPrefix(got, c.want) || (c.want == "") != (got == "") || !strings.Contains(got, c.advice) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if name != "commits that wait for no standby (N6)" && strings.Contains(got, "\n") {
				t.Errorf("more than one thing is said:\n%s", got)
			}
		})
	}
}

// N6: it says in so many words what survives.
func TestItSaysWhetherTheLossOfANodeIncludesTheDatabase(t *testing.T) {
	say := func(change func(*doctor.Database)) string {
		d := good()
		change(&d)
		for _, c := range d.Checks() {
			if c.Name == "replication" {
				return c.Detail
			}
		}
		return ""
	}
	for want, change := range map[string]func(*doctor.Database){
		"and that of the database server: 2":    func(*doctor.Database) {},
		"and not the loss of the database":      func(d *doctor.Database) { d.SynchronousStandbys = "" },
		"and not surely that of the database":   func(d *doctor.Database) { d.SynchronousCommit = "remote_write" },
		"as long as a standby follows, that of": func(d *doctor.Database) { d.SeesStandbys = false },
	} {
		if got := say(change); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestADirectoryIsJudged(t *testing.T) {
	for want, d := range map[string]doctor.Directory{
		"warn replication: back":      {IsStore: true, Schema: 2, SchemaKnown: 2},
		"fail store: restore":         {},
		"warn phase: a server on it":  {IsStore: true, Schema: 2, SchemaKnown: 2, File: "d/nelkap.db", Phase: store.PhaseHeld},
		"warn phase: start the":       {IsStore: true, Schema: 2, SchemaKnown: 2, File: "d/nelkap.db", Phase: store.PhaseMoved, Place: "postgres db"},
		"fail phase: go on with":      {IsStore: true, Schema: 2, SchemaKnown: 2, File: "d/nelkap.db", Phase: store.PhaseMoving, Place: "postgres db"},
		"fail schema: use the nelkap": {IsStore: true, Schema: 3, SchemaKnown: 2},
		"warn permissions: chmod 700": {IsStore: true, Schema: 1, SchemaKnown: 2, OthersRead: true},
	} {
		if got := what(d.Checks()); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// server is what a server answers.
type server struct {
	ready client.Readiness
	err   error
	apps  []apitype.App
	refus error
}

func (s server) Ready(context.Context) (client.Readiness, error) { return s.ready, s.err }
func (s server) Apps(context.Context) (apitype.List[apitype.App], error) {
	return apitype.List[apitype.App]{Data: s.apps}, s.refus
}

func TestAServerIsJudged(t *testing.T) {
	name, reason := "shop", "it does not answer"
	now := func(ahead time.Duration) client.Readiness {
		return client.Readiness{Status: "ready", Version: "1.0.0", At: time.Now().Add(ahead).Truncate(time.Second)}
	}
	held := now(0)
	held.Held = true
	usable := []apitype.App{{Name: &name, URL: "http://shop/"}}
	for situation, c := range map[string]struct {
		server server
		want   string
	}{
		"all is well":         {server{ready: now(0), apps: usable}, ""},
		"no clock":            {server{ready: client.Readiness{Version: "1.0.0"}, apps: usable}, ""},
		"another version":     {server{ready: client.Readiness{Version: "0.9.0"}, apps: usable}, "warn server: this command has version 1.0.0"},
		"nobody":              {server{err: client.ErrUnreachable}, "fail server: start the server"},
		"not ready":           {server{err: &apitype.Problem{Status: 503, Code: "not_ready", Detail: "the store can't be read now"}}, "fail server: see the server's log"},
		"a clock behind":      {server{ready: now(-20 * time.Second), apps: usable}, "warn clock: let both"},
		"a clock ahead":       {server{ready: now(302 * time.Second), apps: usable}, "fail clock: let both"},
		"a wrong key":         {server{ready: now(0), refus: &apitype.Problem{Status: 401}}, "fail key: set NELKAP_API_KEY"},
		"a failure":           {server{ready: now(0), refus: errors.New("broken")}, "fail apps: see"},
		"held":                {server{ready: held, apps: usable}, "warn phase: a server on it answers reads and cancels alone"},
		"no app":              {server{ready: now(0)}, "warn apps: make one known"},
		"an app that is away": {server{ready: now(0), apps: []apitype.App{{Name: &name, Reason: &reason}}}, "fail app: its runs wait"},
		"an app of later":     {server{ready: now(0), apps: []apitype.App{{Name: &name, Problems: []string{"x"}}}}, "warn app: see nelkap apps"},
	} {
		t.Run(situation, func(t *testing.T) {
			if got := what(doctor.Server(t.Context(), c.server, "http://nelkap", "1.0.0")); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") || strings.Contains(got, "\n") {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
