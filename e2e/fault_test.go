package e2e

import (
	"context"
	"math/rand/v2"
	"slices"
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
)

func (c card) String() string {
	return map[card]string{killed: "kill", frozen: "short stop", frozenLong: "long stop"}[c]
}

// Times of faults.
const (
	// chaosAppUpMax is how long an app lives at most once it is at work: a run that is cut off ten times in a row fails, as it should (C13),
	// and the server, which must take what is saved, is away half of the time.
	chaosAppUpMax = 2 * time.Second
	freezeMax     = 1500 * time.Millisecond
	freezeLongMin = shortLease + 500*time.Millisecond
	freezeLongMax = shortLease + 3*time.Second
	// A server that never works for longer than two heartbeat intervals finds no call cut, and picks nothing up (C1). So one in quietOneIn
	// of its lives is longer.
	quietMin, quietMax, quietOneIn = 3 * time.Second, 6 * time.Second, 8
	// deadMax is how long a process stays away after some of its kills; after most it comes back at once.
	deadMax = 300 * time.Millisecond
	// idleMax is how long a process may do nothing before it counts as at work all the same.
	idleMax = 10 * time.Second
	// healthWithin bounds one look at a process's health: others are looked at after it.
	healthWithin = 200 * time.Millisecond
)

// fault is one that was injected.
type fault struct {
	card     card
	pid      int
	from, to time.Time // to: when it went on, or a new process worked; zero while that has not come
}

// victim is a process at which faults are injected, all drawn from a seed. One goroutine uses it.
type victim struct {
	process *process
	random  *rand.Rand
	upMax   time.Duration // it is at work for so long at most
	quiet   bool          // some of its lives are longer
	deck    []card        // one of each kind at least, shuffled again once they are used up
	left    []card
	atWork  func(pid int) bool // it has done something since it started

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

func newVictim(p *process, random *rand.Rand, upMax time.Duration, deck []card) *victim {
	return &victim{
		process: p, random: random, upMax: upMax, deck: deck,
		atWork: func(int) bool { return true }, phase: up, since: time.Now(), counts: map[card]int{},
	}
}

// deck makes a deck of cards.
func deck(kills, stops, longStops int) []card {
	var cards []card
	for c, n := range map[card]int{killed: kills, frozen: stops, frozenLong: longStops} {
		for range n {
			cards = append(cards, c)
		}
	}
	return cards
}

// between draws a duration.
func (v *victim) between(least, most time.Duration) time.Duration {
	return least + time.Duration(v.random.Int64N(int64(most-least)))
}

// advance does to the process what is due, and never waits.
func (v *victim) advance(t *testing.T) {
	t.Helper()
	now := time.Now()
	if v.phase != down && v.process.hasEnded() {
		t.Fatalf("%s ended, and not by this test: %v\n%s", v.process.name, v.process.command.ProcessState, v.process.lastWords())
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
		case !v.until.IsZero() && !now.Before(v.until):
			v.strike(t)
		}
	case stopped:
		if !now.Before(v.until) {
			v.goOn(t)
		}
	case down:
		if !now.Before(v.until) {
			v.process.launch()
			v.become(starting, 0)
		}
	}
}

// life draws how long the process is left alone.
func (v *victim) life() time.Duration {
	if v.quiet && v.random.IntN(quietOneIn) == 0 {
		return v.between(quietMin, quietMax)
	}
	return v.between(0, v.upMax)
}

// work notes that the process works again.
func (v *victim) work() {
	v.faults[len(v.faults)-1].to = time.Now()
	v.become(up, 0)
}

func (v *victim) isHealthy(ctx context.Context) bool {
	limited, cancel := context.WithTimeout(ctx, healthWithin)
	defer cancel()
	return healthy(limited, v.process.health)
}

func (v *victim) become(s phase, length time.Duration) {
	v.phase, v.since, v.until = s, time.Now(), time.Time{}
	if length > 0 || s == down {
		v.until = v.since.Add(length)
	}
}

// strike injects the next fault.
func (v *victim) strike(t *testing.T) {
	t.Helper()
	if len(v.left) == 0 {
		v.left = append(v.left, v.deck...)
		v.random.Shuffle(len(v.left), func(i, j int) { v.left[i], v.left[j] = v.left[j], v.left[i] })
	}
	next := v.left[0]
	v.left = v.left[1:]
	switch next {
	case killed:
		v.kill()
	case frozen:
		v.stop(t, next, v.between(freezeMax/30, freezeMax))
	case frozenLong:
		v.stop(t, next, v.between(freezeLongMin, freezeLongMax))
	}
}

func (v *victim) kill() {
	v.counts[killed]++
	v.faults = append(v.faults, fault{card: killed, pid: v.process.pid(), from: time.Now()})
	v.process.kill()
	dead := time.Duration(0)
	if v.random.IntN(4) == 0 {
		dead = v.between(0, deadMax)
	}
	v.become(down, dead)
}

func (v *victim) stop(t *testing.T, c card, length time.Duration) {
	t.Helper()
	v.counts[c]++
	v.faults = append(v.faults, fault{card: c, pid: v.process.pid(), from: time.Now()})
	v.process.signal(syscall.SIGSTOP)
	v.become(stopped, length)
}

// goOn ends a stop; one in four processes never learns of it, since it is killed where it stands.
func (v *victim) goOn(t *testing.T) {
	t.Helper()
	if v.random.IntN(4) == 0 {
		v.faults[len(v.faults)-1].to = time.Now()
		v.kill()
		return
	}
	v.process.signal(syscall.SIGCONT)
	v.work()
}

// rest ends every fault and returns when the process works.
func (v *victim) rest(t *testing.T) {
	t.Helper()
	switch v.phase {
	case stopped:
		v.process.signal(syscall.SIGCONT)
	case down:
		v.process.launch()
	case starting, up:
	}
	eventually(t, within, v.process.name+" to answer again", func() bool { return v.isHealthy(t.Context()) })
	if v.phase != up {
		v.work()
	}
}

// complete tells that each kind of fault was injected.
func (v *victim) complete() bool {
	return v.counts[killed] > 0 && v.counts[frozen] > 0 && v.counts[frozenLong] > 0
}

// stoppedFor is how long a process stood still before an instant, in stops after which it had not yet gone on for long: not for
// unaware before from, nor between two of them.
func (v *victim) stoppedFor(pid int, from, to time.Time) (sum time.Duration) {
	awake := from.Add(-unaware)
	for _, f := range slices.Backward(v.faults) {
		if f.card == killed || f.pid != pid || !f.to.After(awake) || !f.from.Before(to) {
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
