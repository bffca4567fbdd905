//go:build unix

package sqlite_test

import (
	"bytes"
	"context"
	"encoding/json/jsontext"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/store/sqlite"
	"github.com/nelkap/nelkap/internal/store/storetest"
)

var (
	cutsFlag = flag.Int("cuts", cutsStd, "how often the power is cut; a cut takes 10 to 20 ms, ten times that under the race detector")
	seedFlag = flag.Int("seed", 1, "the first history's seed")
)

const (
	// A history is long enough for some checkpoints and short enough to be shown: a store's life is a few dozen batches.
	batchesPerHistory = 60
	livesPerHistory   = 3
	cutsPerLife       = 10
	// cutsStd is enough to meet all that can be met.
	cutsStd = 40
)

// errLost: something that the store had acknowledged is gone.
var errLost = errors.New("an acknowledged change is lost")

// Rule W6.
func TestNothingAcknowledgedIsLostWhenThePowerGoes(t *testing.T) {
	record(t)
	sqlite.Pragmas(t, "PRAGMA wal_autocheckpoint = 20") // pages, not 1,000: the file itself is written too, every few batches
	var total tally
	for seed := *seedFlag; total.cuts < *cutsFlag; seed++ {
		h := newHistory(t, seed)
		if err := h.play(&total, cutsPerLife); err != nil {
			t.Fatalf("seed %d: %v\nAgain: go test ./internal/store/sqlite -run PowerGoes -seed %d", seed, err, seed)
		}
	}
	t.Logf("%s violations=0", total)
	for what, n := range map[string]int{
		"cuts with something unsynced": total.unsynced, "cuts in a batch that was there": total.ahead,
		"cuts that lost a batch in flight": total.behind, "checkpoints": total.checkpoints, "lives after a cut": total.lives,
	} {
		if n == 0 && total.cuts >= cutsStd {
			t.Errorf("no %s: the test proves less than it says", what)
		}
	}
}

// What follows shows that the check can fail.

func TestThePowerCutCheckSeesAStoreThatDoesNotSync(t *testing.T) {
	for _, pragma := range []string{"PRAGMA synchronous = OFF", "PRAGMA synchronous = NORMAL"} {
		t.Run(pragma, func(t *testing.T) {
			record(t)
			sqlite.Pragmas(t, pragma)
			mustLose(t, nil)
		})
	}
}

func TestThePowerCutCheckSeesADirectoryThatIsNotSynced(t *testing.T) {
	record(t)
	mustLose(t, func(e event) bool { return e.kind != dirSynced })
}

func TestThePowerCutCheckSeesADiskThatForgetsOneSyncInFive(t *testing.T) {
	record(t)
	n := 0
	mustLose(t, func(e event) bool {
		if e.kind == synced {
			n++
		}
		return e.kind != synced || n%5 != 0
	})
}

// mustLose plays histories, of whose records only the events that keep accepts are believed, until one loses something.
func mustLose(t *testing.T, keep func(event) bool) {
	var total tally
	for seed := 1; total.cuts < 300; seed++ {
		h := newHistory(t, seed)
		h.keep = keep
		if err := h.play(&total, cutsPerLife); errors.Is(err, errLost) {
			line, _, _ := strings.Cut(err.Error(), "\n")
			t.Logf("seen after %d cuts: %s", total.cuts, line)
			return
		}
	}
	t.Fatalf("%s: the check saw nothing", total)
}

func TestANewDataDirectoryIsOnDiskBeforeItHoldsAnything(t *testing.T) {
	top := t.TempDir()
	var synced []string
	sqlite.WatchDirSyncs(t, func(dir string) {
		if files, err := filepath.Glob(filepath.Join(top, "a/b/*")); err != nil || len(files) > 0 {
			t.Errorf("%v are there before their directory is on disk (%v)", files, err)
		}
		synced = append(synced, dir)
	})
	openIn(t, filepath.Join(top, "a", "b")).Close()
	slices.Sort(synced)
	if diff := cmp.Diff([]string{top, filepath.Join(top, "a")}, synced); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
	synced = nil
	if openIn(t, filepath.Join(top, "a", "b")); len(synced) > 0 {
		t.Fatalf("a directory that is there already: %v", synced)
	}
}

// tally counts what the cuts met.
type tally struct {
	histories, lives, batches, events, cuts int

	unsynced    int // cuts at which something was not synced
	ahead       int // after which a batch was there that had not been acknowledged
	behind      int // or a batch was gone whose commit had begun
	checkpoints int // syncs of the database file while its store was open
}

func (n tally) String() string {
	return fmt.Sprintf("histories=%d lives=%d batches=%d events=%d cuts=%d unsynced=%d ahead=%d behind=%d checkpoints=%d",
		n.histories, n.lives, n.batches, n.events, n.cuts, n.unsynced, n.ahead, n.behind, n.checkpoints)
}

// history is a list of batches, what the model holds after each, and what chance decides.
type history struct {
	t       testing.TB
	rng     *rand.Rand
	batches [][]store.Change
	states  []storetest.Contents // before the first batch, after it, …
	keep    func(event) bool
	dir     string // for the stores' directories
}

func newHistory(t testing.TB, seed int) *history {
	h := &history{t: t, rng: rand.New(rand.NewPCG(uint64(seed), 0)), batches: storetest.Batches(seed, batchesPerHistory), dir: t.TempDir()}
	model := memory.New()
	h.states = append(h.states, storetest.Dump(t, model))
	for i, batch := range h.batches {
		if h.rng.IntN(3) > 0 { // values that fill pages, and chains of them
			payload := slices.Concat([]byte(`"`), bytes.Repeat([]byte("x"), h.rng.IntN(12_000)), []byte(`"`))
			h.batches[i] = append(batch, store.Change{store.InsertEvent{Event: store.Event{
				Env: "default", Name: "filler", ID: fmt.Sprint(i), Payload: payload, CreatedAt: storetest.T0,
			}}})
		}
		if _, err := model.Commit(context.Background(), h.batches[i]); err != nil {
			t.Fatal(err)
		}
		h.states = append(h.states, storetest.Dump(t, model))
	}
	return h
}

// play lets a store live until the power goes, cuts at several points of that life, and goes on from what one of the cuts left.
func (h *history) play(n *tally, cuts int) error {
	n.histories++
	base, done := map[string][]byte{}, 0
	for life := range livesPerHistory {
		until := done + 1 + h.rng.IntN(len(h.batches)-done)
		d := h.live(base, done, until)
		n.lives += min(life, 1)
		n.batches += until - done
		if h.keep != nil {
			d.events = slices.DeleteFunc(d.events, func(e event) bool { return !h.keep(e) })
		}
		n.events += len(d.events)
		n.checkpoints += d.syncs("nelkap.db")
		points := make([]int, cuts)
		for i := range points {
			points[i] = h.rng.IntN(len(d.events) + 1)
		}
		slices.Sort(points)
		next, left := h.rng.IntN(cuts), map[string][]byte(nil)
		reached := done
		p := d.spin()
		for i, point := range points {
			p.forward(point)
			image := p.cut(h.rng)
			state, err := h.check(image, done, p, n)
			if err != nil {
				return fmt.Errorf("life %d, cut at event %d of %d, %d batches acknowledged: %w", life+1, point, len(d.events), done+max(p.acknowledged-1, 0), err)
			}
			if i == next {
				left, reached = image, state
			}
		}
		if base, done = left, reached; done == len(h.batches) {
			return nil
		}
	}
	return nil
}

// live opens a store on what base holds, and commits the batches from done on. Now and then the store is closed and opened
// again. The first thing that is acknowledged is that the store is open.
func (h *history) live(base map[string][]byte, done, until int) *disk {
	dir := h.put(base)
	defer os.RemoveAll(dir)
	d, unwatch := watch(h.t, dir, base)
	defer unwatch()
	s := h.open(dir)
	d.add(event{kind: acknowledged})
	for _, batch := range h.batches[done:until] {
		if h.rng.IntN(20) == 0 {
			s.Close()
			s = h.open(dir)
		}
		if _, err := s.Commit(context.Background(), batch); err != nil {
			h.t.Fatalf("commit: %v", err)
		}
		d.add(event{kind: acknowledged})
	}
	if err := s.Close(); err != nil {
		h.t.Fatal(err)
	}
	return d
}

func (h *history) open(dir string) *sqlite.Store {
	s, err := sqlite.Open(context.Background(), dir)
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

// put writes files into a new directory. The WAL index is no file that SQLite syncs: sometimes there is one, with anything in it.
func (h *history) put(files map[string][]byte) string {
	dir, err := os.MkdirTemp(h.dir, "")
	if err != nil {
		h.t.Fatal(err)
	}
	if len(files) > 0 && h.rng.IntN(4) == 0 {
		files = map[string][]byte{"nelkap.db": files["nelkap.db"], "nelkap.db-wal": files["nelkap.db-wal"], "nelkap.db-journal": files["nelkap.db-journal"], "nelkap.db-shm": h.noise(32 << 10)}
	}
	for name, content := range files {
		if content == nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	return dir
}

func (h *history) noise(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(h.rng.Uint32())
	}
	return b
}

// check opens the store that a cut left, by the store's own code, and compares it with the model: all that was acknowledged is
// there, the batch in flight wholly or not at all, and nothing else. It gives the number of batches that are there.
func (h *history) check(image map[string][]byte, done int, p *platter, n *tally) (state int, err error) {
	n.cuts++
	if p.unsynced() {
		n.unsynced++
	}
	dir := h.put(image)
	defer os.RemoveAll(dir)
	s, err := sqlite.Open(context.Background(), dir)
	if err != nil {
		return 0, fmt.Errorf("%w: the store doesn't open: %w", errLost, err)
	}
	defer s.Close()
	faults, err := s.IntegrityCheck(context.Background())
	if err != nil || len(faults) > 0 {
		return 0, fmt.Errorf("%w: the file is damaged: %v, %w", errLost, faults, err)
	}
	var dump complaint
	got := storetest.Dump(&dump, s)
	if dump.text != "" {
		return 0, fmt.Errorf("%w: %s", errLost, dump.text)
	}
	acknowledged := done + max(p.acknowledged-1, 0)
	if cmp.Equal(h.states[acknowledged], got, values) {
		if p.inFlight {
			n.behind++
		}
		return acknowledged, h.goesOn(s)
	}
	if next := acknowledged + 1; next < len(h.states) && cmp.Equal(h.states[next], got, values) {
		n.ahead++
		return next, h.goesOn(s)
	}
	return 0, fmt.Errorf("%w (-model +store)\n%s", errLost, cmp.Diff(h.states[acknowledged], got, values))
}

// values compares contents, and users' values as a whole: byte by byte it would take most of the time.
var values = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.FilterValues(func(a, b jsontext.Value) bool { return len(a)+len(b) > 0 }, cmp.Comparer(func(a, b jsontext.Value) bool { return bytes.Equal(a, b) })),
}

// goesOn tells whether the store takes changes again.
func (h *history) goesOn(s *sqlite.Store) error {
	e := store.Event{Env: "other", Name: "after", ID: "1", CreatedAt: storetest.T0}
	results, err := s.Commit(context.Background(), []store.Change{{store.InsertEvent{Event: e}}})
	if err != nil {
		return fmt.Errorf("the next commit: %w", err)
	}
	return results[0].Err
}

// complaint takes down what a dump could not read.
type complaint struct{ text string }

func (c *complaint) Fatalf(format string, args ...any) {
	if c.text == "" {
		c.text = fmt.Sprintf(format, args...)
	}
}
