package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// H1: an answer brings every entry up to the save's own that the code has not seen, and nothing that it has.
// Rule W1.
func TestASaveBringsTheEntriesThatItsCodeHasNotSeen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		c := a.next(t, time.Second)
		for _, s := range []struct {
			outcome, step, output string
			seen                  int64
			brings                string // names of steps
		}{
			{"the first entry", "a", `1`, 0, ""},
			{"the second, whose code has not seen the first", "b", `2`, 0, "a"},
			{"the third, whose code has seen both", "c", `3`, 2, ""},
			{"a step that has a result already brings it, and what came after it", "b", `"another"`, 1, "bc"},
		} {
			out := n.save(c, "n", s.seen, completed(s.step, s.output))
			names, last := "", s.seen
			for _, e := range out.Entries {
				if e.Entry <= last {
					t.Errorf("%s: entry %d comes after entry %d", s.outcome, e.Entry, last)
				}
				names, last = names+e.Name, e.Entry
			}
			want(t, s.outcome, names, s.brings)
		}
	})
}

// S3: the server takes no result over its limit, whatever an SDK sends. The step, or the run, fails at once and says why.
func TestAResultOverTheLimitIsRefused(t *testing.T) {
	large := `"` + strings.Repeat("x", wire.ResultBytesMax) + `"`
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		out := n.save(c, "n", 0, completed("a", large), completed("b", `1`))
		want(t, "the large one", out.Items[0].Status, wire.ItemRefused)
		if e := out.Items[0].Error; e == nil || e.Name != "ResultTooLargeError" || !strings.Contains(e.Message, `"a"`) || !strings.Contains(e.Message, "its body ran") {
			t.Errorf("the reason is %+v", e)
		}
		want(t, "the other one", out.Items[1].Status, wire.ItemSaved)
		c.end(t, wire.End{Type: wire.Completed, Output: []byte(large), Seen: 1})
		synctest.Wait()
		run := n.run(t, id)
		want(t, "status", run.Status, workflow.Failed)
		if !strings.Contains(string(run.Error), "ResultTooLargeError") {
			t.Errorf("the run's error is %s", run.Error)
		}
	})
}

// A save may come again at any time, and by then with anything: the history stays as it is.
func TestASaveThatComesAgainChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		stop := n.keepPolling(t, c.fence("n"))
		defer stop()
		want(t, "the first", n.save(c, "n", 0, completed("a", `1`)).Items[0].Status, wire.ItemSaved)
		version := n.run(t, id).Version
		for _, pause := range []time.Duration{0, time.Second, 6 * time.Minute} {
			time.Sleep(pause)
			want(t, "the same after "+pause.String(), n.save(c, "n", 0, completed("a", `1`)).Items[0], wire.ItemOutcome{Status: wire.ItemSaved, Entry: 1})
			out := n.save(c, "n", 0, completed("a", `2`))
			want(t, "another after "+pause.String(), out.Items[0].Status, wire.ItemStands)
			want(t, "what stands", string(out.Entries[0].Output), `1`)
		}
		page, err := n.Steps(t.Context(), c.fence("n"), 0)
		if err != nil || len(page.Entries) != 1 {
			t.Fatalf("W1: %+v, %v", page, err)
		}
		if moved := n.run(t, id).Version; moved > version+2 { // the lease's time came once or twice
			t.Errorf("repeated saves changed the run: version %d, then %d", version, moved)
		}
		a.none(t, time.Minute)
	})
}
