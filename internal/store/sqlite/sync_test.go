//go:build unix

package sqlite_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// A commit that failed did not happen, also for the process that comes after this one was killed, or it says so.
func TestACommitWhoseSyncFailedSaysSo(t *testing.T) {
	record(t)
	dir := t.TempDir()
	_, done := watch(t, dir, nil)
	defer done()
	s := openIn(t, dir)
	insert := func(id string) error {
		run := workflow.Start(workflow.Run{ID: id, Env: "default", App: "a", Workflow: "w"}, workflow.Settings{Lease: time.Minute}, time.Now())
		_, err := s.Commit(t.Context(), []store.Change{{store.InsertRun{Run: run, Payload: []byte(`1`)}}})
		return err
	}
	if err := insert("run_a"); err != nil {
		t.Fatal(err)
	}
	recorder.syncFails.Store(true)
	defer recorder.syncFails.Store(false)
	err := insert("run_b")
	if _, _, readErr := s.Load(t.Context(), "run_b"); !errors.Is(readErr, store.ErrNotFound) {
		t.Fatalf("this process reads it: %v", readErr)
	}
	killed := t.TempDir()
	if err := os.CopyFS(killed+"/d", os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	recorder.syncFails.Store(false)
	if _, _, there := openIn(t, killed+"/d").Load(t.Context(), "run_b"); there == nil && !errors.Is(err, store.ErrUnsynced) {
		t.Errorf("run_b is there after the restart, and its commit said %v", err)
	}
}
