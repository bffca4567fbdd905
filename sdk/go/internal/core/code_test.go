package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// runner plays a workflow's code against a machine: each branch is a coroutine, which the outputs resume.
type runner struct {
	m       *Machine
	now     *time.Time
	retries int
	payload json.RawMessage
	function
	handler function // in a closing
	prefix  string   // of the handler's steps
}

// function is a workflow's code. It gives its output, or what it throws.
type function func(c *code) (json.RawMessage, *thrown)

// thrown is an error of the code; step says that it is an uncaught one of a step's.
type thrown struct {
	err  *wire.Error
	step bool
}

// code is one branch of it.
type code struct {
	r      *runner
	branch *Branch
	yield  func(struct{}) bool
	resume func() (struct{}, bool)
	stop   func()
	prefix string
	output json.RawMessage
	thrown *thrown
}

// stopped unwinds a coroutine whose call is over or whose branch is closed.
type stopped struct{}

func (r *runner) start(branch *Branch, run function) *code {
	c := &code{r: r, branch: branch}
	c.resume, c.stop = iter.Pull(func(yield func(struct{}) bool) {
		c.yield = yield
		defer func() {
			if what := recover(); what != nil && what != (stopped{}) {
				panic(what)
			}
		}()
		c.output, c.thrown = run(c)
		c.ended()
	})
	return c
}

func (c *code) ended() {
	switch {
	case c.branch != c.r.m.Root():
		c.r.m.BranchEnded(c.branch, c.thrown != nil, *c.r.now)
	case c.thrown != nil:
		c.r.m.Failed(Settled{Err: c.thrown.err, Retriable: !c.thrown.step, RetryAfter: -1}, *c.r.now)
	default:
		c.r.m.Completed(c.output, *c.r.now)
	}
}

// act does what an output asks of the code; it is false for outputs that are not the code's.
func (r *runner) act(o Output) bool {
	switch o.Do {
	case DoRunCode:
		r.start(r.m.Root(), r.function).resume()
	case DoHandler:
		c := r.start(o.Branch, r.handler)
		c.prefix = r.prefix
		c.resume()
	case DoBranch:
		f := o.Branch.Of.Shell.(*forked)
		c := r.start(o.Branch, f.functions[o.Branch.Index])
		o.Branch.Shell = c
		c.resume()
	case DoRelease:
		o.Step.Shell.(*code).resume()
	case DoJoin:
		f := o.Fork.Shell.(*forked)
		for _, b := range o.Fork.branches {
			if c, ok := b.Shell.(*code); ok {
				c.stop()
			}
		}
		f.parent.resume()
	case DoUnwind, DoForget, DoAbort:
	default:
		return false
	}
	return true
}

// wait gives the machine its turn.
func (c *code) wait() {
	if !c.yield(struct{}{}) {
		panic(stopped{})
	}
}

func (c *code) ask(name string, opts AskOptions) *wire.Entry {
	s, err := c.r.m.Ask(c.branch, c.prefix+name, opts, c, *c.r.now)
	if errors.Is(err, ErrOver) {
		panic(stopped{})
	}
	if err != nil {
		panic(fmt.Sprintf("asking for %s: %v", name, err))
	}
	c.wait()
	return s.Entry
}

// run is a step with a body.
func (c *code) run(name string) *wire.Entry { return c.ask(name, AskOptions{Retries: c.r.retries}) }

func (c *code) sleep(name string, d time.Duration) *wire.Entry {
	return c.ask(name, AskOptions{Terms: &wire.Terms{Op: wire.OpWait, Kind: wire.KindSleep, Delay: d}})
}

func (c *code) claim(name, key string) *wire.Entry {
	return c.ask(name, AskOptions{Terms: &wire.Terms{Op: wire.OpClaim, Kind: wire.KindClaim, Key: key}})
}

// undo is a step.undo. Its body is whatever the lines say.
func (c *code) undo(name string) *wire.Entry {
	return c.ask(name, AskOptions{Terms: &wire.Terms{Op: wire.OpUndo, Kind: wire.KindUndo}, Undo: "its body"})
}

// restart begins the run again with payload; it does not return.
func (c *code) restart(payload string) {
	if err := c.r.m.Restart(c.branch, json.RawMessage(payload), *c.r.now); err != nil {
		panic(err)
	}
	c.wait()
}

// log writes a line outside steps.
func (c *code) log(level, message, fields string) { c.r.log(nil, level, message, fields) }

func (r *runner) log(s *Step, level, message, fields string) {
	attempt := 0
	if s != nil {
		attempt = s.Attempt
	}
	line, _, sent := r.m.LineOf(s, attempt, *r.now)
	if !sent {
		return
	}
	line.Level, line.Message = level, message
	if fields != "" {
		line.Fields = json.RawMessage(fields)
	}
	r.m.Log(line, *r.now)
}

type forked struct {
	parent    *code
	functions []function
}

// fork runs functions side by side.
func (c *code) fork(f *Fork, functions ...function) *Fork {
	f.Size, f.Shell = len(functions), &forked{c, functions}
	if err := c.r.m.Fork(c.branch, f, *c.r.now); err != nil {
		panic(err)
	}
	c.wait()
	return f
}

// decidedBy is the branch that decided f.
func decidedBy(f *Fork) *code { return f.Decided.Shell.(*code) }
