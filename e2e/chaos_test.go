package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nelkap/nelkap/e2e/history"
	"github.com/nelkap/nelkap/e2e/plan"
	"github.com/nelkap/nelkap/internal/apitype"
)

const (
	clientsPerApp = 4
	// firstClient is the number of the first client's stream of chance; the processes have the first ones.
	firstClient = 1_000
	// endWithin is when every run must have ended once the faults are over: a lease, the pauses of an app that could not be used (a
	// minute at most), and the half minute that a cancelled run grants bodies that were in flight (Z1).
	endWithin = 2 * time.Minute
	// chaosBeat is how often the processes are looked at.
	chaosBeat = 5 * time.Millisecond
	// progressEvery is how often the long form says how far it is.
	progressEvery = 30 * time.Second
	// bodyTime is how long a body that has begun is taken to be under way: its process may be killed before its result is saved.
	bodyTime = 2 * chaosBeat
)

// chaos is a world in which every process is killed and frozen while clients work, and the record of it.
type chaos struct {
	*world
	chaosSpec
	begun         time.Time
	serverVictims []*victim // all that is no app
	appVictims    map[string]*victim
	victims       []*victim // both
	history       *history.History
	caller        caller
	asked         *asked
	keys          atomic.Int64
	events        atomic.Int64
	counts        struct{ started, found, replays, emits, hooks, reads, cancels atomic.Int64 }
	lasted        time.Duration                // of the faults
	rates         struct{ calm, held float64 } // runs that clients saw end, a second
	settled       time.Duration                // from the last fault to the last run's end
	judged        *judge
	verdict       history.Verdict
	bodyAt        map[int]time.Time // by process: when it last began a body
	looked        int               // marks that were looked at for that

	mu         sync.Mutex
	violations []string // guarded by mu
}

func (c *chaos) violate(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.violations = append(c.violations, fmt.Sprintf(format, args...))
}

// chaosSpec says what a chaos is to be.
type chaosSpec struct {
	seed  uint64
	kills int           // that are asked for
	runs  int           // that must have ended
	calm  time.Duration // without faults, at first
	say   func(format string, args ...any)
	// pickUpMax bounds a pick-up once servers and app work and are left alone.
	pickUpMax time.Duration
}

// newSingle makes the chaos of one server on the embedded store.
func newSingle(t *testing.T, spec chaosSpec) *chaos {
	t.Helper()
	w := newWorld(t)
	flags := []string{"--lease", shortLease.String()}
	for _, language := range languages {
		addr := freeAddress(t)
		w.app(language, addr, keyed(oldKey, "")...).start()
		flags = append(flags, "--app", appURL(addr))
	}
	w.serve(oldKey, flags...).start()
	for _, language := range languages {
		w.ready(language)
	}
	c := newChaos(w, spec)
	server := newVictim(c.server, c.stream(0), lengths{0, serverUpMax}, deck(18, 3, 1))
	server.quiet = true
	c.serverVictims = []*victim{server}
	c.addApps(lengths{0, chaosAppUpMax})
	return c
}

// newChaos makes a chaos of what has started. Its victims are to be added, the apps last.
func newChaos(w *world, spec chaosSpec) *chaos {
	c := &chaos{world: w, chaosSpec: spec, history: history.New(), asked: newAsked(), bodyAt: map[int]time.Time{}, appVictims: map[string]*victim{}}
	transport := &http.Transport{MaxIdleConnsPerHost: len(languages) * clientsPerApp}
	w.t.Cleanup(transport.CloseIdleConnections)
	c.caller.url, c.caller.key, c.caller.http = c.url, c.key, &http.Client{Transport: transport}
	return c
}

// addApps makes the apps victims, which live for so long.
func (c *chaos) addApps(lives lengths) {
	c.victims = slices.Clone(c.serverVictims)
	for i, language := range languages {
		app := newVictim(c.apps[language], c.stream(len(c.serverVictims)+i), lives, deck(4, 1, 1))
		app.atWork, app.inBody = c.hasRunBody, c.isInBody
		c.appVictims[language] = app
		c.victims = append(c.victims, app)
	}
}

// stream is one of the streams of chance that the seed gives.
func (c *chaos) stream(number int) *rand.Rand { return rand.New(rand.NewPCG(c.seed, uint64(number))) }

// lastBody is when a process last began a body; zero: it has not.
func (c *chaos) lastBody(pid int) time.Time {
	marks := c.marks()
	for _, m := range marks[c.looked:] {
		if m.Kind == plan.MarkBody {
			c.bodyAt[m.PID] = m.Time()
		}
	}
	c.looked = len(marks)
	return c.bodyAt[pid]
}

// hasRunBody tells whether a process has run a body.
func (c *chaos) hasRunBody(pid int) bool { return !c.lastBody(pid).IsZero() }

// isInBody tells whether a process has just begun a body.
func (c *chaos) isInBody(pid int) bool { return time.Since(c.lastBody(pid)) < bodyTime }

// killed is how many processes were killed.
func (c *chaos) killed() (n int) {
	for _, v := range c.victims {
		n += v.counts[killed]
	}
	return n
}

// missing are the faults that were never injected, by the kind of their victims.
func (c *chaos) missing() (list []string) {
	counts := map[string]map[card]int{}
	for _, v := range c.victims {
		if counts[v.kind] == nil {
			counts[v.kind] = map[card]int{}
		}
		for kind, n := range v.counts {
			counts[v.kind][kind] += n
		}
	}
	for _, v := range c.victims {
		for _, kind := range v.deck {
			if what := fmt.Sprintf("%s of %s", kind, v.kind); counts[v.kind][kind] == 0 && !slices.Contains(list, what) {
				list = append(list, what)
			}
		}
	}
	return list
}

// strike kills and freezes until it is enough.
func (c *chaos) strike() {
	beat := time.NewTicker(chaosBeat)
	defer beat.Stop()
	spoken := time.Now()
	for c.killed() < c.kills || len(c.missing()) > 0 || c.asked.over() < c.runs {
		select {
		case <-beat.C:
		case <-c.t.Context().Done():
			return
		}
		for _, v := range c.victims {
			v.advance(c.t)
		}
		if time.Since(spoken) > progressEvery {
			spoken = time.Now()
			c.say("%v, seed %d: %d of %d kills, %d runs started, %d seen to end, %d reads, %d violations", time.Since(c.begun).Round(time.Second), c.seed,
				c.killed(), c.kills, c.counts.started.Load(), c.asked.over(), c.counts.reads.Load(), c.violated())
		}
	}
	for _, v := range c.victims {
		v.rest(c.t)
	}
}

func (c *chaos) violated() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.violations)
}

// play has the faults and the clients' work happen, and judges.
func (c *chaos) play() {
	stop, clients := make(chan struct{}), sync.WaitGroup{}
	c.begun = time.Now()
	for i := range len(languages) * clientsPerApp {
		l := &loader{chaos: c, app: languages[i%len(languages)], random: c.stream(firstClient + i)}
		clients.Go(func() { l.work(stop) })
	}
	if c.calm > 0 {
		eventually(c.t, within, "the first run to end", func() bool { return c.asked.over() > 0 })
		c.rates.calm = c.rate(func() { pass(c.t.Context(), c.calm) })
	}
	c.rates.held = c.rate(func() {
		struck := time.Now()
		c.strike()
		c.lasted = time.Since(struck)
	})
	close(stop)
	clients.Wait()
	calm := time.Now()
	runs := c.allRuns()
	c.settled = time.Since(calm)
	c.judged = c.judge(runs)
	c.verdict = c.history.Check()
	for _, violation := range c.verdict.Violations {
		c.violate("%s", violation)
	}
	for _, what := range c.missing() {
		c.violate("a fault was never injected: %s", what)
	}
}

// rate is how many runs clients see end in a second of something.
func (c *chaos) rate(during func()) float64 {
	before, begun := c.asked.over(), time.Now()
	during()
	return float64(c.asked.over()-before) / time.Since(begun).Seconds()
}

// allRuns waits until every run has ended, and gives them all. A run may start others until it has ended, so the list is read again
// until it shows no run under way. One that does not end in time is a violation.
func (c *chaos) allRuns() map[string]apitype.Run {
	deadline := time.Now().Add(endWithin)
	for {
		runs, under := c.listRuns()
		if len(under) == 0 {
			return runs
		}
		for _, run := range under {
			if c.lastOf(run, deadline).EndedAt == nil {
				return runs
			}
		}
	}
}

// listRuns reads the whole list, and says which runs are under way.
func (c *chaos) listRuns() (runs map[string]apitype.Run, under []apitype.Run) {
	runs = map[string]apitype.Run{}
	path := "/v1/runs?limit=100"
	for {
		var h heard
		eventually(c.t, within, "the list of runs", func() bool {
			h = c.try(http.MethodGet, path, nil)
			return h.status != 0
		})
		list, ok := read[apitype.List[apitype.Run]](c, h, "the list of runs")
		if !ok {
			return runs, nil
		}
		for _, run := range list.Data {
			c.saw(h.span, run)
			runs[run.ID] = run
			if run.EndedAt == nil {
				under = append(under, run)
			}
		}
		if list.NextCursor == nil {
			return runs, under
		}
		path = "/v1/runs?limit=100&cursor=" + *list.NextCursor
	}
}

// lastOf waits for a run's end.
func (c *chaos) lastOf(run apitype.Run, deadline time.Time) apitype.Run {
	for run.EndedAt == nil {
		if time.Now().After(deadline) {
			c.violate("run %s has not ended %v after the faults: %s\nThe server's log has of it:\n%s\nIts app's log has of it:\n%s",
				run.ID, endWithin, asJSON(c.t, run), c.said(run.ID), c.apps[run.App].linesWith(run.ID))
			return run
		}
		h := c.try(http.MethodGet, fmt.Sprintf("/v1/runs/%s?waitMs=%d", run.ID, waitEndMs), nil)
		if h.status == 0 {
			continue
		}
		shown, ok := read[apitype.Run](c, h, run.ID)
		if !ok {
			return run
		}
		c.saw(h.span, shown)
		run = shown
	}
	return run
}
