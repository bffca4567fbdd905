package storetest

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// BenchmarkSaves commits batches of saves, one step of 100 bytes each, of as many runs: what a busy server does most.
func BenchmarkSaves(b *testing.B, s store.Store, runs int) {
	var inserts []store.Change
	for n := range runs {
		d, err := workflow.Apply(NewRun(n), workflow.Begin{CallID: "call_1", Token: "t"}, T0)
		if err != nil {
			b.Fatal(err)
		}
		inserts = append(inserts, store.Change{store.InsertRun{Run: d.Run}})
	}
	if _, err := s.Commit(context.Background(), inserts); err != nil {
		b.Fatal(err)
	}
	output := fmt.Sprintf(`"%s"`, bytes.Repeat([]byte("x"), 98))
	number := 0
	for b.Loop() {
		number++
		batch := make([]store.Change, runs)
		for n := range batch {
			batch[n] = store.Change{store.SaveSteps{RunID: NewRun(n).ID, CallID: "call_1", Nonce: "n", Steps: []workflow.Step{step("charge the card", number, output)}}}
		}
		results, err := s.Commit(context.Background(), batch)
		if err != nil {
			b.Fatal(err)
		}
		for _, res := range results {
			if res.Err != nil || res.Steps[0].Entry != int64(number) {
				b.Fatalf("%+v", res)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*runs), "µs/save")
}
