package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nelkap/nelkap/e2e/plan"
)

const (
	startMax      = 300 * time.Millisecond
	startTries    = 5
	idleBytesMax  = 40 << 20
	refusedWithin = 10 * time.Second
)

// The best of a few tries counts: other tests use the machine meanwhile.
func TestAServerStartsAtOnceAndTakesLittleMemory(t *testing.T) {
	t.Parallel()
	best := time.Hour
	for range startTries {
		w := newWorld(t)
		server := w.serve(oldKey)
		begun := time.Now()
		server.launch()
		eventually(t, within, "the server's first answer", func() bool { return healthy(t.Context(), server.health) })
		best = min(best, time.Since(begun))
		if best < startMax {
			pass(t.Context(), settle)
			idle := residentBytes(t, server.pid())
			t.Logf("first answer after %v at best, %d MiB when idle", best.Round(time.Millisecond), idle>>20)
			if idle > idleBytesMax {
				t.Errorf("an idle server takes %d MiB, more than %d", idle>>20, idleBytesMax>>20)
			}
			return
		}
	}
	t.Errorf("the first answer came after %v at best, want less than %v", best, startMax)
}

func TestTheServerIsBuiltWithoutC(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "version", "-m", built.server).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "CGO_ENABLED=0") {
		t.Errorf("go version -m: %v\n%s", err, out)
	}
}

func TestADataDirectoryHasOneServer(t *testing.T) {
	t.Parallel()
	w, _ := newSimple(t, "go")
	id := w.run("go", plan.Plan{Steps: []plan.Step{{Name: "one"}}})
	w.completed(id, within)
	second := &process{
		t: t, name: "the second server", path: built.server,
		args: []string{"dev", "--addr", freeAddress(t), "--data", filepath.Join(w.dir, "data")},
	}
	second.tidy()
	second.launch()
	eventually(t, refusedWithin, "the second server to give up", second.hasEnded)
	if code := second.exit(); code != 1 {
		t.Errorf("the second server exited with %d", code)
	}
	said := string(second.lastWords())
	t.Logf("the second server says: %s", said)
	for _, word := range []string{filepath.Join(w.dir, "data"), "another"} {
		if !strings.Contains(said, word) {
			t.Errorf("what the second server says lacks %q: %s", word, said)
		}
	}
	w.server.kill()
	w.server.start()
	w.ready("go")
	if run := w.get(id); run.Status != "completed" {
		t.Errorf("after the restart the run is %s", run.Status)
	}
	w.completed(w.run("go", plan.Plan{Steps: []plan.Step{{Name: "one"}}}), within)
}
