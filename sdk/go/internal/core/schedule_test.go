package core

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// world is a dumb server and the bodies of one run, in an order that chance makes.
type world struct {
	t      *testing.T
	chance *rand.Rand
	now    time.Time
	m      *Machine
	code   *runner
	path   []string // of the code in this call

	history  []wire.Entry
	foreign  map[int64]bool // the entries that no save made
	open     []wire.Open
	retrying map[stepKey]int // attempts made

	bodies   []*Step
	save     *wire.Save    // under way
	outcome  *wire.Outcome // of it, once it is durable
	stale    []wire.Entry  // news that is on its way
	answered *wire.Answer
}

// everything is code of all kinds of steps, side by side and nested.
func (w *world) everything(c *code) (json.RawMessage, *thrown) {
	went := func(e *wire.Entry) *thrown {
		w.path = append(w.path, fmt.Sprint(e.Name, e.Number, e.Status))
		if e.Error != nil {
			return &thrown{e.Error, true}
		}
		return nil
	}
	run := func(names ...string) function {
		return func(c *code) (json.RawMessage, *thrown) {
			for _, name := range names {
				if err := went(c.run(name)); err != nil {
					return nil, err
				}
			}
			return nil, nil
		}
	}
	nap := func(c *code) (json.RawMessage, *thrown) { return nil, went(c.sleep("nap", time.Minute)) }
	undo := func(c *code) (json.RawMessage, *thrown) { return nil, went(c.undo("load")) }
	claim := func(c *code) (json.RawMessage, *thrown) { return nil, went(c.claim("claim", "k")) }
	forked := func(f Fork, functions ...function) function {
		return func(c *code) (json.RawMessage, *thrown) {
			done := c.fork(&f, functions...)
			if done.Decided == nil {
				w.path = append(w.path, "all")
				return nil, nil
			}
			w.path = append(w.path, fmt.Sprint("decided by ", done.Decided.Index))
			return nil, decidedBy(done).thrown
		}
	}
	item := func(c *code) (json.RawMessage, *thrown) {
		for _, each := range []function{run("load"), undo, run("load")} {
			if _, err := each(c); err != nil {
				return nil, err
			}
		}
		return run("save")(c)
	}
	forked(
		Fork{},
		forked(Fork{Indexed: true, Limit: 2}, item, item, item),
		forked(Fork{}, run("bad"), run("slow", "never"), nap),
		forked(Fork{Join: JoinRace}, run("flaky"), nap, claim),
		func(c *code) (json.RawMessage, *thrown) {
			if _, err := nap(c); err != nil {
				return nil, err
			}
			return run("load", "save")(c)
		},
	)(c)
	run("load", "last")(c)
	return nil, nil
}

// call begins a call with what is durable.
func (w *world) call() {
	call := &wire.Call{Call: wire.CallInfo{ID: "c", LeaseMs: 300000, HeartbeatMs: 5000}}
	call.Steps.Entries, call.Steps.Waiting = slices.Clone(w.history), slices.Clone(w.open)
	for key, attempt := range w.retrying {
		call.Steps.Retrying = append(call.Steps.Retrying, wire.Retry{Name: key.name, Number: key.number, Attempt: attempt})
	}
	w.path, w.bodies, w.save, w.outcome, w.stale, w.answered = nil, nil, nil, nil, nil, nil
	w.m = New(call, Config{Retries: 4}, w.now)
	w.code = &runner{m: w.m, now: &w.now, retries: 4, function: w.everything}
	w.m.Begin(w.now)
	w.pump()
}

func (w *world) pump() {
	for {
		outs := slices.Clone(w.m.Take())
		if len(outs) == 0 {
			return
		}
		for _, o := range outs {
			switch {
			case w.code.act(o):
			case o.Do == DoBody:
				w.bodies = append(w.bodies, o.Step)
			case o.Do == DoSave:
				w.save = o.Save
			case o.Do == DoAnswer:
				w.answered = o.Answer
			}
		}
	}
}

func (w *world) append(e wire.Entry) int64 {
	e.Entry = int64(len(w.history) + 1)
	w.history = append(w.history, e)
	return e.Entry
}

func (w *world) after(seen int64, keep func(e wire.Entry) bool) (entries []wire.Entry) {
	for _, e := range w.history {
		if e.Entry > seen && keep(e) {
			entries = append(entries, e)
		}
	}
	return entries
}

// commit makes the save durable.
func (w *world) commit() {
	o, own := &wire.Outcome{Status: wire.StatusAccepted}, map[int64]bool{}
	for _, it := range w.save.Items {
		outcome := w.take(it)
		own[outcome.Entry] = true
		o.Items = append(o.Items, outcome)
	}
	o.Entries = w.after(w.save.Seen, func(e wire.Entry) bool { return !own[e.Entry] })
	w.outcome = o
}

func (w *world) take(it *wire.Item) wire.ItemOutcome {
	key := stepKey{it.Name, it.Number}
	for _, e := range w.history {
		switch {
		case e.Name != it.Name || e.Number != it.Number:
		case it.Op == wire.OpWait:
			return wire.ItemOutcome{Status: wire.ItemStands}
		default:
			return wire.ItemOutcome{Status: wire.ItemSaved, Entry: e.Entry, Output: e.Output}
		}
	}
	if it.Op == wire.OpWait {
		if o := (wire.Open{Kind: it.Kind, Name: it.Name, Number: it.Number}); !slices.Contains(w.open, o) {
			w.open = append(w.open, o)
		}
		return wire.ItemOutcome{Status: wire.ItemWaiting}
	}
	if it.Op == wire.OpFailed && it.Retriable {
		w.retrying[key] = it.Attempt
		return wire.ItemOutcome{Status: wire.ItemRetrying, Attempt: it.Attempt, RetryInMs: 1000}
	}
	delete(w.retrying, key)
	e := entryOf(it, &wire.ItemOutcome{Output: json.RawMessage("true")})
	return wire.ItemOutcome{Status: wire.ItemSaved, Entry: w.append(e), Output: e.Output}
}

// arrive ends a wait that is open.
func (w *world) arrive() {
	i := w.chance.IntN(len(w.open))
	o := w.open[i]
	w.open = slices.Delete(w.open, i, i+1)
	w.foreign[w.append(wire.Entry{Kind: o.Kind, Name: o.Name, Number: o.Number, Status: wire.OpCompleted})] = true
}

// happen is one thing that may happen now. It is false where the call is to be cut.
func (w *world) happen() bool {
	switch n := w.chance.IntN(12); {
	case n < 4 && len(w.bodies) > 0:
		i := w.chance.IntN(len(w.bodies))
		s := w.bodies[i]
		w.bodies = slices.Delete(w.bodies, i, i+1)
		end := Settled{Output: json.RawMessage("1"), RetryAfter: -1}
		if s.Name == "bad" || s.Name == "flaky" && s.Attempt == 1 {
			end.Err, end.Retriable = &wire.Error{Name: "Error", Message: "no"}, s.Name == "flaky"
		}
		w.m.BodyEnded(s, s.Attempt, end, w.now)
	case n < 7 && w.save != nil && w.outcome == nil:
		w.commit()
	case n < 9 && w.outcome != nil:
		save, o := w.save, w.outcome
		w.save, w.outcome = nil, nil
		if w.chance.IntN(4) == 0 {
			w.m.SaveFailed(save, w.now)
		} else {
			w.m.Saved(save, o, w.now)
		}
	case n == 9 && len(w.open) > 0:
		w.arrive()
	case n == 10 && w.stale != nil:
		w.m.News(&wire.News{Status: wire.StatusEntries, Entries: w.stale}, w.now)
		w.stale = nil
	case n == 10:
		w.stale = w.after(w.m.Seen(), func(e wire.Entry) bool { return w.foreign[e.Entry] })
	case n == 11 && w.chance.IntN(20) == 0:
		return false
	default:
		w.now = w.now.Add(100 * time.Millisecond)
		w.m.Tick(w.now)
	}
	w.pump()
	return true
}

// leavesOf are the leaves of trees.
func leavesOf(trees []wire.Wait) (leaves []wire.Wait) {
	for _, t := range trees {
		if t.All == nil && t.Race == nil {
			leaves = append(leaves, t)
		}
		leaves = append(leaves, leavesOf(slices.Concat(t.All, t.Race))...)
	}
	return leaves
}

// suspended takes in what the answer says, and lets something come of what it waits for.
func (w *world) suspended() {
	for _, it := range w.answered.Register {
		w.take(it)
	}
	if len(w.answered.Waits) == 0 {
		w.t.Fatal("it is suspended and waits for nothing")
	}
	for _, wait := range leavesOf(w.answered.Waits) {
		if wait.Wait == nil {
			continue
		}
		named := func(o wire.Open) bool { return o.Name == wait.Wait.Name && o.Number == wait.Wait.Number }
		over := func(e wire.Entry) bool { return e.Name == wait.Wait.Name && e.Number == wait.Wait.Number }
		if !slices.ContainsFunc(w.open, named) && !slices.ContainsFunc(w.history, over) {
			w.t.Fatalf("it waits for %v, which is not open", *wait.Wait)
		}
	}
	if len(w.open) > 0 {
		w.arrive()
	}
}

// H1: whatever the order in which bodies end, saves are answered or lost, waits are over, news comes and calls are cut, the code of
// each call goes the way of the call before it, as far as that came.
func TestEachCallGoesTheWayOfTheOneBefore(t *testing.T) {
	for seed := range uint64(1000) {
		w := &world{
			t: t, chance: rand.New(rand.NewPCG(seed, 1)), now: start, foreign: map[int64]bool{}, retrying: map[stepKey]int{},
		}
		var longest []string
		done := false
		for calls := 0; !done; calls++ {
			w.call()
			for events := 0; w.answered == nil && w.happen(); events++ {
				if events > 5000 {
					t.Fatalf("seed %d: call %d does not end; it went %v", seed, calls, w.path)
				}
			}
			common := min(len(longest), len(w.path))
			if !slices.Equal(longest[:common], w.path[:common]) {
				t.Fatalf("seed %d: call %d went another way (-before +now):\n%s", seed, calls, cmp.Diff(longest, w.path))
			}
			if len(w.path) > len(longest) {
				longest = w.path
			}
			if w.answered != nil && len(w.answered.Unasked) > 0 {
				t.Fatalf("seed %d: call %d says that its code does not ask for %v any more", seed, calls, w.answered.Unasked)
			}
			if w.answered != nil && w.answered.Type == wire.AnswerSuspended {
				w.suspended()
			}
			done = w.answered != nil && w.answered.Type == wire.AnswerCompleted
			if calls > 200 {
				t.Fatalf("seed %d: the run does not end; it went %v", seed, longest)
			}
		}
	}
}
