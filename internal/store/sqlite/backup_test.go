package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/sqlite"
	"github.com/nelkap/nelkap/internal/store/storetest"
)

// backup makes a backup of a directory, and restores it elsewhere.
func backup(t *testing.T, dir string) (file, restored string) {
	t.Helper()
	file, restored = filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "restored")
	if err := sqlite.Backup(t.Context(), dir, file); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Restore(t.Context(), file, restored); err != nil {
		t.Fatal(err)
	}
	return file, restored
}

// Rule N5.
func TestARestoredStoreHoldsWhatWasBackedUpUntilItGoesOn(t *testing.T) {
	for seed := range 3 {
		dir := t.TempDir()
		s := openIn(t, dir)
		for _, batch := range storetest.Batches(seed, 12) {
			if _, err := s.Commit(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
		}
		_, restored := backup(t, dir)
		again := openIn(t, restored)
		if !again.Held() || s.Held() {
			t.Fatalf("held: the restored store %v, the other %v", again.Held(), s.Held())
		}
		if diff := cmp.Diff(storetest.Dump(t, s), storetest.Dump(t, again), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-backed up +restored)\n%s", diff)
		}
		if _, err := sqlite.GoOn(t.Context(), restored); !errors.Is(err, store.ErrLocked) {
			t.Fatalf("it goes on under a server: %v", err)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time nothing is left to do
			if _, err := sqlite.GoOn(t.Context(), restored); err != nil {
				t.Fatal(err)
			}
		}
		if openIn(t, restored).Held() {
			t.Fatal("it is held still")
		}
	}
}

// A backup is the store after some commit, whole, however many there are meanwhile.
func TestABackupBesideAServerIsOfOneMoment(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	begun := make(chan struct{})
	writer.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			// Each change has two rows that belong together.
			id := fmt.Sprint(n)
			_, err := s.Commit(context.WithoutCancel(ctx), []store.Change{{
				store.InsertEvent{Event: store.Event{Env: "default", Name: "a", ID: id, CreatedAt: storetest.T0}},
				store.InsertEvent{Event: store.Event{Env: "default", Name: "b", ID: id, CreatedAt: storetest.T0}},
			}})
			if err != nil {
				t.Error(err)
				return
			}
			if n == 100 {
				close(begun)
			}
		}
	})
	<-begun
	last := 0
	for range 4 {
		_, restored := backup(t, dir)
		events, err := openIn(t, restored).Events(t.Context(), store.EventQuery{Env: "default", Limit: 1_000_000})
		if err != nil {
			t.Fatal(err)
		}
		if len(events)%2 != 0 || len(events) < 200 || len(events) < last {
			t.Errorf("the backup has %d events, the one before had %d", len(events), last)
		}
		last = len(events)
	}
	stop()
	writer.Wait()
}

func TestABackupOverwritesNothingAndLeavesNothingBehind(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	openIn(t, dir)
	file := filepath.Join(out, "backup")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := sqlite.Backup(t.Context(), dir, file); !errors.Is(err, store.ErrExists) {
		t.Errorf("over a file: %v", err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "mine" {
		t.Errorf("the file has %q, %v", text, err)
	}
	if err := sqlite.Backup(t.Context(), t.TempDir(), filepath.Join(out, "another")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of no store: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := sqlite.Backup(ended, dir, filepath.Join(out, "another")); err == nil {
		t.Error("broken off, and no error")
	}
	if list, err := os.ReadDir(out); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

// Each refusal leaves no store, so that a restore may be tried again with another file.
func TestWhatIsNoWholeBackupIsNotRestored(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	for n := range 200 {
		storetest.Commit(t, s, store.InsertRun{Run: storetest.NewRun(n), Payload: []byte(`"` + strings.Repeat("x", 500) + `"`)})
	}
	good := filepath.Join(t.TempDir(), "good")
	if err := sqlite.Backup(t.Context(), dir, good); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	restored := filepath.Join(t.TempDir(), "restored")
	for what, spoil := range map[string]func(b []byte) []byte{
		"cut short":       func(b []byte) []byte { return b[:len(b)/2] },
		"damaged":         func(b []byte) []byte { copy(b[4096*8:], strings.Repeat("\xaa", 4096*3)); return b },
		"another program": func(b []byte) []byte { copy(b[68:], "abcd"); return b },
		"of the future":   func(b []byte) []byte { copy(b[60:], "\x00\x00\x00\x63"); return b },
		"empty":           func([]byte) []byte { return nil },
		"a text":          func([]byte) []byte { return []byte("a text") },
	} {
		bad := filepath.Join(t.TempDir(), "bad")
		if err := os.WriteFile(bad, spoil(append([]byte(nil), whole...)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sqlite.Restore(t.Context(), bad, restored); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", what, err)
		}
		if list, err := filepath.Glob(filepath.Join(restored, "nelkap*")); err != nil || len(list) > 0 {
			t.Errorf("%s: it left %v, %v", what, list, err)
		}
	}
	if _, err := sqlite.Restore(t.Context(), filepath.Join(dir, "nothing"), restored); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("no file: %v", err)
	}
	// One that was killed left a part of a file behind.
	if err := os.WriteFile(filepath.Join(restored, "nelkap.db.restoring"), whole[:5000], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), restored); !errors.Is(err, store.ErrNotFound) || !strings.Contains(err.Error(), "nelkap restore") {
		t.Errorf("a server on what is not restored yet: %v", err)
	}
	if runs, err := sqlite.Restore(t.Context(), good, restored); err != nil || runs != 200 {
		t.Errorf("%d runs, %v", runs, err)
	}
	if _, err := sqlite.Restore(t.Context(), good, restored); !errors.Is(err, store.ErrExists) {
		t.Errorf("over a store: %v", err)
	}
}

// Rule N5: what has moved is backed up where it is now.
func TestAStoreThatMovesIsNeitherServedNorBackedUp(t *testing.T) {
	dir := t.TempDir()
	if err := openIn(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	for _, phase := range []store.Phase{store.PhaseMoving, store.PhaseMoved} {
		source, err := sqlite.OpenSource(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(source.SetStanding(t.Context(), store.Standing{Phase: phase, Move: "move_1", Place: "postgres db:5432/nelkap"}), source.Close()); err != nil {
			t.Fatal(err)
		}
		_, opened := sqlite.Open(t.Context(), dir)
		_, wentOn := sqlite.GoOn(t.Context(), dir)
		for what, err := range map[string]error{"open": opened, "backup": sqlite.Backup(t.Context(), dir, filepath.Join(t.TempDir(), "b")), "go on": wentOn} {
			if !errors.Is(err, store.ErrMoved) || !strings.Contains(err.Error(), "postgres db:5432/nelkap") {
				t.Errorf("%s, %s: %v", phase, what, err)
			}
		}
	}
}
