package sim

import (
	"context"
	"slices"
	"time"
)

// strike lets a planned fault happen, and mends it after its time.
func (w *world) strike(f faultPlan) {
	w.report.fault(f.kind)
	w.disturb()
	defer w.disturb()
	s := w.services[f.app]
	switch f.kind {
	case nodeCrashes:
		if n := w.struck(f); n != nil {
			w.crash(n, f.silent, f.away)
		}
	case nodePauses:
		if n := w.struck(f); n != nil {
			w.trace.add(n.name, "pauses", f.lasts.String())
			defer w.hinder()()
			n.pause()
			rest(f.lasts)
			n.resume()
		}
	case nodeTaken:
		w.takeOver(f)
	case nodeStops:
		w.stopNode(f)
	case nodesClock:
		if n := w.struck(f); n != nil {
			by := f.lasts - 2*f.away
			w.trace.add(n.name, "clock steps", by.String())
			n.step(by)
		}
	case appCrashes:
		s.crash(f.silent, f.away)
	case appStops:
		s.stop(f.lasts, f.away)
	case appDeploys:
		w.mu.Lock()
		s.version++
		w.mu.Unlock()
		s.stop(f.lasts, f.away)
	case appPauses:
		if p := w.processAt(s.url); p != nil {
			w.trace.add(p.name, "pauses", f.lasts.String())
			p.pause()
			rest(f.lasts)
			p.resume()
		}
	case appParted:
		w.trace.add(s.name, "is cut off", f.lasts.String())
		w.setApart(s.name, true)
		rest(f.lasts)
		w.setApart(s.name, false)
	case runsLocked:
		w.holdLocks(f)
	case storeIsFull:
		w.setFull(true)
		rest(f.lasts)
		w.setFull(false)
	}
}

// struck is the node that a fault befalls; nil if none has the work.
func (w *world) struck(f faultPlan) *node { return w.worker(int(f.at)) }

// worker is one of the nodes that have the work, the same for the same number; nil if none has.
func (w *world) worker(nth int) *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.working) == 0 {
		return nil
	}
	return w.working[nth%len(w.working)]
}

func (w *world) setApart(app string, apart bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apart[app] = apart
}

func (w *world) setFull(full bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.full = full
}

// crash kills a node. Where it had the work, another is started after a while.
func (w *world) crash(n *node, silent bool, away time.Duration) {
	w.trace.add(n.name, "crashes", "")
	n.kill(silent)
	w.disturb()
	if !w.vacate(n) {
		return
	}
	w.beside.start(func() {
		rest(away)
		if !w.isOver() {
			w.startNode()
		}
	})
}

// vacate takes the work from a node; false if it did not have it.
func (w *world) vacate(n *node) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.zombie == n {
		w.zombie = nil
	}
	at := slices.Index(w.working, n)
	if at < 0 {
		return false
	}
	w.working = slices.Delete(w.working, at, at+1)
	return true
}

// takeOver pauses the node, starts another that takes it for dead, and lets it wake beside that one for a while.
func (w *world) takeOver(f faultPlan) {
	old := w.struck(f)
	if old == nil {
		return
	}
	w.trace.add(old.name, "pauses, and is taken for dead", f.lasts.String())
	old.pause()
	rest(f.away)
	if !w.vacate(old) {
		return
	}
	w.startNode()
	rest(f.lasts)
	w.mu.Lock()
	w.zombie = old
	w.mu.Unlock()
	w.trace.add(old.name, "wakes", "")
	w.disturb() // its successor may have died
	old.resume()
	rest(f.away)
	w.vacate(old)
	old.kill(f.silent)
}

// stopNode stops the node as an operator does, and starts another.
func (w *world) stopNode(f faultPlan) {
	n := w.struck(f)
	if n == nil || !w.vacate(n) {
		return
	}
	w.trace.add(n.name, "stops", "")
	n.stop()
	ctx, cancel := context.WithTimeout(context.Background(), f.lasts)
	defer cancel()
	select {
	case <-n.done:
	case <-ctx.Done():
	case <-n.died:
	}
	n.kill(false)
	rest(f.away)
	w.startNode()
}

// failure is one fault at a chosen place of a scenario, and no other.
type failure struct {
	what string // messages, reads or commits
	nth  int
	fate fate     // of the message
	disk diskFate // of the commit
}

// What can fail.
const (
	messages = "message"
	reads    = "read"
	commits  = "commit"
)

// chosen counts the things of a kind, and tells whether a scenario has chosen this one to fail.
func (w *world) chosen(what string) (*failure, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	nth := w.failable[what]
	w.failable[what]++
	f := w.options.fail
	return f, f != nil && f.what == what && f.nth == nth
}
