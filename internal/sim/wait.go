package sim

import (
	"fmt"
	"time"

	"github.com/nelkap/nelkap/internal/workflow"
)

// kindParallel is the kind of a step plan that is no step: branches, side by side.
const kindParallel = "parallel"

// waitMax is the longest sleep and the longest that an event or a child is waited for, so that every run ends.
const waitMax = 20 * time.Second

// addWaits gives a workflow steps that are no plain body: waits, claims, branches, steps with a check or at most once.
func (p *plan) addWaits(d *dice, i int, f *workflowPlan) {
	if !d.odds(400) {
		return
	}
	m := &maker{plan: p, dice: d, higher: p.workflows[i+1:]}
	steps := f.versions[0]
	for range 1 + d.pick(4, 3, 2) {
		at := d.below(len(steps) + 1)
		steps = append(steps[:at:at], append([]*stepPlan{m.step(true)}, steps[at:]...)...)
	}
	f.versions[0] = steps
	if d.odds(150) {
		f.cancelOn = eventName(d.below(2))
	}
}

// maker makes the steps of one workflow, each with a name of its own but for claims.
type maker struct {
	plan   *plan
	dice   *dice
	higher []*workflowPlan // that it may invoke, so that invoking comes to an end
	made   int
}

func (m *maker) step(branches bool) *stepPlan {
	d := m.dice
	m.made++
	s := &stepPlan{retries: -1, fatal: d.odds(300)}
	if d.odds(150) {
		s.codeTakes = d.between(100*time.Microsecond, 2*time.Second)
	}
	parallel := 0
	if branches {
		parallel = 4
	}
	switch d.pick(4, 6, 3, 3, 2, 2, parallel) {
	case 0:
		s.kind, s.name, s.lasts = workflow.KindSleep, fmt.Sprintf("sleep %d", m.made), drawWait(d)
	case 1:
		m.event(s)
	case 2:
		m.invoke(s)
	case 3:
		m.claim(s, branches)
	case 4:
		s = newStep(d, fmt.Sprintf("checked %d", m.made))
		s.checked, s.leaves, s.codeThrows = true, d.odds(500), 0
	case 5:
		s = newStep(d, fmt.Sprintf("once %d", m.made))
		s.once, s.retries, s.codeThrows = true, -1, 0
	case 6:
		s.kind, s.name = kindParallel, fmt.Sprintf("parallel %d", m.made)
		for b := range 2 + d.below(2) {
			s.branches = append(s.branches, m.branch(b))
		}
	}
	return s
}

// branch is one of several: the first begins with a body, so that waits beside it are registered while it runs (H3).
func (m *maker) branch(nth int) []*stepPlan {
	d := m.dice
	var steps []*stepPlan
	for s := range 1 + d.below(2) {
		if s == 0 && nth == 0 || d.odds(300) {
			m.made++
			body := newStep(d, fmt.Sprintf("beside %d", m.made))
			body.codeThrows = 0
			steps = append(steps, body)
			continue
		}
		steps = append(steps, m.step(false))
	}
	return steps
}

func (m *maker) event(s *stepPlan) {
	d := m.dice
	s.kind, s.name, s.lasts = workflow.KindEvent, fmt.Sprintf("event %d", m.made), d.between(time.Second, waitMax).Truncate(time.Millisecond)
	s.event, s.sinceWait = eventName(d.below(2)), d.odds(300)
	if d.odds(300) {
		s.tag, s.filtered = tagName(d.below(2)), d.odds(300)
	}
}

// invoke waits for a workflow with a higher number; a workflow invokes once at most, so that runs stay few. Where it can't, it sleeps.
func (m *maker) invoke(s *stepPlan) {
	d := m.dice
	if len(m.higher) == 0 {
		s.kind, s.name, s.lasts = workflow.KindSleep, fmt.Sprintf("sleep %d", m.made), drawWait(d)
		return
	}
	s.kind, s.name, s.invokes = workflow.KindInvoke, fmt.Sprintf("invoke %d", m.made), m.higher[d.below(len(m.higher))]
	if d.odds(400) {
		s.lasts = d.between(50*time.Millisecond, waitMax).Truncate(time.Millisecond)
	}
	m.higher = nil
}

// claim claims a key. Outside branches those of one key have one name: a run may ask twice for the same.
func (m *maker) claim(s *stepPlan, common bool) {
	d := m.dice
	s.kind, s.key = workflow.KindClaim, fmt.Sprintf("key %d", d.below(2))
	s.name = "claim of " + s.key
	if !common {
		s.name = fmt.Sprintf("claim %d", m.made)
	}
	switch d.pick(2, 2, 2) {
	case 1:
		s.untilFailed = true
	case 2:
		s.lasts = d.between(time.Millisecond, 8*time.Second).Truncate(time.Millisecond)
	}
}

func drawWait(d *dice) time.Duration {
	least, most := time.Millisecond, 50*time.Millisecond
	switch d.pick(1, 2, 2) {
	case 1:
		least, most = 50*time.Millisecond, 3*time.Second
	case 2:
		least, most = 3*time.Second, waitMax
	}
	return d.between(least, most).Truncate(time.Millisecond)
}

// vary lets some starts come later, and gives some events a tag.
func vary(d *dice, operations []operation) {
	for i := range operations {
		switch o := &operations[i]; {
		case o.kind == opStart && d.odds(200):
			o.delay = d.between(time.Millisecond, 5*time.Second)
		case o.kind == opEmit && o.key == "" && d.odds(500):
			o.tag = tagName(d.below(2))
		}
	}
}

func tagName(i int) string { return fmt.Sprintf("tag %d", i) }

// each visits a workflow's steps of all versions, also those in branches.
func (f *workflowPlan) each(visit func(*stepPlan)) {
	var walk func(steps []*stepPlan)
	walk = func(steps []*stepPlan) {
		for _, s := range steps {
			visit(s)
			for _, b := range s.branches {
				walk(b)
			}
		}
	}
	for _, steps := range f.versions {
		walk(steps)
	}
}

// branched tells whether a workflow has branches.
func (p *plan) branched(workflow string) (branched bool) {
	for _, f := range p.workflows {
		if f.name == workflow {
			f.each(func(s *stepPlan) { branched = branched || s.kind == kindParallel })
		}
	}
	return branched
}
