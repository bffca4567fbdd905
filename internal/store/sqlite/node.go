package sqlite

import (
	"context"
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// A data directory is one server's. That it keeps nodes nevertheless lets one engine, and one suite, be there for all stores.

// checkOwner tells whether a cursor is an owner's; one that nobody has taken is that of the empty owner.
func (s *Store) checkOwner(cursor, owner string) (refusal, err error) {
	standing := ""
	err = query(s.writer, sqlSelectOwner, func(b *binder) { b.text(cursor) }, func(r *scanner) error { standing = r.text(); return nil })
	if err == nil && standing != owner {
		refusal = fmt.Errorf("cursor %q is that of %q, not of %q: %w", cursor, standing, owner, store.ErrCursor)
	}
	return refusal, err
}

func (s *Store) writeNode(op store.Op) error {
	switch op := op.(type) {
	case store.PutNode:
		return exec(s.writer, sqlPutNode, func(b *binder) { b.text(op.Node.ID); b.int(op.Node.Beat); b.blob(op.Node.State) })
	case store.DropNode:
		return exec(s.writer, sqlDropNode, func(b *binder) { b.text(op.ID) })
	case store.TakeCursor:
		return exec(s.writer, sqlTakeCursor, func(b *binder) { b.text(op.Cursor); b.text(op.Owner) })
	case store.Advance:
		return exec(s.writer, sqlAdvance, func(b *binder) { b.text(op.Cursor); b.text(op.Owner); b.int(op.Position) })
	default:
		return fmt.Errorf("sqlite: no such op: %T: %w", op, store.ErrBadChange)
	}
}

// Nodes implements store.NodeReader.
func (s *Store) Nodes(ctx context.Context) ([]store.Node, error) {
	var out []store.Node
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		return query(conn, sqlSelectNodes, nil, func(r *scanner) error {
			out = append(out, store.Node{ID: r.text(), Beat: r.int(), State: r.blob()})
			return nil
		})
	})
	return out, err
}

// CallCounts implements store.NodeReader.
func (s *Store) CallCounts(ctx context.Context, except string) ([]store.CallCount, error) {
	var out []store.CallCount
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		return query(conn, sqlSelectCallCounts, func(b *binder) { b.text(except) }, func(r *scanner) error {
			out = append(out, store.CallCount{Node: r.text(), Env: r.text(), App: r.text(), Calls: r.int()})
			return nil
		})
	})
	return out, err
}

// InCall implements store.NodeReader.
func (s *Store) InCall(ctx context.Context, node, after string, limit int) ([]workflow.Run, error) {
	return s.records(ctx, sqlSelectInCall, func(b *binder) { b.text(node); b.text(after); b.int(int64(limit)) })
}

// Heads implements store.NodeReader.
func (s *Store) Heads(ctx context.Context, runIDs []string) ([]store.Head, error) {
	var out []store.Head
	for _, id := range runIDs {
		run, history, err := s.Load(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, store.Head{Run: run, History: history})
	}
	return out, nil
}
