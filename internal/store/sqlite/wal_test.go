package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/sqlite"
	"github.com/nelkap/nelkap/internal/workflow"
)

// Readers that overlap without a gap: SQLite alone would never begin the log anew.
func TestTheLogIsBoundedWhileReadsOverlap(t *testing.T) {
	const most = 8 << 20
	sqlite.WALMax(t, most)
	dir := t.TempDir()
	s, err := sqlite.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	n := 0
	commit := func(k int) {
		t.Helper()
		var changes []store.Change
		for range k {
			n++
			run := workflow.Start(workflow.Run{ID: fmt.Sprintf("run_%026d", n), Env: "default", App: "a", Workflow: "w"}, workflow.Settings{Lease: time.Minute}, time.Now())
			changes = append(changes, store.Change{store.InsertRun{Run: run, Payload: fmt.Appendf(nil, `"%01000d"`, n)}})
		}
		if _, err := s.Commit(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
	}
	commit(2_000)
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.Runs(context.Background(), store.RunQuery{Env: "default", Limit: 200}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	longest := int64(0)
	for range 640 {
		commit(10)
		if file, err := os.Stat(filepath.Join(dir, "nelkap.db-wal")); err == nil {
			longest = max(longest, file.Size())
		}
	}
	cancel()
	readers.Wait()
	if longest > 2*most {
		t.Errorf("the log grew to %d MB", longest>>20)
	}
}
