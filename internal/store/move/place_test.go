package move_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/move"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
	"github.com/nelkap/nelkap/internal/store/storetest"
)

// Each place is the same code with another table, so that the gate tries some, others each time. All took six minutes.
var every = flag.Int("every", 12, "break a move off in each n-th place; 1 is everywhere")

// first draws where the places begin.
func first(t *testing.T) int {
	t.Helper()
	n := 1 + rand.N(*every)
	t.Logf("each %d-th place from %d on", *every, n)
	return n
}

var errFault = errors.New("the fault")

// fault breaks off one call of a store's method: the at-th of all, or each of a method's. after: it has taken effect before.
type fault struct {
	at     int
	method string
	after  bool
	calls  int
}

// do carries out a call, or breaks it off.
func (f *fault) do(method string, call func() error) error {
	f.calls++
	if f.calls != f.at && f.method != method {
		return call()
	}
	if f.after {
		if err := call(); err != nil {
			return err
		}
	}
	return errFault
}

type faultySource struct {
	move.Source
	fault *fault
}

func (s *faultySource) SetStanding(ctx context.Context, to store.Standing) error {
	method := "Moving"
	if to.Phase == store.PhaseMoved {
		method = "Moved"
	}
	return s.fault.do(method, func() error { return s.Source.SetStanding(ctx, to) })
}

func (s *faultySource) Rows(ctx context.Context, table store.Table, row func(store.Row) error) error {
	return s.fault.do("Rows", func() error { return s.Source.Rows(ctx, table, row) })
}

func (s *faultySource) Numbers(ctx context.Context) (n store.Numbers, err error) {
	err = s.fault.do("Numbers", func() error { n, err = s.Source.Numbers(ctx); return err })
	return n, err
}

type faultyTarget struct {
	move.Target
	fault *fault
}

func (t *faultyTarget) Empty(ctx context.Context, tables []store.Table) (full string, err error) {
	err = t.fault.do("Empty", func() error { full, err = t.Target.Empty(ctx, tables); return err })
	return full, err
}

func (t *faultyTarget) Receive(ctx context.Context, id string, tables []store.Table) error {
	return t.fault.do("Receive", func() error { return t.Target.Receive(ctx, id, tables) })
}

func (t *faultyTarget) Copy(ctx context.Context, table store.Table, rows func(func(store.Row) error) error) error {
	return t.fault.do("Copy", func() error { return t.Target.Copy(ctx, table, rows) })
}

func (t *faultyTarget) SetNumbers(ctx context.Context, n store.Numbers) error {
	return t.fault.do("SetNumbers", func() error { return t.Target.SetNumbers(ctx, n) })
}

func (t *faultyTarget) Numbers(ctx context.Context) (n store.Numbers, err error) {
	err = t.fault.do("Numbers", func() error { n, err = t.Target.Numbers(ctx); return err })
	return n, err
}

func (t *faultyTarget) Rows(ctx context.Context, table store.Table, row func(store.Row) error) error {
	return t.fault.do("Rows", func() error { return t.Target.Rows(ctx, table, row) })
}

func (t *faultyTarget) Activate(ctx context.Context, id string) error {
	return t.fault.do("Activate", func() error { return t.Target.Activate(ctx, id) })
}

// story is a world that is played again and again, each time with a fault in another place.
type story struct {
	*world
	before string // the directory before any move
	want   contents
}

func newStory(t *testing.T) *story {
	t.Helper()
	w := newWorld(t)
	w.fill(append(storetest.Batches(5, 12), []store.Change{waiting(t)}))
	before := t.TempDir() + "/before"
	s := &story{world: w, before: before, want: w.dumpSource()}
	w.dir, s.before = before, w.dir
	return s
}

// holds checks what must be so however a move ended: never may both stores be used, and while the old one may not, and the new one may not
// either, the move goes on from there.
func (s *story) holds(t *testing.T, what string, failed bool) {
	t.Helper()
	old, fresh := s.usable()
	if old && fresh {
		// Before the first mark the database is an empty one like any other.
		if full := s.full(t); full {
			t.Fatalf("%s: both stores may be used", what)
		}
	}
	if !failed && (old || !fresh) {
		t.Fatalf("%s: it is done, and the old store may be used: %v, the new one: %v", what, old, fresh)
	}
	s.mustMove()
	if old, fresh := s.usable(); old || !fresh {
		t.Fatalf("%s, and once more: the old store may be used: %v, the new one: %v", what, old, fresh)
	}
	target := s.openTarget()
	if diff := cmp.Diff(s.want, dump(t, target), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s, and once more (-before +after)\n%s", what, diff)
	}
	if err := target.Close(); err != nil {
		t.Fatal(err)
	}
}

// full tells whether the database has runs.
func (s *story) full(t *testing.T) bool {
	t.Helper()
	target := s.openTarget()
	defer target.Close()
	runs, err := target.Runs(t.Context(), store.RunQuery{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	return len(runs) > 0
}

// Rule N5: each call of both stores in turn is broken off, before and after its effect, and the move is started again.
func TestAMoveThatIsBrokenOffAnywhereGoesOn(t *testing.T) {
	s := newStory(t)
	for _, after := range []bool{false, true} {
		for at := first(t); ; at += *every {
			s.again(s.before)
			f := &fault{at: at, after: after}
			err := s.migrate(s.url, func(from move.Source) move.Source { return &faultySource{from, f} }, func(to move.Target) move.Target { return &faultyTarget{to, f} })
			if err != nil && !errors.Is(err, errFault) {
				t.Fatalf("call %d: %v", at, err)
			}
			s.holds(t, "call "+place(at, after), err != nil)
			if err == nil {
				if at < 50 {
					t.Fatalf("there were only %d calls", at)
				}
				break
			}
		}
	}
}

// Rule N5: the connection breaks at each thing that is sent, before and after it has reached the database.
func TestAMoveThatLosesItsConnectionAnywhereGoesOn(t *testing.T) {
	s := newStory(t)
	proxy := s.server.Proxy(t)
	for _, cut := range []pgtest.Cut{pgtest.CutBeforeAny, pgtest.CutAfterAny} {
		for at := first(t); ; at += *every {
			s.again(s.before)
			cuts := proxy.Cuts()
			proxy.CutNth(cut, at)
			err := s.migrate(proxy.URL(s.database), same[move.Source], same[move.Target])
			proxy.CutOnce(pgtest.CutNowhere)
			s.holds(t, "message "+place(at, cut == pgtest.CutAfterAny), err != nil)
			if proxy.Cuts() == cuts {
				if at < 50 {
					t.Fatalf("there were only %d messages", at)
				}
				break
			}
		}
	}
}

func place(at int, after bool) string {
	if after {
		return fmt.Sprintf("%d, after its effect", at)
	}
	return fmt.Sprintf("%d, before its effect", at)
}
