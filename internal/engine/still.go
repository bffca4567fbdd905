package engine

import (
	"slices"
	"time"
)

// A process that stood still (stopped, swapped out, its machine asleep) could hear nobody, while its timers went on: when it goes on
// they all fire before it has read what was sent meanwhile. Such a time counts against no call (C2).
const (
	pulseEvery = time.Second
	// stillMin is how late a pulse must be. A busy machine is late by less; a shorter standstill leaves room in every question (C1).
	stillMin = time.Second
)

// runPulse notices when the process stood still, and when another has gone on in its place.
func (e *Engine) runPulse() {
	for {
		pause(e.ctx, pulseEvery)
		if e.ctx.Err() != nil {
			return
		}
		e.mu.Lock()
		e.awake()
		silent := e.silent()
		e.mu.Unlock()
		e.followAll(silent)
	}
}

// silent are the runs of calls that this node holds and whose lease is over by all that it knows. Its timers cut such a call, unless the
// store has another by now: where a process stood still and a second one took its place, nobody tells the one what the other has done.
// Engine.mu is held.
func (e *Engine) silent() (runs []string) {
	for _, l := range e.live {
		if l.held && time.Since(e.contactUntil(l)) > pulseEvery {
			runs = append(runs, l.runID)
		}
	}
	slices.Sort(runs)
	return runs
}

// awake takes a standstill, if there was one, out of every lease, and asks anew what was asked before it. Whoever is about to find a
// call cut asks it first: a timer may fire before the pulse. Engine.mu is held.
func (e *Engine) awake() {
	now := time.Now()
	still := now.Sub(e.pulse) - pulseEvery
	e.pulse = now
	if still < stillMin {
		return
	}
	for _, l := range inOrder(e.live) {
		if l.heard = l.heard.Add(still); l.heard.After(now) {
			l.heard = now
		}
		if l.question != nil {
			e.ask(l, l.wait)
		}
	}
	e.log.Warn("this process stood still; calls are given that time", "for", still.Round(time.Millisecond))
}
