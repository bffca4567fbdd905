package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// card is what is done to a process next.
type card int

const (
	killed     card = iota // SIGKILL, and started again
	frozen                 // SIGSTOP for less than a lease, then SIGCONT
	frozenLong             // SIGSTOP for longer than a lease
	severed                // nothing gets through to its database, as where a network drops packets
)

func (c card) String() string {
	return [...]string{"kill", "short stop", "long stop", "cut off from the database"}[c]
}

// target is what faults are injected into.
type target interface {
	called() string
	pid() int // another one after each start
	works(ctx context.Context) bool
	hasEnded() bool
	lastWords() []byte
	kill()
	launch() // does not wait
	signal(s syscall.Signal)
}

// line is what lies between a process and its database.
type line interface {
	Hold()
	Release()
}

// lengths bound how long something lasts.
type lengths struct{ least, most time.Duration }

// Times of faults.
const (
	// chaosAppUpMax is how long an app lives at most once it is at work: a run that is cut off ten times in a row fails, as it should (C13),
	// and the server, which must take what is saved, is away half of the time.
	chaosAppUpMax = 2 * time.Second
	freezeMax     = 1500 * time.Millisecond
	// A server that never works for longer than two heartbeat intervals finds no call cut, and picks nothing up (C1). So one in quietOneIn
	// of its lives is longer.
	quietOneIn = 8
	// idleMax is how long a process may do nothing before it counts as at work all the same.
	idleMax = 10 * time.Second
	// restartAfter is the pause of whoever supervises a process that ended by itself.
	restartAfter = 200 * time.Millisecond
	// healthWithin bounds one look at a process's health: others are looked at after it.
	healthWithin = 200 * time.Millisecond
)

// What is so of most victims.
var (
	quietLives  = lengths{3 * time.Second, 6 * time.Second}
	freezes     = lengths{freezeMax / 30, freezeMax}
	longFreezes = lengths{shortLease + 500*time.Millisecond, shortLease + 3*time.Second}
	// absences are how long a process stays away after some of its kills; after most it comes back at once.
	absences = lengths{0, 300 * time.Millisecond}
)

// fault is one that was injected.
type fault struct {
	card     card
	pid      int
	from, to time.Time // to: when it went on, or a new process worked; zero while that has not come
}

// victim is a process at which faults are injected, all drawn from a seed. One goroutine uses it.
type victim struct {
	process target
	random  *rand.Rand
	kind    string  // those of one kind are to meet each fault among them
	lives   lengths // for how long it is at work
	quiet   bool    // some of its lives are longer
	stops   lengths // frozenLong
	cuts    lengths // severed
	away    lengths // after some kills
	line    line    // nil where nothing is severed
	deck    []card  // one of each kind at least, shuffled again once they are used up
	left    []card
	atWork  func(pid int) bool // it has done something since it started
	inBody  func(pid int) bool // it is about what its first kill should cut off: with few kills all of them might come between
	// supervised: where it ends by itself while it starts, since what it needs is away, it is started again.
	supervised bool

	phase  phase
	since  time.Time // when the phase began
	until  time.Time // when it ends; zero while that is not known
	counts map[card]int
	faults []fault
}

type phase int

const (
	starting phase = iota
	up
	stopped
	down
)

func newVictim(p target, random *rand.Rand, lives lengths, deck []card) *victim {
	return &victim{
		process: p, random: random, kind: p.called(), lives: lives, stops: longFreezes, away: absences, deck: deck,
		atWork: func(int) bool { return true }, inBody: func(int) bool { return true }, phase: up, since: time.Now(), counts: map[card]int{},
	}
}

// deck makes a deck of so many cards of each kind, in the order of the kinds.
func deck(counts ...int) []card {
	var made []card
	for c, n := range counts {
		for range n {
			made = append(made, card(c))
		}
	}
	return made
}

// draw draws a duration.
func (v *victim) draw(l lengths) time.Duration {
	return l.least + time.Duration(v.random.Int64N(int64(l.most-l.least)))
}

// advance does to the process what is due, and never waits.
func (v *victim) advance(t *testing.T) {
	t.Helper()
	now := time.Now()
	if v.phase != down && v.process.hasEnded() {
		if v.phase != starting || !v.supervised {
			t.Fatalf("%s ended, and not by this test:\n%s", v.process.called(), v.process.lastWords())
		}
		v.become(down, restartAfter)
	}
	switch v.phase {
	case starting:
		if v.isHealthy(t.Context()) {
			v.work()
		}
	case up:
		switch {
		case v.until.IsZero() && (v.atWork(v.process.pid()) || now.Sub(v.since) > idleMax):
			v.until = now.Add(v.life())
		case v.isDue(now):
			v.strike()
		}
	case stopped:
		if !now.Before(v.until) {
			v.goOn()
		}
	case down:
		if !now.Before(v.until) {
			v.process.launch()
			v.become(starting, 0)
		}
	}
}

// isDue tells whether the process has lived for long enough.
func (v *victim) isDue(now time.Time) bool {
	if v.until.IsZero() || now.Before(v.until) {
		return false
	}
	return v.next() != killed || v.counts[killed] > 0 || v.inBody(v.process.pid()) || now.Sub(v.until) > idleMax
}

// next is the fault that comes next.
func (v *victim) next() card {
	if len(v.left) == 0 {
		v.left = append(v.left, v.deck...)
		v.random.Shuffle(len(v.left), func(i, j int) { v.left[i], v.left[j] = v.left[j], v.left[i] })
	}
	return v.left[0]
}

// life draws how long the process is left alone.
func (v *victim) life() time.Duration {
	if v.quiet && v.random.IntN(quietOneIn) == 0 {
		return v.draw(quietLives)
	}
	return v.draw(v.lives)
}

// work notes that the process works again.
func (v *victim) work() {
	v.faults[len(v.faults)-1].to = time.Now()
	v.become(up, 0)
}

func (v *victim) isHealthy(ctx context.Context) bool {
	limited, cancel := context.WithTimeout(ctx, healthWithin)
	defer cancel()
	return v.process.works(limited)
}

func (v *victim) become(s phase, length time.Duration) {
	v.phase, v.since, v.until = s, time.Now(), time.Time{}
	if length > 0 || s == down {
		v.until = v.since.Add(length)
	}
}

// strike injects the next fault.
func (v *victim) strike() {
	next := v.next()
	v.left = v.left[1:]
	switch next {
	case killed:
		v.kill()
	case frozen:
		v.stop(next, v.draw(freezes))
	case frozenLong:
		v.stop(next, v.draw(v.stops))
	case severed:
		v.stop(next, v.draw(v.cuts))
	}
}

func (v *victim) kill() {
	v.counts[killed]++
	v.faults = append(v.faults, fault{card: killed, pid: v.process.pid(), from: time.Now()})
	v.process.kill()
	dead := time.Duration(0)
	if v.random.IntN(4) == 0 {
		dead = v.draw(v.away)
	}
	v.become(down, dead)
}

func (v *victim) stop(c card, length time.Duration) {
	v.counts[c]++
	v.faults = append(v.faults, fault{card: c, pid: v.process.pid(), from: time.Now()})
	if c == severed {
		v.line.Hold()
	} else {
		v.process.signal(syscall.SIGSTOP)
	}
	v.become(stopped, length)
}

// goOn ends a stop; one in four processes never learns of it, since it is killed where it stands.
func (v *victim) goOn() {
	if v.random.IntN(4) == 0 {
		v.faults[len(v.faults)-1].to = time.Now()
		v.kill()
		if v.line != nil {
			v.line.Release()
		}
		return
	}
	v.free()
	v.work()
}

// free lets a process that was stopped go on.
func (v *victim) free() {
	if v.faults[len(v.faults)-1].card == severed {
		v.line.Release()
	} else {
		v.process.signal(syscall.SIGCONT)
	}
}

// rest ends every fault and returns when the process works.
func (v *victim) rest(t *testing.T) {
	t.Helper()
	switch v.phase {
	case stopped:
		v.free()
	case down:
		v.process.launch()
	case starting, up:
	}
	eventually(t, within, v.process.called()+" to answer again", func() bool {
		if v.supervised && v.process.hasEnded() {
			v.process.launch()
		}
		return v.isHealthy(t.Context())
	})
	if v.phase != up {
		v.work()
	}
}

// tell says how often what was done to it.
func (v *victim) tell(counts map[card]int) string {
	said := []string{fmt.Sprintf("%d kills", counts[killed])}
	for _, each := range []struct {
		card  card
		times lengths
		what  string
	}{{frozen, freezes, "stops"}, {frozenLong, v.stops, "stops"}, {severed, v.cuts, "cuts of its way to the database"}} {
		if slices.Contains(v.deck, each.card) {
			said = append(said, fmt.Sprintf("%d %s of %v to %v", counts[each.card], each.what, each.times.least, each.times.most))
		}
	}
	return v.process.called() + ": " + strings.Join(said, ", ")
}

// stoppedFor is how long a process stood still before an instant, in stops after which it had not yet gone on for long: not for
// unaware before from, nor between two of them.
func (v *victim) stoppedFor(pid int, from, to time.Time) (sum time.Duration) {
	awake := from.Add(-unaware)
	for _, f := range slices.Backward(v.faults) {
		if f.card == killed || f.card == severed || f.pid != pid || !f.to.After(awake) || !f.from.Before(to) {
			continue
		}
		sum += f.to.Sub(f.from)
		if before := f.from.Add(-unaware); before.Before(awake) {
			awake = before
		}
	}
	return sum
}

// killOf finds the kill of a process.
func (v *victim) killOf(pid int) (time.Time, bool) {
	for _, f := range v.faults {
		if f.card == killed && f.pid == pid {
			return f.from, true
		}
	}
	return time.Time{}, false
}

// cutsIn counts the faults between two instants that may cut calls off.
func (v *victim) cutsIn(from, to time.Time) (n int) {
	for _, f := range v.faults {
		if f.card != frozen && f.from.Before(to) && f.from.After(from) {
			n++
		}
	}
	return n
}

// workedSince is when the process began to work for the last time before an instant; zero if it always has.
func (v *victim) workedSince(at time.Time) (since time.Time) {
	for _, f := range v.faults {
		if f.from.Before(at) {
			since = f.to
		}
	}
	return since
}
