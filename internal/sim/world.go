package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nelkap/nelkap/internal/auth"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/signature"
	"github.com/nelkap/nelkap/internal/store"
)

// The keys of this world. Every API key and signature is checked, as everywhere.
const (
	apiKey     = "the-api-key-of-the-simulated-server"
	signingKey = "the-signing-key-of-the-simulated-server"
)

// endMax is how long runs may take to end once nothing goes wrong any more: the longest lease, every retry with its pause, and runs that start
// runs in an app that takes one call at a time, which were seen to go on for two hours.
const endMax = 24 * time.Hour

// Options say what a simulation runs on.
type Options struct {
	Store store.Store // empty
	Model store.Store // the model of a store, empty; the same as Store where that is the model
	Form  Form        // what the seed is a seed of; empty: everything
	fail  *failure    // one fault at a chosen place, and no other
	plan  *plan       // in the place of the seed's
}

// Result is what a simulation gives.
type Result struct {
	Violations []string
	world      *world
}

// Trace is what happened, a line for each thing.
func (r Result) Trace() string { return r.world.trace.String() }

// world is one simulation.
type world struct {
	chance  chance
	options Options
	plan    *plan
	store   store.Store
	witness *witness
	trace   *trace
	report  *Report
	keys    auth.Keys
	signing signature.Keys

	over   chan struct{} // closed at the end: what is dead or waits may go
	beside beside        // faults and restarts that go on

	services []*service
	paced    map[stepID]time.Time // when bodies end, in the place of their plans

	mu        sync.Mutex // guards what follows
	counters  map[string]int
	nodes     int
	all       []*node
	working   []*node // which have the work now
	zombie    *node   // which was taken for dead, and lives
	processes []*process
	lines     []*line
	offsetMax time.Duration // the furthest that any node's clock was ahead
	stepped   bool          // a node's clock has stepped
	faulty    bool
	full      bool
	locked    map[string]time.Time // until when somebody who is no server holds a lock on runs
	apart     map[string]bool      // apps that are cut off
	broken    []string
	offered   []offer        // callbacks that clients know
	failable  map[string]int // how many of each could have failed
	disturbed time.Time      // when something last kept a node from its work
	hindered  int            // what keeps the node that is alone at work from it now: another may wake beside it
}

// Run plays a seed. It must be called in a bubble of testing/synctest, with crypto/rand set to the seed.
func Run(seed uint64, o Options, report *Report) Result {
	w := &world{
		chance: chance(seed), options: o, plan: o.plan, store: o.Store, report: report, over: make(chan struct{}),
		counters: map[string]int{}, apart: map[string]bool{}, locked: map[string]time.Time{}, failable: map[string]int{}, trace: &trace{start: time.Now()},
	}
	if w.plan == nil {
		w.plan = newPlan(w.chance, cmp.Or(o.Form, FormWhole))
	}
	w.keys, _ = auth.New(apiKey)                   // long enough
	w.signing, _ = signature.ParseKeys(signingKey) // likewise
	w.witness = newWitness(w, o.Model)
	w.witness.calm = w.plan.calm() && o.fail == nil
	w.witness.spared = w.witness.calm || w.plan.nodesAlone() && o.fail == nil
	id.New(id.Run) // ids grow within a process, and this one's time has begun anew: the first ends what was before
	w.boot()
	w.live()
	w.calm()
	w.witness.finish()
	report.mu.Lock()
	report.Seeds++
	report.Time += time.Since(w.trace.start)
	report.mu.Unlock()
	w.end()
	return Result{w.broken, w}
}

// boot starts the apps and a node, and waits until they know each other.
func (w *world) boot() {
	for i := range w.plan.apps {
		s := &service{world: w, name: appName(i), url: "http://" + appName(i) + ".sim", described: map[int]described{}}
		w.services = append(w.services, s)
		s.start()
	}
	for range w.plan.nodes {
		w.startNode()
	}
	for range 100 {
		if w.allKnow() {
			return
		}
		rest(100 * time.Millisecond)
	}
	w.violation("boot", "the apps are not known after ten seconds")
}

// allKnow tells whether every node knows every app.
func (w *world) allKnow() bool {
	w.mu.Lock()
	working := slices.Clone(w.working)
	w.mu.Unlock()
	for _, n := range working {
		if !n.knows(len(w.services)) {
			return false
		}
	}
	return len(working) > 0
}

// knows tells whether the node knows so many apps, and can use them.
func (n *node) knows(apps int) bool {
	known := 0
	for _, info := range n.engine.Apps(engine.DefaultEnv) {
		if info.Name != "" && info.Reason == "" {
			known++
		}
	}
	return known == apps
}

// live lets clients ask for things, while things go wrong.
func (w *world) live() {
	w.setFaulty(w.options.fail == nil)
	for _, f := range w.plan.faults {
		w.beside.start(func() {
			rest(f.at)
			w.strike(f)
		})
	}
	for _, p := range w.plan.pauses {
		w.beside.start(func() { w.pauseSchedules(p) })
	}
	var clients sync.WaitGroup
	for i, operations := range w.plan.clients {
		c := w.newClient(i)
		clients.Go(func() { c.play(operations) })
	}
	clients.Wait()
}

// calm ends the faults, mends what is broken, and waits until every run has ended (W5).
func (w *world) calm() {
	w.beside.wait()
	w.setFaulty(false)
	w.beside.wait() // restarts that came in between
	w.trace.add("world", "nothing goes wrong any more", "")
	w.mu.Lock()
	zombie := w.zombie
	w.zombie = nil
	w.mu.Unlock()
	if zombie != nil {
		zombie.kill(false)
	}
	w.endSchedules()
	began := time.Now()
	for pause := 100 * time.Millisecond; len(w.witness.unfinished()) > 0; pause = min(2*pause, 5*time.Second) {
		if time.Since(began) > endMax {
			w.violation("W5", "%v after the last fault these have not ended: %v", endMax, w.witness.unfinished())
			return
		}
		rest(pause)
	}
	rest(2 * time.Second) // and nothing changes any more
	for range 20 {
		if len(w.witness.waitsLeft()) == 0 {
			return
		}
		rest(time.Second)
	}
	w.violation("W5", "long after the last run has ended these waits are open: %+v", w.witness.waitsLeft())
}

// end lets everything go. Whatever does not end within an hour never would.
func (w *world) end() {
	close(w.over)
	w.beside.wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for _, p := range w.processes {
		p.resume()
		if err := p.app.Shutdown(ctx); err != nil {
			w.violation("H6", "%s does not come to an end: %v", p.name, err)
		}
	}
	for _, n := range w.all {
		n.resume()
		n.stop()
		<-n.done
	}
	rest(time.Minute) // requests on their way
	id.New(id.Run)    // the next seed's first must find a later time than its own
	for _, l := range w.lines {
		l.close()
	}
}

// name counts the things of a name, and gives the next one's own name and dice.
func (w *world) name(of string) (string, *dice) {
	w.mu.Lock()
	nth := w.counters[of]
	w.counters[of]++
	w.mu.Unlock()
	return of + " " + strconv.Itoa(nth), w.chance.dice(of, nth)
}

// violation records that an invariant was broken.
func (w *world) violation(invariant, format string, args ...any) {
	text := invariant + ": " + fmt.Sprintf(format, args...)
	w.trace.add("VIOLATION", text, "")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = append(w.broken, text)
}

func (w *world) now() time.Time { return time.Now() }

// latest is the latest that any node's clock may have said until now.
func (w *world) latest() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.offsetMax)
}

// disturb notes that something keeps a node from its work now, or has done so until now.
func (w *world) disturb() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disturbed = time.Now()
}

// hinder notes that something keeps a node from its work until it is freed.
func (w *world) hinder() (free func()) {
	w.disturb()
	if w.plan.nodes > 1 {
		return w.disturb // the others go on
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hindered++
	return func() {
		w.disturb()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.hindered--
	}
}

// undisturbed is for how long nothing has kept a node from its work since all of those instants.
func (w *world) undisturbed(since ...time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hindered > 0 {
		return 0
	}
	latest := w.disturbed
	for _, at := range since {
		if at.After(latest) {
			latest = at
		}
	}
	return time.Since(latest)
}

// steady tells whether no clock has stepped, in a world where what is shown was saved now.
func (w *world) steady() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.stepped && w.paced == nil
}

func (w *world) isOver() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

func (w *world) setFaulty(faulty bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faulty = faulty
}

func (w *world) isFaulty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.faulty
}

func (w *world) isFull() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.full
}

// isShared tells whether two nodes may commit now.
func (w *world) isShared() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.zombie != nil || w.plan.nodes > 1
}

// parted tells whether an app's process is cut off from the server.
func (w *world) parted(a *actor) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return a.app != "" && w.apart[a.app]
}

func (w *world) urlOf(app string) string {
	for _, s := range w.services {
		if s.name == app {
			return s.url
		}
	}
	return ""
}
