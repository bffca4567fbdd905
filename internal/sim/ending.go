package sim

import (
	"fmt"
	"time"

	"github.com/nelkap/nelkap/internal/workflow"
)

// Form is what a seed is a seed of. What plans have learned to draw since is in the later forms alone, so that seeds keep what they meant.
type Form string

// The forms.
const (
	FormPlain Form = "plain" // only steps with bodies
	FormWaits Form = "waits" // also waits, claims, branches, checks
	FormNodes Form = "nodes" // all of that, with two or three nodes at work at once
	FormSwept Form = "swept" // all of that, with one to three nodes that drop runs a while after their end, and with schedules
	FormStale Form = "stale" // all of that, with one or two nodes, whose reads are often old when they arrive
	FormBroad Form = "broad" // all of that, with one or two nodes, and what plans learned later: see broad.go
	FormWhole Form = "whole" // also undos, handlers, restarts, callbacks, workflows that run once, lines of logs
	// FormChanging is all of that, with one or two nodes, where more changes on a deploy: see changing.go.
	FormChanging Form = "changing"
	FormLocked   Form = "locked" // all of that, with one to three nodes, where somebody locks runs for a while: see rowlock.go
)

// Forms are all of them.
var Forms = []Form{FormPlain, FormWaits, FormNodes, FormSwept, FormStale, FormBroad, FormChanging, FormLocked, FormWhole}

// Whole tells whether seeds of a form have endings.
func (f Form) Whole() bool {
	return f != FormPlain && f != FormWaits
}

// addEndings gives a workflow what happens between its end and its final status, and what begins it again.
func (p *plan) addEndings(d *dice, i int, f *workflowPlan) {
	m := &maker{plan: p, dice: d, higher: p.workflows[i+1:]}
	if d.odds(350) {
		f.undoes(m)
	}
	if d.odds(250) {
		f.onFailure = m.handler()
	}
	if d.odds(250) {
		f.onCancel = m.handler()
	}
	if d.odds(250) {
		f.restarts = 1 + d.below(2)
	}
	f.once = d.odds(40)
	f.straysInClosing = d.odds(60)
	if d.odds(150) {
		m.made++
		s := &stepPlan{kind: workflow.KindCallback, name: fmt.Sprintf("callback %d", m.made), retries: -1, fatal: d.odds(300), gap: drawWait(d) / 4}
		s.lasts = d.between(time.Second, waitMax).Truncate(time.Millisecond)
		f.insert(d, s)
	}
	if d.odds(250) {
		f.logs = true
		f.each(func(s *stepPlan) { f.logs = f.logs && s.kind != kindParallel })
	}
}

// undoes puts undos among a workflow's steps, also into branches. Some share their name.
func (f *workflowPlan) undoes(m *maker) {
	d := m.dice
	for range 1 + d.pick(3, 2, 1) {
		m.made++
		s := &stepPlan{kind: workflow.KindUndo, name: fmt.Sprintf("undo %d", m.made), retries: -1, fatal: true, heeds: d.odds(700)}
		if d.odds(200) {
			s.name = "undo"
		}
		switch d.pick(6, 3, 1) {
		case 0:
			s.takes = d.between(10*time.Microsecond, 5*time.Millisecond)
		case 1:
			s.takes = d.between(5*time.Millisecond, 2*time.Second)
		case 2:
			s.takes = d.between(2*time.Second, 12*time.Second)
		}
		if d.odds(250) {
			s.throws = 1 + d.below(2)
		}
		f.insert(d, s)
	}
}

// insert puts a step at any place among the others: at the top, or in a branch.
func (f *workflowPlan) insert(d *dice, s *stepPlan) {
	steps := f.versions[0]
	at := d.below(len(steps) + 1)
	if at < len(steps) && steps[at].kind == kindParallel && s.name != "undo" && d.odds(600) {
		branch := &steps[at].branches[d.below(len(steps[at].branches))]
		at := d.below(len(*branch) + 1)
		*branch = append((*branch)[:at:at], append([]*stepPlan{s}, (*branch)[at:]...)...)
		return
	}
	f.versions[0] = append(steps[:at:at], append([]*stepPlan{s}, steps[at:]...)...)
}

// handler makes the steps of a handler. Its code throws at times, and at times for good.
func (m *maker) handler() []*stepPlan {
	d := m.dice
	steps := []*stepPlan{}
	for range d.pick(2, 4, 2) {
		m.made++
		var s *stepPlan
		switch d.pick(5, 3, 1, 1) {
		case 0:
			s = newStep(d, fmt.Sprintf("tell %d", m.made))
		case 1:
			s = &stepPlan{kind: workflow.KindSleep, name: fmt.Sprintf("rest %d", m.made), lasts: drawWait(d) / 2, retries: -1}
		case 2:
			s = &stepPlan{retries: -1}
			m.event(s)
		case 3:
			s = &stepPlan{retries: -1}
			m.invoke(s)
		}
		s.fatal, s.codeNever = d.odds(200), s.codeNever && d.odds(500)
		steps = append(steps, s)
	}
	return steps
}

// varyEnds has clients cancel by force, replay from a step and with another payload, and post to callbacks.
func varyEnds(d *dice, operations []operation) {
	for i := range operations {
		switch o := &operations[i]; o.kind {
		case opCancel:
			o.force = d.odds(200)
		case opReplay:
			if d.odds(500) {
				o.from = 1 + d.below(6)
			}
			if d.odds(250) {
				o.tag = replayedTag + string(rune('0'+d.below(2)))
			}
		case opSteps, opRead:
			if d.odds(500) {
				o.kind = opPost
			}
		}
	}
}
