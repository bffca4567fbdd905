package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nelkap/nelkap/e2e/plan"
)

func (w *world) marksFile() string { return filepath.Join(w.dir, "marks") }

// seen is what was read of the file of marks: a long test looks often, and each mark is read once.
type seen struct {
	mu    sync.Mutex
	bytes int64
	marks []plan.Mark
}

// markBegins is how each mark begins, in both apps.
const markBegins = `{"kind":`

// marks gives all marks, in the order in which they were left. Whoever gets them changes nothing in them.
func (w *world) marks() []plan.Mark {
	w.t.Helper()
	w.seen.mu.Lock()
	defer w.seen.mu.Unlock()
	file, err := os.Open(w.marksFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.NewSectionReader(file, w.seen.bytes, math.MaxInt64-w.seen.bytes))
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var m plan.Mark
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		whole := line[max(bytes.LastIndex(line, []byte(markBegins)), 0):] // before it stands what a killed process had written of its last mark
		if err := json.Unmarshal(whole, &m); err != nil {
			w.t.Fatalf("a mark %q: %v", line, err)
		}
		w.seen.bytes += int64(len(line))
		w.seen.marks = append(w.seen.marks, m)
	}
	return w.seen.marks
}

// find gives the marks of a kind that a step of a run has left.
func (w *world) find(kind, runID, step string) []plan.Mark {
	w.t.Helper()
	var found []plan.Mark
	for _, m := range w.marks() {
		if m.Kind == kind && m.Run == runID && m.Step == step {
			found = append(found, m)
		}
	}
	return found
}

// mark waits for the n-th mark of a kind that a step of a run leaves.
func (w *world) mark(kind, runID, step string, n int) plan.Mark {
	w.t.Helper()
	return w.markWithin(within, kind, runID, step, n)
}

func (w *world) markWithin(limit time.Duration, kind, runID, step string, n int) plan.Mark {
	w.t.Helper()
	var found []plan.Mark
	eventually(w.t, limit, "the mark "+kind+" of step "+step, func() bool {
		found = w.find(kind, runID, step)
		return len(found) >= n
	})
	return found[n-1]
}

// began waits until a step's body runs for the n-th time.
func (w *world) began(runID, step string, n int) plan.Mark {
	w.t.Helper()
	return w.mark(plan.MarkBody, runID, step, n)
}

// bodies checks how often each step's body has run, and that no others have.
func (w *world) bodies(runID string, want map[string]int) {
	w.t.Helper()
	got := map[string]int{}
	for _, m := range w.marks() {
		if m.Kind == plan.MarkBody && m.Run == runID {
			got[m.Step]++
		}
	}
	for step, n := range want {
		if got[step] != n {
			w.t.Errorf("the body of step %q ran %d times, want %d", step, got[step], n)
		}
	}
	for step := range got {
		if _, ok := want[step]; !ok {
			w.t.Errorf("the body of step %q ran", step)
		}
	}
}

// results checks that each saved step's result is that of its last body, and gives them by name.
func (w *world) results(runID string) map[string]plan.Result {
	w.t.Helper()
	last := map[string]string{}
	for _, m := range w.marks() {
		if m.Kind == plan.MarkBody && m.Run == runID {
			last[m.Step] = m.ID
		}
	}
	return resultsOf(w.t, w, runID, last)
}

func resultsOf(t *testing.T, w *world, runID string, last map[string]string) map[string]plan.Result {
	t.Helper()
	results := map[string]plan.Result{}
	for _, s := range w.steps(runID) {
		if s.Status != "completed" {
			t.Errorf("step %q of %s is %s", s.Name, runID, s.Status)
			continue
		}
		result := decode[plan.Result](t, s.Output)
		if result.ID != last[s.Name] {
			t.Errorf("step %q of %s has the result of body %s, but the last body that ran was %s", s.Name, runID, result.ID, last[s.Name])
		}
		results[s.Name] = result
	}
	return results
}

// repeated is the name of the n-th step of a plan's Repeat.
func repeated(n int) string { return "step " + strconv.Itoa(n) }
