package e2e

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
)

const (
	envChaosRuns     = "E2E_CHAOS_RUNS"
	severalKillsStd  = 12
	severalCalm      = 4 * time.Second
	severalCalmLong  = 20 * time.Second
	severalPickUpMax = singlePickUpMax + 15*time.Second // a call that nobody hears is kept for so long when its node is lost
)

// How long the parts live and are away in the long form, and how much shorter all that is in the short one.
var (
	nodeLives     = lengths{5 * time.Second, 40 * time.Second}
	nodeStops     = lengths{shortLease + 500*time.Millisecond, 16 * time.Second} // also for longer than others wait for it
	nodeCuts      = lengths{500 * time.Millisecond, 14 * time.Second}
	nodeAbsences  = lengths{0, 18 * time.Second}
	databaseLives = lengths{5 * time.Second, 20 * time.Second}
	databaseAway  = lengths{0, 3 * time.Second}
	appLives      = lengths{5 * time.Second, 40 * time.Second}

	shortNodeLives     = lengths{500 * time.Millisecond, 4 * time.Second}
	shortNodeStops     = lengths{shortLease + 500*time.Millisecond, shortLease + 2*time.Second}
	shortNodeCuts      = lengths{500 * time.Millisecond, 3 * time.Second}
	shortDatabaseLives = lengths{3 * time.Second, 8 * time.Second}
	shortAppLives      = lengths{500 * time.Millisecond, 4 * time.Second}
)

// Three nodes on one Postgres, both apps and Postgres itself are killed; nodes and apps are frozen, and nodes cut off from Postgres by a
// network that drops packets, each by itself, while clients do all that clients do. What is checked is what is checked of one server.
func TestSeveralNodesLoseAndRepeatNothingWhateverHappensToThem(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes most of a minute")
	}
	t.Parallel()
	long := os.Getenv(envChaosKills) != ""
	spec := chaosSpec{
		seed: uint64(number(t, envSeed, int(time.Now().UnixNano()%1_000_000))), kills: number(t, envChaosKills, severalKillsStd),
		runs: number(t, envChaosRuns, 0), calm: severalCalm, say: t.Logf, pickUpMax: severalPickUpMax,
	}
	if long { // somebody watches
		spec.calm, spec.say = severalCalmLong, func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	}
	again := fmt.Sprintf("make chaos STORE=postgres KILLS=%d RUNS=%d SEED=%d", spec.kills, spec.runs, spec.seed)
	spec.say("seed %d: %s draws the same faults and requests again", spec.seed, again)
	c := newSeveral(t, spec, long)
	c.play()
	sentence(t, []*chaos{c}, spec.say, again)
}

// newSeveral makes the chaos of several nodes.
func newSeveral(t *testing.T, spec chaosSpec, long bool) *chaos {
	t.Helper()
	server := newPostgres(t)
	var lines []*pgtest.Proxy
	var urls []string
	for range nodeCount {
		p := server.Proxy(t)
		lines, urls = append(lines, p), append(urls, p.URL(database))
	}
	several := newCluster(t, server, clusterSpec{apps: languages, flags: []string{"--lease", shortLease.String()}, urls: urls})
	c := newChaos(several.world, spec)
	killable := &databaseProcess{t: t, server: server}
	t.Cleanup(killable.busy.Wait)
	stored := newVictim(killable, c.stream(0), databaseLives, deck(1))
	stored.away = databaseAway
	c.serverVictims = []*victim{stored}
	for i, n := range several.nodes {
		v := newVictim(n, c.stream(1+i), nodeLives, deck(2, 1, 1, 1))
		v.kind, v.supervised, v.line = "the nodes", true, lines[i]
		v.stops, v.cuts, v.away = nodeStops, nodeCuts, nodeAbsences
		c.serverVictims = append(c.serverVictims, v)
	}
	c.addApps(appLives)
	if !long {
		c.hurry()
	}
	return c
}

// hurry shortens lives and faults.
func (c *chaos) hurry() {
	for _, v := range c.victims {
		v.lives, v.deck = shortAppLives, deck(2, 1, 1)
	}
	for i, v := range c.serverVictims {
		v.lives, v.stops, v.cuts, v.away, v.deck = shortNodeLives, shortNodeStops, shortNodeCuts, absences, deck(2, 1, 1, 1)
		if i == 0 {
			v.lives, v.deck = shortDatabaseLives, deck(1)
		}
	}
}

// databaseProcess has Postgres killed, and recovered. One goroutine uses it.
type databaseProcess struct {
	t      *testing.T
	server *pgtest.Server
	lives  int
	result chan error // of a recovery that is under way; nil for none
	busy   sync.WaitGroup
}

func (d *databaseProcess) called() string { return "Postgres" }

func (d *databaseProcess) pid() int { return d.lives }

func (d *databaseProcess) works(context.Context) bool {
	if d.result == nil {
		return true
	}
	select {
	case err := <-d.result:
		d.result = nil
		if err != nil {
			d.t.Fatalf("Postgres does not recover: %v", err)
		}
		return true
	default:
		return false
	}
}

func (d *databaseProcess) hasEnded() bool { return false }

func (d *databaseProcess) lastWords() []byte { return nil }

func (d *databaseProcess) signal(s syscall.Signal) {
	d.t.Fatalf("Postgres is killed only, not sent %v", s)
}

func (d *databaseProcess) kill() {
	if err := d.server.Crash(); err != nil {
		d.t.Fatal(err)
	}
}

func (d *databaseProcess) launch() {
	d.lives++
	result := make(chan error, 1)
	d.result = result
	d.busy.Go(func() { result <- d.server.Recover() })
}
