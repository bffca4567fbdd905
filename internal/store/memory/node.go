package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// cursor is how far whoever goes through something in order has come.
type cursor struct {
	owner    string
	position int64
}

// checkOwner tells whether a cursor is an owner's; one that nobody has taken is that of the empty owner.
func (s *Store) checkOwner(name, owner string) error {
	if c := s.cursors[name]; c.owner != owner {
		return fmt.Errorf("cursor %q is that of %q, not of %q: %w", name, c.owner, owner, store.ErrCursor)
	}
	return nil
}

func (s *Store) writeNode(op store.Op) {
	switch op := op.(type) {
	case store.PutNode:
		s.nodes[op.Node.ID] = op.Node
	case store.DropNode:
		delete(s.nodes, op.ID)
	case store.TakeCursor:
		s.cursors[op.Cursor] = cursor{op.Owner, s.cursors[op.Cursor].position}
	case store.Advance:
		s.cursors[op.Cursor] = cursor{op.Owner, max(s.cursors[op.Cursor].position, op.Position)}
	}
}

// Position implements store.Reader.
func (s *Store) Position(_ context.Context, cursor string) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cursors[cursor].position, nil
}

// Nodes implements store.NodeReader.
func (s *Store) Nodes(context.Context) ([]store.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []store.Node
	for _, id := range slices.Sorted(maps.Keys(s.nodes)) {
		out = append(out, s.nodes[id])
	}
	return out, nil
}

// CallCounts implements store.NodeReader.
func (s *Store) CallCounts(_ context.Context, except string) ([]store.CallCount, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[store.CallCount]int64{}
	for _, r := range s.runs {
		if r.Status == workflow.Running && r.Call.Node != except {
			counts[store.CallCount{Node: r.Call.Node, Env: r.Env, App: r.App}]++
		}
	}
	var out []store.CallCount
	for c, calls := range counts {
		c.Calls = calls
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b store.CallCount) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Env, b.Env), cmp.Compare(a.App, b.App))
	})
	return out, nil
}

// InCall implements store.NodeReader.
func (s *Store) InCall(_ context.Context, node, after string, limit int) ([]workflow.Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return records(s.sorted(func(r *run) bool { return r.Status == workflow.Running && r.Call.Node == node && r.ID > after }, byID), limit), nil
}

// Heads implements store.NodeReader.
func (s *Store) Heads(_ context.Context, runIDs []string) ([]store.Head, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []store.Head
	for _, id := range runIDs {
		if r := s.runs[id]; r != nil {
			out = append(out, store.Head{Run: r.Run, History: r.history()})
		}
	}
	return out, nil
}
