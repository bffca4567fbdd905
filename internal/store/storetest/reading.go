package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// withSteps begins a run and saves that many steps of it, of twelve bytes each.
func withSteps(t *testing.T, s store.Store, n int) workflow.Run {
	t.Helper()
	run := begun(t, s, 1)
	var steps []workflow.Step
	for i := range n {
		steps = append(steps, step("a", i+1, `"0123456789"`))
	}
	must(t, s, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "n", Steps: steps})
	return run
}

func pagesAreBounded(t *testing.T, s store.Store) {
	run := withSteps(t, s, 10)
	for _, c := range []struct{ after, entries, bytes, want int }{{0, 3, 1000, 3}, {8, 3, 1000, 2}, {0, 10, 30, 2}, {0, 10, 1, 1}, {10, 10, 1000, 0}} {
		page, err := s.Entries(context.Background(), store.EntryQuery{RunID: run.ID, After: int64(c.after), EntriesMax: c.entries, BytesMax: c.bytes})
		if err != nil || len(page) != c.want {
			t.Errorf("%+v: %d entries, %v", c, len(page), err)
		}
	}
}

// readersLeaveNothing has readers go in the middle of what they read, as who waits for a call that is over does.
func readersLeaveNothing(t *testing.T, s store.Store) {
	run := withSteps(t, s, 1000)
	state := func(ctx context.Context) error {
		_, err := s.State(ctx, store.EntryQuery{RunID: run.ID, EntriesMax: 1000, BytesMax: 1 << 20})
		return err
	}
	started := time.Now()
	if err := state(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := time.Since(started)
	for i := range 40 {
		ctx, cancel := context.WithTimeout(t.Context(), took*time.Duration(i)/40)
		_ = state(ctx) // it may be done before
		cancel()
	}
	later := begun(t, s, 2)
	for range 16 { // more than there are readers
		if _, _, err := s.Load(t.Context(), later.ID); err != nil {
			t.Fatalf("what was committed afterwards is not seen: %v", err)
		}
		if err := state(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func runsAreListed(t *testing.T, s store.Store) {
	for n := range 5 {
		run := NewRun(n)
		if n%2 == 1 {
			run.Workflow, run.Key = "other", "k"
		}
		must(t, s, store.InsertRun{Run: run})
	}
	for _, c := range []struct {
		q    store.RunQuery
		want []string
	}{
		{store.RunQuery{Env: "default", Limit: 2}, []string{"run_0004", "run_0003"}},
		{store.RunQuery{Env: "default", Limit: 2, Before: "run_0003"}, []string{"run_0002", "run_0001"}},
		{store.RunQuery{Env: "default", Limit: 9, Workflow: "other"}, []string{"run_0003", "run_0001"}},
		{store.RunQuery{Env: "default", Limit: 9, Key: "k", Status: workflow.Queued, App: "shop"}, []string{"run_0003", "run_0001"}},
		{store.RunQuery{Env: "default", Limit: 9, Status: workflow.Failed}, nil},
		{store.RunQuery{Env: "staging", Limit: 9}, nil},
	} {
		list, err := s.Runs(context.Background(), c.q)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range list {
			got = append(got, r.ID)
		}
		equal(t, got, c.want)
	}
}

func keysAreListed(t *testing.T, s store.Store) {
	begun(t, s, 1)
	for _, key := range []string{`[0,"a",1]`, `[0,"a",2]`, `[0,"a-",1]`, `[0,"ü",1]`, "\U0010ffff", "z"} {
		must(t, s, store.TakeKey{Key: store.Key{Env: "default", Kind: store.KeySend, Scope: "run_0001", Key: key, Owner: "o"}, Now: T0})
	}
	for prefix, want := range map[string][]string{
		"": {`[0,"a",1]`, `[0,"a",2]`, `[0,"a-",1]`, `[0,"ü",1]`, "z", "\U0010ffff"}, `[0,"a",`: {`[0,"a",1]`, `[0,"a",2]`}, `[0,"b`: nil,
	} {
		list, err := s.Keys(context.Background(), store.KeyQuery{Env: "default", Kind: store.KeySend, Scope: "run_0001", Prefix: prefix, Now: T0})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range list {
			got = append(got, list[i].Key)
		}
		equal(t, got, want)
	}
}

// keysBesideOne: of a step that has sent often, few keys are read.
func keysBesideOne(t *testing.T, s store.Store) {
	begun(t, s, 1)
	take := func(place int, hash string) {
		key := store.Key{Env: "default", Kind: store.KeySend, Scope: "run_0001", Key: fmt.Sprintf(`[0,"a",%d]`, place), Owner: "o", Hash: hash}
		must(t, s, store.TakeKey{Key: key, Now: T0})
	}
	for place := range 20 {
		take(place, "h")
	}
	take(7, "other")
	take(11, "other")
	for place, want := range map[int]string{3: `[0,"a",11] [0,"a",3] [0,"a",7] `, 7: `[0,"a",11] [0,"a",7] `, 30: `[0,"a",11] [0,"a",7] `} {
		q := store.KeyQuery{Env: "default", Kind: store.KeySend, Scope: "run_0001", Prefix: `[0,"a",`, Key: fmt.Sprintf(`[0,"a",%d]`, place), Now: T0}
		list, err := s.Keys(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for i := range list {
			got += list[i].Key + " "
		}
		equal(t, got, want)
	}
}
