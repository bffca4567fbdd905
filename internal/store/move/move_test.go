package move_test

import (
	"bytes"
	"context"
	"encoding/json/jsontext"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/store/move"
	"github.com/nelkap/nelkap/internal/store/postgres"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
	"github.com/nelkap/nelkap/internal/store/sqlite"
	"github.com/nelkap/nelkap/internal/store/storetest"
	"github.com/nelkap/nelkap/internal/workflow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// empty databases have nothing at all, not even a schema.
var empty = pgtest.Kind{Name: "empty", Prepare: func(string) error { return nil }, Empty: "DROP SCHEMA public CASCADE; CREATE SCHEMA public"}

// world is a directory with a store in it, and an empty database.
type world struct {
	t        testing.TB
	server   *pgtest.Server
	dir      string
	database string
	url      string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, server: pgtest.Shared(t), dir: filepath.Join(t.TempDir(), "data")}
	w.database = w.server.Database(t, empty)
	w.url = w.server.URL(w.database)
	return w
}

// forgotten makes a database that has a schema as good as new: making it anew takes longer than a move.
var forgotten = pgtest.Emptied("nelkap_schema", "counters") + "; UPDATE counters SET value = 0"

// again is the world as it was before any move: with a copy of a directory, and no row in the database.
func (w *world) again(dir string) {
	w.t.Helper()
	target, err := postgres.OpenTarget(context.Background(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := target.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.server.Exec(w.t, w.database, forgotten)
	if err := errors.Join(os.RemoveAll(w.dir), os.CopyFS(w.dir, os.DirFS(dir))); err != nil {
		w.t.Fatal(err)
	}
}

// fill commits batches to the directory's store.
func (w *world) fill(batches [][]store.Change) {
	w.t.Helper()
	s, err := sqlite.Open(context.Background(), w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	play(w.t, s, batches)
	if err := s.Close(); err != nil {
		w.t.Fatal(err)
	}
}

func play(t testing.TB, s store.Store, batches [][]store.Change) {
	t.Helper()
	for _, batch := range batches {
		if _, err := s.Commit(context.Background(), batch); err != nil {
			t.Fatal(err)
		}
	}
}

// migrate does what the command does, through wrappers.
func (w *world) migrate(url string, from func(move.Source) move.Source, to func(move.Target) move.Target) error {
	ctx := context.Background()
	source, err := sqlite.OpenSource(ctx, w.dir)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := postgres.OpenTarget(ctx, url)
	if err != nil {
		return err
	}
	defer target.Close()
	return move.Run(ctx, from(source), to(target), move.Options{Place: "the database"})
}

func (w *world) move() error { return w.migrate(w.url, same[move.Source], same[move.Target]) }

func (w *world) mustMove() {
	w.t.Helper()
	if err := w.move(); err != nil {
		w.t.Fatal(err)
	}
}

func same[T any](v T) T { return v }

func (w *world) abort() error {
	source, err := sqlite.OpenSource(context.Background(), w.dir)
	if err != nil {
		return err
	}
	defer source.Close()
	return move.Abort(context.Background(), source)
}

// usable tells which of the two stores a server may use now.
func (w *world) usable() (old, fresh bool) {
	w.t.Helper()
	s, err := sqlite.Open(context.Background(), w.dir)
	if old = err == nil; old {
		err = s.Close()
	} else if errors.Is(err, store.ErrMoved) {
		err = nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := postgres.Open(context.Background(), w.url)
	if fresh = err == nil; fresh {
		err = p.Close()
	} else if errors.Is(err, store.ErrMoved) {
		err = nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return old, fresh
}

func (w *world) openTarget() *postgres.Store {
	w.t.Helper()
	s, err := postgres.Open(context.Background(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { s.Close() })
	return s
}

// contents are everything that a store answers, and in which order waits were opened.
type contents struct {
	All   storetest.Contents
	Order []int64
}

// moved leaves out what is not moved: the servers that were there.
func moved(c storetest.Contents) storetest.Contents {
	c.Nodes = nil
	return c
}

func dump(t testing.TB, s store.Reader) contents {
	t.Helper()
	c := contents{All: moved(storetest.Dump(t, s))}
	for _, run := range c.All.Runs {
		waits, err := s.Waits(context.Background(), store.WaitQuery{Set: store.WaitsOfRun, RunID: run.ID})
		if err != nil {
			t.Fatal(err)
		}
		for _, wait := range waits {
			c.Order = append(c.Order, wait.Order)
		}
	}
	return c
}

func (w *world) dumpSource() contents {
	w.t.Helper()
	s, err := sqlite.Open(context.Background(), w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	defer s.Close()
	return dump(w.t, s)
}

// Rule N5: whatever a store holds, it answers the same after the move, and goes on as if it had never been elsewhere.
func TestAMovedStoreAnswersAsBeforeAndGoesOn(t *testing.T) {
	seeds := 10
	if testing.Short() {
		seeds = 3
	}
	w := newWorld(t)
	for seed := range seeds {
		w.again(t.TempDir())
		batches := storetest.Batches(seed, 30)
		before, after := batches[:15+seed%10], batches[15+seed%10:]
		w.fill(before)
		want := w.dumpSource()
		w.mustMove()
		s := w.openTarget()
		if diff := cmp.Diff(want, dump(t, s), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d: the moved store answers differently (-before +after)\n%s", seed, diff)
		}
		model := memory.New()
		play(t, model, before)
		for _, batch := range after {
			want, err := model.Commit(t.Context(), batch)
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.Commit(t.Context(), batch)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, storetest.SameErrors, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("seed %d: after the move (-model +store)\n%s", seed, diff)
			}
		}
		if diff := cmp.Diff(moved(storetest.Dump(t, model)), moved(storetest.Dump(t, s)), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d: after the move and more (-model +store)\n%s", seed, diff)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A pooler gives each transaction another connection: nothing of a move may need a session.
func TestAMoveMayGoThroughATransactionPooler(t *testing.T) {
	w := newWorld(t)
	w.fill(storetest.Batches(2, 10))
	want := w.dumpSource()
	if err := w.migrate(w.server.Pooler(t).URL(w.database), same[move.Source], same[move.Target]); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, dump(t, w.openTarget()), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("(-before +after)\n%s", diff)
	}
}

// odd are texts that a database of texts would refuse or change.
const odd = "a\x00b\xed\xa0\x80\xff ſ’\U0001F600\\x41"

// Rule N5.
func TestAMoveKeepsEveryByte(t *testing.T) {
	w := newWorld(t)
	run := storetest.NewRun(1)
	run.Key, run.Event, run.EventID, run.Workflow = odd, odd, odd, odd
	large := storetest.NewRun(2)
	large.Env = "other" // that dump does not compare byte by byte
	payload := jsontext.Value(`"` + strings.Repeat("é", 1<<20) + `"`)
	delivery := store.Delivery{ID: "dlv_1", Env: "default", Hook: odd, Status: "verified", Request: []byte(odd), Body: []byte{}, ReceivedAt: storetest.T0}
	w.fill([][]store.Change{{
		{store.InsertRun{Run: run, Payload: jsontext.Value(odd)}},
		{store.InsertRun{Run: large, Payload: payload}},
		{store.InsertEvent{Event: store.Event{Env: "default", Name: odd, ID: odd, Payload: jsontext.Value("null"), CreatedAt: storetest.T0}}},
		{store.TakeKey{Key: store.Key{Env: "default", Kind: store.KeyRun, Scope: run.ID, Key: odd, Owner: odd, Answer: []byte{0, 1}}, Now: storetest.T0}},
		{store.InsertDelivery{Delivery: delivery}},
		{store.Advance{Cursor: odd, Position: 7}},
	}})
	want := w.dumpSource()
	w.mustMove()
	s := w.openTarget()
	if diff := cmp.Diff(want, dump(t, s)); diff != "" {
		t.Fatalf("(-before +after)\n%s", diff)
	}
	if got, err := s.Record(t.Context(), "other", large.ID); err != nil || !bytes.Equal(got.Payload, payload) {
		t.Errorf("a payload of %d bytes has %d, %v", len(payload), len(got.Payload), err)
	}
	if got, err := s.Delivery(t.Context(), "default", "dlv_1"); err != nil || string(got.Request) != odd {
		t.Errorf("%+v, %v", got, err)
	}
	if position, err := s.Position(t.Context(), odd); err != nil || position != 7 {
		t.Errorf("the cursor is at %d, %v", position, err)
	}
}

// Positions of deliveries are never used again, also over a move.
func TestNumbersThatAreGoneAreNotDrawnAgain(t *testing.T) {
	w := newWorld(t)
	delivery := func(id string) store.Change {
		return store.Change{store.InsertDelivery{Delivery: store.Delivery{ID: id, Env: "default", Hook: "h", Status: "verified", ReceivedAt: storetest.T0}}}
	}
	w.fill([][]store.Change{{delivery("dlv_1"), delivery("dlv_2"), {store.DropDeliveries{Before: storetest.T0, Limit: 10}}}})
	w.mustMove()
	s := w.openTarget()
	play(t, s, [][]store.Change{{delivery("dlv_3")}})
	if got, err := s.Delivery(t.Context(), "default", "dlv_3"); err != nil || got.Position != 3 {
		t.Errorf("position %d, %v", got.Position, err)
	}
}

// Rule N5: a column or a table that a move forgets would be lost with the old store.
func TestEveryColumnOfTheDatabaseIsFilledByAMove(t *testing.T) {
	// What is the database's own, and does not come from another store.
	own := []string{"nelkap_schema", "phase", "home", "counters", "nodes"}
	w := newWorld(t)
	w.fill(nil)
	w.mustMove()
	source, err := sqlite.OpenSource(t.Context(), w.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	tables, err := source.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	filled := map[string][]string{}
	for _, table := range tables {
		filled[table.Name] = table.Columns
	}
	conn, err := pgx.Connect(t.Context(), w.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `SELECT table_name, column_name FROM information_schema.columns WHERE table_schema='public' AND is_generated='NEVER'
		AND table_name IN (SELECT tablename FROM pg_tables WHERE schemaname='public')`)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			t.Fatal(err)
		}
		if count++; !slices.Contains(own, table) && !slices.Contains(filled[table], column) {
			t.Errorf("a move does not fill %s.%s: add it to the statements of internal/store/sqlite that begin with sqlMove, or to this test's list of what is the database's own", table, column)
		}
	}
	if rows.Err() != nil || count < 100 {
		t.Fatalf("%d columns, %v", count, rows.Err())
	}
}

// Rule N5: each refusal changes nothing and says what to do.
func TestWhatCannotBeMovedIsRefused(t *testing.T) {
	refused := func(t *testing.T, err error, word string) {
		t.Helper()
		if !errors.Is(err, move.ErrRefused) || !strings.Contains(err.Error(), word) {
			t.Errorf("got %v, want a refusal that says %q", err, word)
		}
	}
	t.Run("to a database that has runs", func(t *testing.T) {
		w := newWorld(t)
		w.fill(storetest.Batches(1, 3))
		play(t, w.openTarget(), [][]store.Change{{{store.InsertRun{Run: storetest.NewRun(99)}}}})
		refused(t, w.move(), "table runs")
		if old, fresh := w.usable(); !old || !fresh {
			t.Error("the stores are not as they were")
		}
	})
	t.Run("to another database than the one it was moved to", func(t *testing.T) {
		w, other := newWorld(t), newWorld(t)
		w.fill(nil)
		w.mustMove()
		w.mustMove() // the same again is done already
		refused(t, w.migrate(other.url, same[move.Source], same[move.Target]), "is not that")
		refused(t, w.abort(), "no way back")
	})
	t.Run("to a database that another move fills", func(t *testing.T) {
		w, other := newWorld(t), newWorld(t)
		w.fill(nil)
		other.fill(storetest.Batches(1, 3))
		if err := w.migrate(w.url, same[move.Source], func(to move.Target) move.Target { return &faultyTarget{to, &fault{at: 5}} }); err == nil {
			t.Fatal("there was no fault")
		}
		refused(t, other.migrate(w.url, same[move.Source], same[move.Target]), "another store")
		w.mustMove()
	})
	t.Run("to a database that another store was moved to, with nothing in it", func(t *testing.T) {
		w, other := newWorld(t), newWorld(t)
		w.fill(nil)
		other.fill(storetest.Batches(1, 3))
		w.mustMove()
		refused(t, other.migrate(w.url, same[move.Source], same[move.Target]), "another store was moved")
		if old, _ := other.usable(); !old {
			t.Error("the old store may not be used")
		}
	})
	t.Run("when it is held", func(t *testing.T) {
		w := newWorld(t)
		w.fill(nil)
		backup := filepath.Join(t.TempDir(), "backup")
		if err := sqlite.Backup(t.Context(), w.dir, backup); err != nil {
			t.Fatal(err)
		}
		w.dir += "-restored"
		if _, err := sqlite.Restore(t.Context(), backup, w.dir); err != nil {
			t.Fatal(err)
		}
		refused(t, w.move(), "--go-on")
	})
	t.Run("when nothing is on its way", func(t *testing.T) {
		w := newWorld(t)
		w.fill(nil)
		refused(t, w.abort(), "not being moved")
	})
	t.Run("from an older copy of what was moved", func(t *testing.T) {
		w := newWorld(t)
		w.fill(nil)
		if err := w.migrate(w.url, same[move.Source], func(to move.Target) move.Target { return &faultyTarget{to, &fault{at: 5}} }); err == nil {
			t.Fatal("there was no fault")
		}
		older := filepath.Join(t.TempDir(), "older")
		if err := os.CopyFS(older, os.DirFS(w.dir)); err != nil {
			t.Fatal(err)
		}
		w.mustMove()
		w.dir = older
		refused(t, w.move(), "in use")
	})
}

// Rule N5: when a move is given up halfway and begun to another database, what stands in the first can never be used.
func TestAMoveThatChangedItsMindLeavesOneStore(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	w.fill(storetest.Batches(1, 10))
	want := w.dumpSource()
	whole := func(to move.Target) move.Target { return &faultyTarget{to, &fault{method: "Activate"}} }
	if err := w.migrate(other.url, func(from move.Source) move.Source { return &faultySource{from, &fault{at: 9999}} }, func(to move.Target) move.Target {
		return &faultyTarget{to, &fault{method: "SetNumbers"}}
	}); err == nil {
		t.Fatal("there was no fault")
	}
	if err := w.migrate(w.url, same[move.Source], whole); err == nil {
		t.Fatal("there was no fault")
	}
	if err := w.migrate(other.url, same[move.Source], same[move.Target]); !errors.Is(err, move.ErrRefused) {
		t.Fatalf("the first database is taken after all: %v", err)
	}
	w.mustMove()
	if diff := cmp.Diff(want, dump(t, w.openTarget()), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("(-before +after)\n%s", diff)
	}
	if _, err := postgres.Open(t.Context(), other.url); !errors.Is(err, store.ErrMoved) {
		t.Fatalf("the first database may be used: %v", err)
	}
}

// Rule N5: a server that was on the empty database before the move began must not touch what comes in.
func TestAServerThatWasThereBeforeCannotWriteToAnIncomingStore(t *testing.T) {
	w := newWorld(t)
	w.fill(storetest.Batches(1, 10))
	server := w.openTarget()
	if err := w.migrate(w.url, same[move.Source], func(to move.Target) move.Target { return &faultyTarget{to, &fault{method: "Activate"}} }); err == nil {
		t.Fatal("there was no fault")
	}
	_, err := server.Commit(t.Context(), []store.Change{{store.InsertRun{Run: storetest.NewRun(99)}}})
	if !errors.Is(err, store.ErrMoved) {
		t.Fatalf("it wrote: %v", err)
	}
	w.mustMove()
	if _, err := server.Commit(t.Context(), []store.Change{{store.InsertRun{Run: storetest.NewRun(99)}}}); err != nil {
		t.Fatalf("the database is whole, and a commit fails: %v", err)
	}
}

// Rule N5: after a way back the old store goes on, and a later move takes what it has become.
func TestAMoveCanBeGivenUpAndBegunAgain(t *testing.T) {
	w := newWorld(t)
	batches := storetest.Batches(3, 20)
	w.fill(batches[:10])
	if err := w.migrate(w.url, func(from move.Source) move.Source { return &faultySource{from, &fault{method: "Moved"}} }, same[move.Target]); err == nil {
		t.Fatal("there was no fault")
	}
	if old, fresh := w.usable(); old || fresh {
		t.Fatal("a store may be used in the middle of a move")
	}
	if err := w.abort(); err != nil {
		t.Fatal(err)
	}
	if old, fresh := w.usable(); !old || fresh {
		t.Fatal("after the way back the old store alone may be used")
	}
	w.fill(batches[10:])
	want := w.dumpSource()
	w.mustMove()
	if diff := cmp.Diff(want, dump(t, w.openTarget()), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("(-before +after)\n%s", diff)
	}
}

// Rule N5: what the comparison is for.
func TestACopyThatDiffersIsNeverUsed(t *testing.T) {
	w := newWorld(t)
	w.fill([][]store.Change{{{store.InsertRun{Run: storetest.NewRun(1), Payload: jsontext.Value(`1`)}}, {store.InsertRun{Run: storetest.NewRun(2), Payload: jsontext.Value(`2`)}}}})
	for _, spoil := range []string{
		"DELETE FROM run_values WHERE run=1", "UPDATE run_values SET payload='3' WHERE run=1", "UPDATE run_values SET output=''", "UPDATE runs SET id=id||'x' WHERE seq=1",
		"SELECT setval('run_seqs', 1)", "UPDATE counters SET value=9", "INSERT INTO cursors VALUES ('x', '', 1)", "UPDATE run_values AS a SET payload=b.payload FROM run_values AS b WHERE a.run<>b.run",
	} {
		err := w.migrate(w.url, same[move.Source], func(to move.Target) move.Target {
			return &spoilt{to, func() { w.server.Exec(t, w.database, spoil) }}
		})
		if !errors.Is(err, move.ErrDiffers) {
			t.Errorf("%s: %v", spoil, err)
		}
		if old, fresh := w.usable(); old || fresh {
			t.Errorf("%s: a store may be used", spoil)
		}
	}
	w.mustMove()
}

// spoilt is a target whose rows are changed by somebody once they are there.
type spoilt struct {
	move.Target
	spoil func()
}

func (s *spoilt) SetNumbers(ctx context.Context, n store.Numbers) error {
	err := s.Target.SetNumbers(ctx, n)
	s.spoil()
	return err
}

// waiting is a run that waits for whatever may come.
func waiting(t testing.TB) store.Change {
	t.Helper()
	run := storetest.NewRun(7)
	d, err := workflow.Apply(run, workflow.Begin{CallID: "call_7", Token: "t"}, storetest.T0)
	if err != nil {
		t.Fatal(err)
	}
	event := workflow.Wait{StepID: workflow.StepID{Name: "paid", Number: 1}, Kind: workflow.KindEvent, Event: &workflow.EventWait{Names: []string{"e"}}}
	d, err = workflow.Apply(d.Run, workflow.End{CallID: "call_7", Kind: workflow.EndSuspended, Waits: true, Opened: []workflow.Wait{event}}, storetest.T0)
	if err != nil {
		t.Fatal(err)
	}
	return store.Change{store.InsertRun{Run: d.Run, Waits: d.Open}}
}
