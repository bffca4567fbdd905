package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// damaged is a store in which one run's values can't be read.
type damaged struct {
	store.Store
	run atomic.Value // its id
}

func (d *damaged) State(ctx context.Context, q store.EntryQuery) (store.State, error) {
	if q.RunID == d.run.Load() {
		return store.State{}, errors.New("a damaged page")
	}
	return d.Store.State(ctx, q)
}

func (d *damaged) Record(ctx context.Context, env, runID string) (store.RunRecord, error) {
	if runID == d.run.Load() {
		return store.RunRecord{}, errors.New("a damaged page")
	}
	return d.Store.Record(ctx, env, runID)
}

// Of twenty runs that are due at once, one whose call can't be made holds up none of the others, and says so.
func TestARunThatCannotBeCalledHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		s := &damaged{Store: memory.New()}
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		a.fail(&call.Outcome{Kind: call.Unusable, Status: 404, Reason: "the app answered 404"})
		const runs = 20
		for range runs {
			n.start(t, "w")
		}
		synctest.Wait() // no call is on its way any more
		bad := allRuns(t, s)[2]
		s.run.Store(bad)
		a.fail(nil)
		for range runs - 1 {
			if c := a.next(t, 2*time.Minute); c.Run.ID == bad {
				t.Fatal("the run that can't be read was called")
			}
		}
		time.Sleep(100 * time.Millisecond) // where many calls begin at once, a commit gathers them for a moment
		run, _, err := s.Load(context.Background(), bad)
		if err != nil || run.Status != workflow.Waiting || !strings.Contains(run.Reason, "log") || time.Until(run.NextAt) > time.Minute {
			t.Errorf("W5: it is %s until %v: %q, %v", run.Status, run.NextAt, run.Reason, err)
		}
		s.run.Store("")
		want(t, "once it can be read", a.next(t, time.Minute).Run.ID, bad)
	})
}

// street is several apps, each at its address.
type street map[string]*app

func (s street) Do(ctx context.Context, r call.Request) call.Outcome {
	return s[r.Target.URL].Do(ctx, r)
}

func (s street) Describe(ctx context.Context, t call.Target) (*wire.Manifest, call.Outcome) {
	return s[t.URL].Describe(ctx, t)
}

func (s street) Verify(ctx context.Context, t call.Target, m wire.Verify) (*wire.Verified, call.Outcome) {
	return s[t.URL].Verify(ctx, t, m)
}

// An app that takes its calls and never answers fills its own line, and its runs are timed by their lease.
func TestAnAppThatHangsHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hung, healthy := newApp(wire.Workflow{Name: "hangs"}), newApp(wire.Workflow{Name: "works"})
		healthy.manifest.App = "healthy"
		n := startNode(t, memory.New(), street{"http://127.0.0.1:3000": hung, "http://127.0.0.1:3001": healthy}, engine.Options{Concurrency: 2})
		for _, url := range []string{"http://127.0.0.1:3000", "http://127.0.0.1:3001"} {
			if _, err := n.PutApp(context.Background(), engine.DefaultEnv, engine.AppRequest{URL: url}, true); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 {
			n.start(t, "hangs")
		}
		first := hung.next(t, time.Second)
		for range 10 {
			id := n.start(t, "works").Run.ID
			healthy.next(t, time.Second).end(t, wire.End{Type: wire.Completed})
			synctest.Wait()
			want(t, "status", n.run(t, id).Status, workflow.Completed)
		}
		time.Sleep(first.leaseOf() + timerSlack)
		if first.ctx.Err() == nil {
			t.Error("the hanging call is still open after its lease")
		}
	})
}

func (c *sentCall) leaseOf() time.Duration {
	return time.Duration(c.Call.Call.LeaseMs) * time.Millisecond
}

// What has ended is in the store alone: a server that works for years holds no more than on its first day.
func TestEndedRunsLeaveNothingInMemory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		for i := range 300 {
			id := n.start(t, "w").Run.ID
			c := a.next(t, time.Minute)
			n.save(c, "n", 0, completed("a", `1`))
			n.poll(t, 0, c.fence("n"))
			ended := make(chan error, 1)
			go func() {
				_, err := n.RunRecord(context.Background(), engine.DefaultEnv, id, time.Minute)
				ended <- err
			}()
			synctest.Wait()
			switch i % 3 {
			case 0:
				c.lose() // and is picked up
				c = a.next(t, time.Minute)
				c.end(t, wire.End{Type: wire.Completed, Seen: 1})
			case 1:
				if _, err := n.Cancel(context.Background(), engine.DefaultEnv, id, false); err != nil {
					t.Fatal(err)
				}
				c.end(t, wire.End{Type: wire.Yielded, Seen: 1})
			default:
				c.end(t, wire.End{Type: wire.Completed, Seen: 1})
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if held := n.Held(); held != 0 {
			t.Errorf("of 300 runs that have ended, %d things are held", held)
		}
	})
}
