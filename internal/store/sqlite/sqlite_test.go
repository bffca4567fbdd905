package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/sqlite"
	"github.com/nelkap/nelkap/internal/store/storetest"
	"github.com/nelkap/nelkap/internal/workflow"
)

func open(t testing.TB) store.Store { return openIn(t, t.TempDir()) }

func openIn(t testing.TB, dir string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestTheStoreKeepsTheContract(t *testing.T) { storetest.Run(t, open) }

func TestTheStoreIsLikeTheModel(t *testing.T) { storetest.Compare(t, open) }

func TestAReopenedStoreHoldsTheSame(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	storetest.Commit(t, s, store.InsertRun{Run: storetest.NewRun(1)})
	before := storetest.Dump(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("the second close: %v", err)
	}
	again := openIn(t, dir)
	if got := storetest.Dump(t, again); len(got.Runs) != 1 || got.Runs[0].ID != before.Runs[0].ID {
		t.Fatalf("%+v", got)
	}
}

func TestASecondServerOnTheSameDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	openIn(t, dir)
	if _, err := sqlite.Open(context.Background(), dir); !errors.Is(err, store.ErrLocked) {
		t.Fatalf("N5: got %v", err)
	}
}

// Payloads and results are in the files, also where the directory was made by somebody else.
func TestOthersCannotReadTheStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := openIn(t, dir)
	storetest.Commit(t, s, store.InsertRun{Run: storetest.NewRun(1)})
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 3 { // the lock, the store, its log
		t.Fatal(files, err)
	}
	for _, file := range files {
		if info, err := file.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", file.Name(), info.Mode(), err)
		}
	}
}

// An older server than the last would write rows that the newer one takes for its own.
func TestAStoreOfANewerServerIsRefusedAndLeftAsItIs(t *testing.T) {
	dir := t.TempDir()
	if err := openIn(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "nelkap.db")
	newer, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	copy(newer[60:], "\x00\x00\x00\x63") // user_version
	if err := os.WriteFile(file, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("a server: %v", err)
	}
	if _, err := sqlite.OpenSource(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("a move: %v", err)
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, newer) {
		t.Errorf("the file has changed, %v", err)
	}
}

// Rule N2.
func TestACommitThatFailsLeavesNoTrace(t *testing.T) {
	s := openIn(t, t.TempDir())
	run := storetest.NewRun(1)
	d, err := workflow.Apply(run, workflow.Begin{CallID: "call_1", Token: "t"}, storetest.T0)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Commit(t, s, store.InsertRun{Run: d.Run})
	save := func(name string) store.Change {
		step := workflow.Step{StepID: workflow.StepID{Name: name, Number: 1}, Kind: workflow.KindRun, Status: workflow.StepCompleted}
		return store.Change{store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "n", Steps: []workflow.Step{step}}}
	}
	broken := storetest.NewRun(2)
	broken.Status = "no status"
	if _, err := s.Commit(context.Background(), []store.Change{save("a"), {store.InsertRun{Run: broken}}}); !errors.Is(err, store.ErrBadChange) {
		t.Fatalf("a run that the schema refuses: %v", err)
	}
	res := storetest.Commit(t, s, save("b")...)
	if len(res.Steps) != 1 || res.Steps[0].Entry != 1 || !res.Bound || res.Version != d.Run.Version+1 {
		t.Fatalf("W9: after a commit that failed: %+v", res)
	}
	if dump := storetest.Dump(t, s); len(dump.Runs) != 1 || len(dump.Entries[run.ID]) != 1 {
		t.Fatalf("%+v", dump)
	}
}
