package play

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/core"
)

// lane is the goroutine of one branch of the code. Its end belongs to that goroutine, and once done is closed to the one that waits
// for it; what else is not atomic does not change.
type lane struct {
	branch  *core.Branch
	prefix  string        // what the names of its steps begin with; empty but in a handler
	frozen  bool          // the code is played without acting (Z1, D3)
	leave   chan struct{} // closed when the goroutine must end (H7)
	unwound atomic.Bool   // it is ending: what its deferred functions ask is answered with an error
	// stack is that of the panic of a branch that goes on in this goroutine; nil: there is none.
	stack atomic.Pointer[string]

	cancel context.CancelCauseFunc // ends its context
	done   chan struct{}           // closed when nothing of it is left; nil where it was not started

	// Of a branch that another one waits for.
	index int
	end   branchEnd
}

// branchEnd is how a branch's function ended.
type branchEnd struct {
	err      error
	panicked any // nil where it did not panic
	stack    string
}

// Branches are functions that run side by side, by their index.
type Branches struct {
	Size    int
	Limit   int  // how many run at once; 0: all
	Race    bool // the first that ends decides, else the first that fails
	Indexed bool // steps are counted by index (S1)
	Run     func(ctx context.Context, index int) error

	ctx    context.Context
	parent *lane
	joined chan struct{}
	lanes  []*lane // Playing.mu guards it until joined or the parent's leave is closed
}

// Fork runs the branches of b, each with a context of its own below ctx, and gives the index and the error of the one that decided;
// -1 where all ended well. A panic of that one goes on here. It does not return when the call ends meanwhile (H7).
//
// One branch runs at a time until it rests in a step. When Fork returns, no goroutine of a branch is left.
func (f *Frame) Fork(ctx context.Context, b *Branches) (decided int, err error) {
	if f.Attempt != nil {
		return -1, ErrInStep
	}
	p, fork := f.Playing, &core.Fork{Size: b.Size, Limit: b.Limit, Indexed: b.Indexed, Shell: b}
	if b.Race {
		fork.Join = core.JoinRace
	}
	f.lane.stack.Store(nil)
	b.ctx, b.parent, b.joined = ctx, f.lane, make(chan struct{})
	p.input(func(now time.Time) { err = p.m.Fork(f.lane.branch, fork, now) })
	if err != nil {
		return -1, p.refused(f.lane, err)
	}
	select {
	case <-b.joined:
		b.dismiss()
	case <-f.lane.leave:
		b.dismiss()
		return -1, p.exit(f.lane)
	}
	if fork.Decided == nil {
		return -1, nil
	}
	end := &b.lanes[fork.Decided.Index].end
	if end.panicked != nil {
		f.lane.stack.Store(&end.stack)
		panic(end.panicked)
	}
	return fork.Decided.Index, end.err
}

// dismiss ends the goroutines of the branches that nobody waits for any more, one after the other: their deferred functions run one
// at a time, and before the code goes on.
func (b *Branches) dismiss() {
	for _, l := range b.lanes {
		l.cancel(ErrCallOver)
		close(l.leave)
		<-l.done
	}
}

// startBranch starts the function of branch in a goroutine. p.mu is held.
func (p *Playing) startBranch(branch *core.Branch) {
	b := branch.Of.Shell.(*Branches)
	l := &lane{
		branch: branch, index: branch.Index, prefix: b.parent.prefix, frozen: b.parent.frozen,
		leave: make(chan struct{}), done: make(chan struct{}),
	}
	ctx, cancel := context.WithCancelCause(b.ctx)
	l.cancel = cancel
	b.lanes = append(b.lanes, l)
	p.live++
	go p.runBranch(with(ctx, &Frame{Playing: p, lane: l}), b, l)
}

func (p *Playing) runBranch(ctx context.Context, b *Branches, l *lane) {
	returned := false
	defer func() {
		panicked := recover()
		switch {
		case panicked != nil:
			l.end.panicked, l.end.stack = panicked, l.stackOf()
		case !returned:
			l.end.err = errGoexit
		}
		l.cancel(ErrCallOver)
		p.input(func(now time.Time) {
			p.live--
			if !l.unwound.Load() {
				p.m.BranchEnded(l.branch, l.end.panicked != nil || l.end.err != nil, now)
			}
		})
		close(l.done)
	}()
	l.end.err = b.Run(ctx, l.index)
	returned = true
}

// stackOf is the stack of the panic that the goroutine recovers from: that of the branch where it began. l is nil for a body.
func (l *lane) stackOf() string {
	if l != nil {
		if stack := l.stack.Load(); stack != nil {
			return *stack
		}
	}
	return string(debug.Stack())
}

// exit ends the goroutine of code whose call is over, or whose branch nobody waits for. In a deferred function of a goroutine that is
// ending already it returns ErrCallOver instead.
func (p *Playing) exit(l *lane) error {
	if l.unwound.Swap(true) {
		return ErrCallOver
	}
	runtime.Goexit()
	return ErrCallOver
}
