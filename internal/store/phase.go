package store

import "errors"

// Phase is what servers may do with a store (N5). It is durable, and changes only while no server uses the store.
type Phase string

// The phases.
const (
	// PhaseActive: a server may use it. That is what a new store is.
	PhaseActive Phase = "active"
	// PhaseMoving: its rows are being copied elsewhere, and nothing writes to it. There is a way back.
	PhaseMoving Phase = "moving"
	// PhaseMoved: another store has taken its place, for ever.
	PhaseMoved Phase = "moved"
	// PhaseIncoming: it is being filled from a store that moves here.
	PhaseIncoming Phase = "incoming"
	// PhaseHeld: it was restored, or is a copy. A server answers reads and cancels, and nothing goes on until somebody says so.
	PhaseHeld Phase = "held"
)

// Standing is a store's phase, with what is known of its move.
type Standing struct {
	Phase Phase
	// Move is the id of the move that the store is in, was in, or came by; empty: none. One move has one source and one target.
	Move string
	// Place is where a moving or moved store goes or went, for people to read, without a password.
	Place string
}

// ErrMoved: the store is moving, has moved, is not all there yet, or was restored under a server. No server may use it, or not this one; the
// error's text says how to go on (N5).
var ErrMoved = errors.New("store: this server may not use it")

// Table is one table of a store as another store can take it: what its rows are called, not how either keeps them.
type Table struct {
	Name    string
	Columns []string
}

// Value is one column of a Row. Numbers and truth (0, 1) are in Int; texts and bytes in Bytes, exactly; NULL is neither.
type Value struct {
	Kind  ValueKind
	Int   int64
	Bytes []byte
}

// ValueKind tells which of a Value's fields holds it.
type ValueKind byte

// The kinds of values.
const (
	ValueNull ValueKind = iota
	ValueInt
	ValueBytes
)

// Row is one row of a Table, in the order of its Columns. It belongs to who reads it until the next one comes.
type Row []Value

// Numbers are the last ones that a store has drawn of each series, by the series' name: the next is above.
type Numbers map[string]int64
