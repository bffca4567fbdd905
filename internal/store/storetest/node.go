package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// E1: what a former owner does by its cursor is refused, whatever it still believes.
func cursorsHaveOneOwner(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	wait := workflow.Wait{StepID: workflow.StepID{Name: "w", Number: 1}, Kind: workflow.KindEvent, Event: &workflow.EventWait{Names: []string{"paid"}}}
	must(t, s, opening(t, run, wait))
	must(t, s, store.TakeCursor{Cursor: "match", Owner: "node_1"})
	must(t, s, store.Advance{Cursor: "match", Owner: "node_1", Position: 5})
	must(t, s, store.TakeCursor{Cursor: "match", Owner: "node_2"})
	back := lookedBack(t, s, store.LookedBack{RunID: run.ID, StepID: wait.StepID, Cursor: "match", Owner: "node_1"})
	refused(t, s, store.ErrStale, store.Advance{Cursor: "match", Owner: "node_1", Position: 9})
	refused(t, s, store.ErrStale, store.Advance{Cursor: "match", Position: 9})
	refused(t, s, store.ErrStale, back)
	refused(t, s, store.ErrStale, store.Advance{Cursor: "other", Owner: "node_1", Position: 1})
	use := store.UseEvent{RunID: run.ID, Position: 1, Cursor: "match", Owner: "node_1"}
	refused(t, s, store.ErrCursor, use)
	use.Owner = "node_2"
	must(t, s, use)
	equal(t, names(waits(t, s, store.WaitQuery{Set: store.WaitsUnlooked})), "run_0001/w ")
	back.Owner = "node_2"
	must(t, s, back)
	equal(t, names(waits(t, s, store.WaitQuery{Set: store.WaitsUnlooked})), "")
	position, err := s.Position(context.Background(), "match")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, position, int64(5))
}

func nodesAreKept(t *testing.T, s store.Store) {
	all := func() string {
		nodes, err := s.Nodes(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, n := range nodes {
			text += fmt.Sprintf("%s %d %s; ", n.ID, n.Beat, n.State)
		}
		return text
	}
	equal(t, all(), "")
	must(t, s, store.PutNode{Node: store.Node{ID: "node_2", Beat: 1, State: []byte("b")}})
	must(t, s, store.PutNode{Node: store.Node{ID: "node_1", Beat: 1}})
	must(t, s, store.PutNode{Node: store.Node{ID: "node_2", Beat: 2, State: []byte("c")}})
	equal(t, all(), "node_1 1 ; node_2 2 c; ")
	must(t, s, store.DropNode{ID: "node_1"})
	must(t, s, store.DropNode{ID: "node_1"})
	equal(t, all(), "node_2 2 c; ")
}

// N4: what a node holds is found by the store.
func callsAreHeld(t *testing.T, s store.Store) {
	ctx := context.Background()
	for n := range 4 {
		must(t, s, store.InsertRun{Run: NewRun(n)})
		if n < 3 {
			d := apply(t, NewRun(n), workflow.Begin{CallID: fmt.Sprintf("call_%d", n), Token: "t", Node: fmt.Sprintf("node_%d", n%2)})
			must(t, s, store.UpdateRun{Run: d.Run})
		}
	}
	held := func(node, after string, limit int) string {
		runs, err := s.InCall(ctx, node, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, r := range runs {
			text += r.ID + " "
		}
		return text
	}
	counts := func(except string) []store.CallCount {
		counts, err := s.CallCounts(ctx, except)
		if err != nil {
			t.Fatal(err)
		}
		return counts
	}
	env, app := NewRun(0).Env, NewRun(0).App
	equal(t, held("node_0", "", 10), "run_0000 run_0002 ")
	equal(t, held("node_0", "", 1), "run_0000 ")
	equal(t, held("node_0", "run_0000", 10), "run_0002 ")
	equal(t, held("node_2", "", 10), "")
	equal(t, counts("node_9"), []store.CallCount{{Node: "node_0", Env: env, App: app, Calls: 2}, {Node: "node_1", Env: env, App: app, Calls: 1}})
	equal(t, counts("node_0"), []store.CallCount{{Node: "node_1", Env: env, App: app, Calls: 1}})
	d := apply(t, load(t, s, "run_0001"), workflow.Adopt{CallID: "call_1", Node: "node_2"})
	must(t, s, store.UpdateRun{Run: d.Run})
	equal(t, held("node_2", "", 10), "run_0001 ")
	equal(t, counts("node_1"), []store.CallCount{{Node: "node_0", Env: env, App: app, Calls: 2}, {Node: "node_2", Env: env, App: app, Calls: 1}})
	heads, err := s.Heads(ctx, []string{"run_0001", "run_none", "run_0003"})
	if err != nil || len(heads) != 2 {
		t.Fatalf("%v, %v", heads, err)
	}
	for _, h := range heads {
		equal(t, h.Run, load(t, s, h.ID))
	}
}

// dumpNodes reads what nodes know of each other.
func (c *Contents) dumpNodes(s store.Reader, check func(error)) {
	ctx := context.Background()
	c.InCall = map[string][]workflow.Run{}
	var err error
	c.Counts, err = s.CallCounts(ctx, "node_1")
	check(err)
	c.Nodes, err = s.Nodes(ctx)
	check(err)
	for _, node := range []string{"", "node_1", "node_2"} {
		c.InCall[node], err = s.InCall(ctx, node, "", 1000)
		check(err)
	}
	for _, run := range c.Runs { // the order of many is the store's own
		heads, err := s.Heads(ctx, []string{run.ID, "run_none"})
		check(err)
		c.Heads = append(c.Heads, heads...)
	}
}
