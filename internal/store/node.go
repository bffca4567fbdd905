package store

import (
	"context"

	"github.com/nelkap/nelkap/internal/workflow"
)

// Node is a server that shares the store with others.
type Node struct {
	ID string
	// Beat is raised by each of its heartbeats. Others see that it grows, and so need no clock of its.
	Beat int64
	// State is what it tells the others, in the engine's words.
	State []byte
}

// PutNode writes a node's heartbeat.
type PutNode struct{ Node Node }

// DropNode forgets a node. That it is gone already is no error.
type DropNode struct{ ID string }

// TakeCursor gives a cursor to an owner: what those who had it before do by it fails from here on with ErrStale. So whoever goes through
// events is alone in that, also while another still believes that it is (E1).
type TakeCursor struct{ Cursor, Owner string }

// Advance moves a cursor, which never goes back. The change fails with ErrStale when the cursor is another owner's; one that nobody has
// taken is that of the empty owner.
type Advance struct {
	Cursor   string
	Owner    string
	Position int64
}

// LookedBack notes that the wait of that step and order has been matched with the events before it. The change fails with ErrStale when the cursor is another
// owner's, who may have passed an event over since the wait had not looked back. That the wait is gone already is no error.
type LookedBack struct {
	RunID string
	workflow.StepID
	Order  int64
	Cursor string
	Owner  string
}

func (PutNode) op()    {}
func (DropNode) op()   {}
func (TakeCursor) op() {}
func (Advance) op()    {}
func (LookedBack) op() {}

// CallCount is how many calls of an app's runs a node holds: one or more.
type CallCount struct {
	Node, Env, App string
	Calls          int64
}

// Head is a run's own record with the size of its history.
type Head struct {
	workflow.Run
	History History
}

// NodeReader reads what nodes have to know of each other.
type NodeReader interface {
	// Nodes lists all nodes in the order of their ids.
	Nodes(ctx context.Context) ([]Node, error)
	// CallCounts counts the current calls of running runs that nodes but one hold, in the order of nodes, environments and apps.
	CallCounts(ctx context.Context, except string) ([]CallCount, error)
	// InCall lists the running runs whose current call a node holds, in the order of their ids, after the given id.
	InCall(ctx context.Context, node, after string, limit int) ([]workflow.Run, error)
	// Heads reads the runs of those ids, in no order. One that is not there is left out.
	Heads(ctx context.Context, runIDs []string) ([]Head, error)
}
