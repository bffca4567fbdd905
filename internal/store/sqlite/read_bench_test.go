package sqlite_test

import (
	"context"
	"encoding/json/jsontext"
	"testing"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/sqlite"
	"github.com/nelkap/nelkap/internal/store/storetest"
	"github.com/nelkap/nelkap/internal/workflow"
)

// What it costs to read a run with ten entries, as each call but the first does.
func BenchmarkReading(b *testing.B) {
	s, err := sqlite.Open(context.Background(), b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	run := storetest.NewRun(1)
	d, err := workflow.Apply(run, workflow.Begin{CallID: "call_1", Token: "t"}, storetest.T0)
	if err != nil {
		b.Fatal(err)
	}
	save := store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "n"}
	for i := range 10 {
		save.Steps = append(save.Steps, workflow.Step{StepID: workflow.StepID{Name: "a", Number: i + 1}, Kind: workflow.KindRun, Status: workflow.StepCompleted, Output: jsontext.Value(`"result"`), Attempts: 1})
	}
	results, err := s.Commit(context.Background(), []store.Change{{store.InsertRun{Run: d.Run}}, {save}})
	if err != nil || results[1].Err != nil {
		b.Fatal(err, results)
	}
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := s.Load(context.Background(), run.ID); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("state", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.State(context.Background(), store.EntryQuery{RunID: run.ID, EntriesMax: 1000, BytesMax: 1 << 20}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
