package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// cursor is a cursor's row.
type cursor struct {
	owner    string
	position int64
	stored   bool
	changed  bool
}

// checkOwner tells whether a cursor is an owner's; one that nobody has taken is that of the empty owner.
func (v *view) checkOwner(name, owner string) error {
	c := v.cursors[name]
	if c == nil {
		c = &cursor{}
	}
	if c.owner != owner {
		return fmt.Errorf("cursor %q is that of %q, not of %q: %w", name, c.owner, owner, store.ErrCursor)
	}
	if !c.stored { // no row is locked: its own keeps others from taking the cursor meanwhile
		v.cursors[name], c.changed = c, true
	}
	return nil
}

// putCursor gives a cursor to an owner, and moves it on.
func (v *view) putCursor(name, owner string, position int64) {
	if v.cursors[name] == nil {
		v.cursors[name] = &cursor{}
	}
	c := v.cursors[name]
	c.owner, c.position, c.changed = owner, max(c.position, position), true
}

func (v *view) writeNode(op store.Op) {
	switch op := op.(type) {
	case store.PutNode:
		v.nodes[op.Node.ID] = &op.Node
	case store.DropNode:
		v.nodes[op.ID] = nil
	case store.TakeCursor:
		v.putCursor(op.Cursor, op.Owner, 0)
	case store.Advance:
		v.putCursor(op.Cursor, op.Owner, op.Position)
	default:
		v.fail("postgres", fmt.Errorf("no such op: %T", op))
	}
}

// flushNodes writes nodes and cursors.
func (v *view) flushNodes() {
	inserted, cursors, put, dropped := &rowset{}, &rowset{}, &rowset{}, &rowset{}
	for _, name := range slices.Sorted(maps.Keys(v.cursors)) { // as with runs
		c, t := v.cursors[name], cursors
		if !c.changed {
			continue
		}
		if !c.stored {
			t = inserted // as with keys
		}
		t.row()
		t.text(name)
		t.text(c.owner)
		t.int(c.position)
		c.stored, c.changed = true, false
	}
	for id, n := range v.nodes {
		if n == nil {
			dropped.row().text(id)
			continue
		}
		t := put.row()
		t.text(id)
		t.int(n.Beat)
		t.blob(n.State)
	}
	v.nodes = map[string]*store.Node{}
	v.put(sqlInsertCursors, inserted)
	v.put(sqlUpdateCursors, cursors)
	v.put(sqlPutNodes, put)
	v.put(sqlDropNodes, dropped)
}

// clockTripMax is how long a look at the database's clock may take to be taken at its word: half of it is what the offset may be wrong by. One that
// takes longer says at least between which bounds it lies.
const clockTripMax = 200 * time.Millisecond

// Now is the time by the database's clock, as of the last look at the nodes: nodes whose machines' clocks are apart agree on what is due.
func (s *Store) Now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

// Nodes implements store.NodeReader. It also looks at the database's clock.
func (s *Store) Nodes(ctx context.Context) ([]store.Node, error) {
	var out []store.Node
	var began time.Time
	var micros int64
	err := s.readNow(ctx, func(b *batch) {
		out, began = nil, time.Now()
		b.add(sqlSelectClock, nil, func(r *scanner) error { micros = r.int(); return nil })
		b.add(sqlSelectNodes, nil, func(r *scanner) error {
			out = append(out, store.Node{ID: r.text(), Beat: r.int(), State: r.blob()})
			return nil
		})
	})
	if err == nil {
		trip, most := time.Since(began), time.UnixMicro(micros).Sub(began)
		ahead := time.Duration(s.ahead.Load())
		if trip < clockTripMax {
			ahead = most - trip/2
		}
		s.ahead.Store(int64(min(max(ahead, most-trip), most)))
	}
	return out, err
}

// CallCounts implements store.NodeReader.
func (s *Store) CallCounts(ctx context.Context, except string) ([]store.CallCount, error) {
	var out []store.CallCount
	err := s.readNow(ctx, func(b *batch) {
		out = nil
		b.add(sqlSelectCallCounts, (&params{}).text(except), func(r *scanner) error {
			out = append(out, store.CallCount{Node: r.text(), Env: r.text(), App: r.text(), Calls: r.int()})
			return nil
		})
	})
	return out, err
}

// InCall implements store.NodeReader.
func (s *Store) InCall(ctx context.Context, node, after string, limit int) ([]workflow.Run, error) {
	return list(ctx, s, sqlSelectInCall, (&params{}).text(node).text(after).int(int64(limit)), scanRun)
}

// Heads implements store.NodeReader.
func (s *Store) Heads(ctx context.Context, runIDs []string) ([]store.Head, error) {
	if len(runIDs) == 0 {
		return nil, nil
	}
	ids := &rowset{}
	for _, id := range runIDs {
		ids.row().text(id)
	}
	return list(ctx, s, sqlSelectHeads, ids.params(), func(r *scanner) store.Head {
		return store.Head{History: store.History{Entries: r.int(), Bytes: r.int()}, Run: scanRun(r)}
	})
}
