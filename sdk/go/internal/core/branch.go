package core

import "time"

// Branch is one line of the code: it has at most one step open. The workflow's function is the first; Fork makes others. One of them
// runs at a time, until it rests: what they do outside bodies comes in one order, so that counts are the same on every call (S1).
type Branch struct {
	Index int   // in its fork
	Of    *Fork // nil for the workflow's function
	Shell any   // belongs to whoever drives the machine

	open   *Step
	fork   *Fork // the branches that it waits for
	item   *item // nil outside a Map
	last   bool  // its code said that nothing comes after the step that it asked for
	ended  bool
	closed bool // nobody waits for it: its code goes no further
}

// Join says when a fork is over.
type Join int

// The joins.
const (
	JoinAll  Join = iota // when all have ended, or one has failed
	JoinRace             // when one has ended
)

// Fork is several branches that another one waits for. Whoever forks sets the exported fields but Decided.
type Fork struct {
	Join    Join
	Size    int  // how many branches there are
	Limit   int  // how many run at once; 0: all
	Indexed bool // it is a Map: steps are counted by the branch's index
	Shell   any  // belongs to whoever drives the machine

	// Decided is the branch whose end decided, once the fork is over: the first that failed, or that ended a race. Nil: none failed.
	Decided *Branch

	parent   *Branch
	branches []*Branch // that were started, by index
	ended    int
	blocks   map[use][]int // where the numbers of the n-th such use in an item begin
}

// item is a branch's place in a Map: its steps are counted by the item's index, whichever item comes to a name first (S1).
type item struct {
	of    *Fork
	index int
	uses  map[use]int
}

// use is what an item of a Map asks for. An undo takes two numbers, so that its uses are counted apart.
type use struct {
	name string
	undo bool
}

// turn is what the code does next: a branch that starts, or a fork's parent that goes on.
type turn struct {
	start *Branch
	join  *Fork
}

// Fork is the code of parent starting branches and waiting for them, which it does until DoJoin. Its errors are those of Ask.
func (m *Machine) Fork(parent *Branch, f *Fork, now time.Time) error {
	if err := m.mayAsk(parent); err != nil {
		return err
	}
	f.parent, parent.fork = parent, f
	size := f.Size
	if f.Limit > 0 {
		size = min(size, f.Limit)
	}
	for range size {
		m.enlist(f)
	}
	m.busy--
	m.advance(now)
	return nil
}

// enlist lets the fork's next branch start when its turn comes.
func (m *Machine) enlist(f *Fork) {
	b := &Branch{Index: len(f.branches), Of: f, item: f.parent.item}
	if f.Indexed {
		b.item = &item{of: f, index: b.Index}
	}
	f.branches = append(f.branches, b)
	m.ready = append(m.ready, turn{start: b})
}

// BranchEnded says that the function of b has returned or panicked.
func (m *Machine) BranchEnded(b *Branch, failed bool, now time.Time) {
	if b.closed || b.ended || m.phase != phasePlaying {
		return
	}
	b.ended = true
	if b.open != nil || b.fork != nil { // a goroutine of the user's asked for it, and gave the branch's turn away
		m.close(b, false)
	} else {
		m.busy--
	}
	f := b.Of
	f.ended++
	switch {
	case f.Join == JoinRace || failed:
		m.decide(f, b)
	case f.ended == f.Size:
		m.ready = append(m.ready, turn{join: f})
	case len(f.branches) < f.Size:
		m.enlist(f)
	}
	m.advance(now)
}

// decide ends a fork by the end of b. The bodies of the others finish and are saved, and nothing more of them starts. Where b failed
// the code goes on only after that, so that it may undo what they did; a race's winner waits for nobody.
func (m *Machine) decide(f *Fork, b *Branch) {
	f.Decided = b
	for _, other := range f.branches {
		if other != b {
			m.close(other, f.Join == JoinAll)
		}
	}
	m.ready = append(m.ready, turn{join: f})
}

// close lets the code of b go no further.
func (m *Machine) close(b *Branch, hold bool) {
	b.closed = true
	if b.open != nil {
		m.forsake(b.open, hold)
	}
	if b.fork != nil {
		for _, inner := range b.fork.branches {
			m.close(inner, hold)
		}
	}
}

// forsake leaves s without anyone who waits for it: what is under way settles, and nothing more of it starts.
func (m *Machine) forsake(s *Step, hold bool) {
	if !s.runs() && s.state != stepSaving {
		s.state = stepDropped
		m.drop(s)
		return
	}
	s.orphan, s.holds = true, hold
	if hold {
		m.holding++
	}
}

// settled takes out an orphan of which nothing is under way any more.
func (m *Machine) settled(s *Step) {
	if !s.orphan {
		return
	}
	s.state = stepDropped
	m.drop(s)
	if s.holds {
		m.holding--
	}
}

// takeTurn lets the code go on: where a branch is to start or a fork is over in the order in which that came about, else where the
// entry with the lowest number is waited for (H1). It is false where the code can only wait.
func (m *Machine) takeTurn() bool {
	for len(m.ready) > 0 {
		t := m.ready[0]
		m.ready = m.ready[1:]
		switch {
		case t.start != nil && !t.start.closed:
			m.busy++
			m.emit(Output{Do: DoBranch, Branch: t.start})
			return true
		case t.join != nil && !t.join.parent.closed:
			t.join.parent.fork = nil
			m.busy++
			m.emit(Output{Do: DoJoin, Branch: t.join.parent, Fork: t.join})
			return true
		}
	}
	return m.release()
}

// number counts name in (S1), twice for an undo.
func (m *Machine) number(b *Branch, name string, undo bool) int {
	width := 1
	if undo {
		width = 2
	}
	if b.item == nil {
		number := m.counts[name] + 1
		m.counts[name] += width
		return number
	}
	it, u := b.item, use{name, undo}
	if it.uses == nil {
		it.uses = map[use]int{}
	}
	nth := it.uses[u]
	it.uses[u]++
	if it.of.blocks == nil {
		it.of.blocks = map[use][]int{}
	}
	blocks := it.of.blocks[u]
	if nth == len(blocks) { // the first item that comes here takes numbers for all
		blocks = append(blocks, m.counts[name])
		it.of.blocks[u] = blocks
		m.counts[name] += it.of.Size * width
	}
	return blocks[nth] + it.index*width + 1
}
