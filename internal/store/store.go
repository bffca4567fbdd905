// Package store is the seam between the engine and what is durable. It decides nothing about runs: a Change says what it
// expects and what it writes, and the store does all of it, durably, or none.
//
// The stores are memory (the model), sqlite (one node) and postgres (many). The suite in storetest is their contract; it compares every store with the
// model. Writers are widened by new Ops, not by new methods.
//
// Invariants kept here: W1 (unique key of a step), W7 and W8 (unique keys of events, runs and keys), W9 (entries are numbered
// without gaps), N1 (versions).
package store

import (
	"context"
	"encoding/json/jsontext"
	"time"

	"github.com/nelkap/nelkap/internal/workflow"
)

// Store is durable memory for runs, events, keys and apps. Its methods may be used by many goroutines.
type Store interface {
	// Commit writes the changes in order, in one transaction that is on disk when Commit returns. Each change takes effect
	// whole or not at all, and has a result of its own; it sees what the changes before it did. An error means that nothing
	// was written, or, if it wraps ErrUnknown, that nobody knows: read before you write again.
	Commit(ctx context.Context, changes []Change) ([]Result, error)
	Reader
	// Close waits for readers and writers, and frees the data directory. It may be called twice.
	Close() error
}

// Reader reads what is committed. Any of its methods may fail with ErrUnavailable.
type Reader interface {
	// Load reads a run's own record and the size of its history. ErrNotFound.
	Load(ctx context.Context, runID string) (workflow.Run, History, error)
	// State reads what a call of a run, or news for it, needs, as of one moment. ErrNotFound.
	State(ctx context.Context, q EntryQuery) (State, error)
	// Record reads a run with its payload and result. ErrNotFound, also for another environment's run.
	Record(ctx context.Context, env, runID string) (RunRecord, error)
	// Runs lists runs, newest first.
	Runs(ctx context.Context, q RunQuery) ([]RunRecord, error)
	// Entries reads a run's history after the given entry, in order, within the limits of q, but at least one entry.
	Entries(ctx context.Context, q EntryQuery) ([]Entry, error)
	// Attempts reads what is recorded of a run's attempts besides its entries: throws, starts and cuts, in the order of name,
	// number and attempt.
	Attempts(ctx context.Context, runID string) ([]Attempt, error)
	// Waits lists open waits in the order in which they were opened.
	Waits(ctx context.Context, q WaitQuery) ([]Wait, error)
	// MatchPaths lists the different Paths of open waits for events of that name.
	MatchPaths(ctx context.Context, env, event string) ([]string, error)
	// Callback finds a callback. ErrNotFound.
	Callback(ctx context.Context, q CallbackQuery) (Callback, error)
	// Position is how far a cursor has come; zero at first.
	Position(ctx context.Context, cursor string) (int64, error)
	// Schedules lists schedules in the order of their ids.
	Schedules(ctx context.Context, q ScheduleQuery) ([]Schedule, error)
	// LaterEvents lists events that are due, earliest first.
	LaterEvents(ctx context.Context, q LaterQuery) ([]LaterEvent, error)
	// NextDue is the earliest instant at which a schedule that is not paused or an event is due; zero if none is.
	NextDue(ctx context.Context) (time.Time, error)
	// Timers lists runs whose timer is due, earliest first, and of one instant by their ids.
	Timers(ctx context.Context, q TimerQuery) ([]workflow.Run, error)
	// NextTimer is the earliest instant that a run's timer has; zero if there is none.
	NextTimer(ctx context.Context) (time.Time, error)
	// Ready lists an app's queued runs that are due at now, earliest first.
	Ready(ctx context.Context, env, app string, now time.Time, limit int) ([]Ready, error)
	// Stranded lists runs to which nothing will ever happen: they have not ended, nothing is due, and nothing they wait for is open. There
	// are none (W5).
	Stranded(ctx context.Context, limit int) ([]string, error)
	// Logs lists lines of a run's log in the order in which they were stored. ErrNotFound.
	Logs(ctx context.Context, q LogQuery) ([]LogLine, error)
	// Chapters lists a run's closed chapters that are kept, in their order. ErrNotFound.
	Chapters(ctx context.Context, runID string) ([]Chapter, error)
	// Event reads one event. ErrNotFound.
	Event(ctx context.Context, env, name, id string) (Event, error)
	// Events lists events in the order that the query names.
	Events(ctx context.Context, q EventQuery) ([]Event, error)
	// Keys lists the keys of one scope that are alive, in their order.
	Keys(ctx context.Context, q KeyQuery) ([]Key, error)
	// Apps lists all apps in the order of environment and name.
	Apps(ctx context.Context) ([]App, error)
	// Delivery reads one delivery, whole. ErrNotFound, also for another environment's.
	Delivery(ctx context.Context, env, id string) (Delivery, error)
	// Deliveries lists deliveries, newest first, without what was sent.
	Deliveries(ctx context.Context, q DeliveryQuery) ([]Delivery, error)
	NodeReader
}

// Change is an atomic list of writes, with what they expect.
type Change []Op

// Op is one write of a change.
type Op interface{ op() }

// InsertRun adds a run, with its payload (nil: undefined), and opens its waits. The change fails with ErrExists when the id is taken.
type InsertRun struct {
	Run     workflow.Run
	Payload jsontext.Value
	Waits   []workflow.Wait
	Replay  *Replay
}

// Replay is what a new run takes over from the run that it replays. The change fails with ErrNotFound when that is gone, and with ErrStale
// when it has begun another chapter than Restart: then the entries are others (Z2), or when a callback is not its owner's any more.
type Replay struct {
	RunID   string
	Restart int
	Entries int64   // so many of its first entries
	Events  bool    // the run's waits look back as far as the other's (K5)
	Used    []int64 // positions of the events that those entries have used (W7)
	// Callbacks are made by those entries. Those whose owners have ended are the new run's from now on.
	Callbacks []PassedCallback
}

// PassedCallback is a callback that goes from its owner, the run that has it, to another when that has ended.
type PassedCallback struct{ TokenHash, Owner string }

// UpdateRun replaces a run's record. It expects the version before Run.Version, else the change fails with ErrStale. With a
// final status it also writes the result and frees the run's derived keys (K3). Where the run begins to close, it also expects a history
// of Ending.Entries: saves raise no version, and what one brings meanwhile is to be undone too (Z1).
//
// An entry of Append closes the open wait of its step, and leaves an invoke whose child may live as an orphan; a wait of Open is not opened where its step has an entry or an open wait. With the
// final status every wait is closed, but for invokes: their children have to hear of it.
type UpdateRun struct {
	Run    workflow.Run
	Append []workflow.Step
	Open   []OpenWait
	Trees  jsontext.Value // nil: as they were
	Output jsontext.Value // nil: as it was
	Error  jsontext.Value // nil: as it was
	// Entries, if it is not nil, is how many entries the history must have, else the change fails with ErrStale: saves raise no version, and
	// those of another node are not heard of.
	Entries *int64
	// CloseWaits closes every wait that is open before this write, as the final status does, and no step that threw is due again.
	CloseWaits bool
	// Chapter makes the history a closed chapter (Z2). The run has its payload from then on, and no entries, attempts, callbacks, trees or
	// derived keys; its workflow's cancelOn and the events that it has used stay. It expects a Run.Restart of one more than before.
	Chapter *workflow.Chapter
	// CutCall closes the attempts that this call left open, as cut off.
	CutCall string
}

// SaveSteps appends to a run's history, and records starts and throws. It expects that CallID is the run's call and Nonce, if
// one is bound already, its playing's; else the change fails with ErrStale. It binds the nonce, which raises the version.
// Entries are numbered in the order of Steps (W9). A step that has a saved result keeps it (W1), and a throw that is recorded already
// stays due when it was: a save may come twice (K6).
type SaveSteps struct {
	RunID    string
	CallID   string
	Nonce    string
	Steps    []workflow.Step
	Retries  []workflow.Retry
	Starts   []Start
	StepsMax int // at most so many entries; further ones are refused
	BytesMax int // and so many bytes of results
}

// Start records that a step's body is about to run (C13). A step that has an entry keeps it, and nothing is recorded; nor is it where
// that attempt, or a later one, has thrown: such a start comes late, and what was thrown stays due (K6).
type Start struct {
	workflow.StepID
	Attempt   int
	StartedAt time.Time
	// Interrupted is appended instead where an attempt of the step was started by another call, or threw (S5); nil: nothing is.
	Interrupted *workflow.Step
}

// StartResult is what became of a Start.
type StartResult struct {
	Entry int64     // that the step has, or was given; zero: the start is recorded
	Again bool      // another call has started an attempt of it, or an attempt threw (S4)
	CutAt time.Time // when the last attempt that was cut off was; zero: none is known
}

// OpenWait opens a wait, and starts its child.
type OpenWait struct {
	workflow.Wait
	Start *InsertRun // of an invoke: its child
}

// CloseWait forgets an invoke that nobody has to hear of any more. That it is gone already is no error.
type CloseWait struct {
	RunID string
	Child string // the run that it started
}

// AddLogs adds lines to a run's log, in the chapter of that restart number. One that is there already is passed over, and so is what exceeds
// LinesMax in the chapter.
type AddLogs struct {
	RunID    string
	Restart  int
	CallID   string
	Lines    []LogLine
	LinesMax int
}

// UseEvent notes that a run has used an event. The change fails with ErrStale when it has already (W7), and with ErrCursor when the cursor is
// another owner's, who may be about to give the run an earlier event (E2).
type UseEvent struct {
	RunID    string
	Position int64
	Cursor   string
	Owner    string
}

// InsertCallback adds a callback. The change fails with ErrExists when its step has one.
type InsertCallback struct{ Callback Callback }

// EndCallback gives a callback its payload. The change fails with ErrStale when it has one, or its time is over at Now.
type EndCallback struct {
	TokenHash string
	Payload   jsontext.Value
	Now       time.Time
}

// ExpireCallback has a callback's time over, whatever the clock says of who posts to it: its wait is. The change fails with ErrStale when
// it has a payload. That it is gone is no error.
type ExpireCallback struct{ TokenHash string }

// Expired is when the time of an expired callback was over: before any post.
var Expired = time.UnixMilli(1).UTC()

// PassKey gives a key to another owner. The change fails with ErrStale when it is not From's any more.
type PassKey struct {
	Key  Key
	From string
}

// PutLater keeps an event until it is due. One of that environment, name and id that is kept already stands.
type PutLater struct{ Event LaterEvent }

// DropLater removes an event that is due. The change fails with ErrStale when it is gone already: somebody has emitted it.
type DropLater struct{ Env, Name, ID string }

// InsertEvent adds an event. The change fails with ErrExists when its environment has one of that name and id.
type InsertEvent struct{ Event Event }

// TakeKey takes a key for its owner and does Then; if the key is taken and alive, it does nothing but report the one that has
// it, and notes on it when the hash differs (W8).
type TakeKey struct {
	Key  Key
	Now  time.Time
	Then []Op
}

// PutApp writes an app's record. It expects the version before App.Version, or none for version 1, else the change fails with ErrStale.
type PutApp struct{ App App }

// DropKeys removes keys that have expired at Now, at most Limit of them.
type DropKeys struct {
	Now   time.Time
	Limit int
}

func (InsertRun) op()      {}
func (UpdateRun) op()      {}
func (SaveSteps) op()      {}
func (InsertEvent) op()    {}
func (TakeKey) op()        {}
func (PutApp) op()         {}
func (DropKeys) op()       {}
func (CloseWait) op()      {}
func (UseEvent) op()       {}
func (InsertCallback) op() {}
func (EndCallback) op()    {}
func (ExpireCallback) op() {}
func (PassKey) op()        {}
func (PutLater) op()       {}
func (DropLater) op()      {}
func (AddLogs) op()        {}
func (DropEvents) op()     {}

// Result is what became of one change.
type Result struct {
	// Err is nil, or wraps ErrStale, ErrExists, ErrNotFound or ErrBadChange: then nothing of the change was written.
	Err error
	// Keys has an outcome for each TakeKey of the change, in order; keys inside a Then that was not done have none.
	Keys []KeyResult
	// Steps has an outcome for each step of the change's SaveSteps, in order.
	Steps []StepResult
	// Starts has an outcome for each start of the change's SaveSteps, in order.
	Starts []StartResult
	// Retries says when each retry of the change's SaveSteps is due, in order: as it was asked for, or as it was recorded before. Zero is
	// never: the step is saved, or a later attempt is recorded.
	Retries []time.Time
	// Version is the version of the run that SaveSteps left, and Bound tells whether it bound the nonce.
	Version int64
	Bound   bool
	History History
	// Opened tells which waits of the change's UpdateRun were opened, in order.
	Opened []bool
	// Dropped is how many keys, deliveries, events or runs the change's DropKeys, DropDeliveries, DropEvents and DropRuns removed.
	Dropped int
}

// KeyResult tells whether a key was taken by this change; if not, Key is the one that stands.
type KeyResult struct {
	Taken bool
	Key   Key
}

// StepResult is what became of one step of a SaveSteps.
type StepResult struct {
	Entry   int64 // of the history: the new entry, or the one that stands
	Stands  bool  // another result was saved before and stands (W1)
	Refused Limit // not empty: nothing was saved, for this limit
}

// Limit names a limit of a run.
type Limit string

// The limits of a run's history.
const (
	LimitSteps Limit = "steps"
	LimitBytes Limit = "bytes"
)

// History is the size of a run's history.
type History struct {
	Entries int64
	Bytes   int64
}

// RunRecord is a run with its values. A nil value is undefined.
type RunRecord struct {
	workflow.Run
	Payload jsontext.Value
	Output  jsontext.Value
	Error   jsontext.Value
	Trees   jsontext.Value // what it waited for when it was last suspended, as UpdateRun wrote it
}

// Entry is one entry of a run's history.
type Entry struct {
	Entry int64
	workflow.Step
}

// State is a run as of one moment.
type State struct {
	RunRecord
	History  History
	Entries  []Entry // as Reader.Entries lists them; none where EntriesMax is 0
	Attempts []Attempt
	Waits    []Wait // that are open, in the order in which they were opened
}

// Attempt is what is recorded of one attempt that did not save the step: it threw, or it is running, or it was cut off.
type Attempt struct {
	workflow.StepID
	Attempt   int
	CallID    string         // of a recorded start
	Error     jsontext.Value // of a throw or a cut
	StartedAt time.Time
	EndedAt   time.Time // zero while it runs
	RetryAt   time.Time // zero unless the step is due again
	Again     bool      // of a start: an attempt had been started before it
}

// Wait is an open wait of a run.
type Wait struct {
	RunID string
	Env   string
	workflow.Wait
	// Order is that in which waits were opened, in all the store. It is the wait's alone, also once it is closed: after a restart another wait
	// has its step (Z2).
	Order int64
	// After is the position of the last event that the wait does not look back to (E2).
	After int64
	// Looked: it has been matched with the events before it.
	Looked bool
	// Orphan: an invoke whose time ran out; its child is to be cancelled.
	Orphan bool
}

// Callback is what somebody outside may post to, once.
type Callback struct {
	TokenHash string
	Env       string
	RunID     string
	workflow.StepID
	DueAt   time.Time // zero: never
	EndedAt time.Time // zero: nobody has posted
	Payload jsontext.Value
}

// CallbackQuery selects a callback: by the hash of its token, or by the step that made it.
type CallbackQuery struct {
	TokenHash string
	RunID     string
	workflow.StepID
}

// WaitSet is which waits a query selects.
type WaitSet string

// The sets of waits.
const (
	// WaitsOfRun: a run's. An ended run has none but invokes whose children have to hear of it.
	WaitsOfRun WaitSet = "run"
	// WaitsUnlooked: for events, and not matched with the events before them yet (E2).
	WaitsUnlooked WaitSet = "unlooked"
	// WaitsForEvent: those that an event may end: looked back, opened before it, of runs that have not used it, with one of the
	// Pairs or without a match.
	WaitsForEvent WaitSet = "event"
	// WaitsOfKin: invokes of which the parent or the child has ended, and orphans: one has to hear of the other.
	WaitsOfKin WaitSet = "kin"
	// WaitsFulfilled: for callbacks that have been posted to.
	WaitsFulfilled WaitSet = "fulfilled"
)

// WaitQuery selects waits, after the given order.
type WaitQuery struct {
	Set   WaitSet
	RunID string // of WaitsOfRun
	// Of WaitsForEvent: the event, and the index keys that it has, as pairs of Paths and Key.
	Env      string
	Event    string
	Position int64
	Pairs    [][2]string
	After    int64
	Limit    int // zero: all
}

// LaterEvent is an event that is emitted when it is due.
type LaterEvent struct {
	Env     string
	ID      string
	Name    string
	Payload jsontext.Value
	DueAt   time.Time
}

// LaterQuery asks for the events that are due at DueBy.
type LaterQuery struct {
	DueBy    time.Time
	Limit    int
	BytesMax int // of the payloads, but for one event; zero: no bound
}

// Ready is a queued run that is due.
type Ready struct {
	RunID   string
	ReadyAt time.Time
}

// Event is an event as it is stored.
type Event struct {
	Env       string
	ID        string
	Name      string
	Payload   jsontext.Value
	CreatedAt time.Time
	Runs      int   // how many runs it started
	Position  int64 // in the order in which events were stored; set by the store
}

// KeyKind is what a key stands for (K3).
type KeyKind string

// The kinds of keys. A key's scope is: of an event id, the event's name; of a run key, app and workflow; of a send, the sending
// run; of a request, method and path; of a claim, app, workflow and the claim's name; of a delivery's id, its hook.
const (
	KeyEvent   KeyKind = "event"
	KeyRun     KeyKind = "run"
	KeySend    KeyKind = "send"
	KeyRequest KeyKind = "request"
	KeyClaim   KeyKind = "claim"
	// KeyDelivery keys carry the events of the first delivery as their Answer.
	KeyDelivery KeyKind = "delivery"
)

// Key is owned by one event or run, in its scope and for its life (W8).
type Key struct {
	Env       string
	Kind      KeyKind
	Scope     string
	Key       string
	Owner     string
	Hash      string // of the payload that came with it
	Differs   bool   // it was asked for again with another hash
	Answer    []byte // of a request: what was answered; of a delivery: its events
	ExpiresAt time.Time
	// OwnerStatus and OwnerEndedAt are, of a claim whose owner has been dropped, how and when it ended; set by DropRuns.
	OwnerStatus  workflow.Status
	OwnerEndedAt time.Time
	// LastsFor and UntilFailed free a claim: so long after its owner's end, and at once where that has failed. Zero: neither does (K3).
	LastsFor    time.Duration
	UntilFailed bool
}

// FreeAt is when a claim is free whose owner ended so; zero: never.
func (k *Key) FreeAt(owner workflow.Status, endedAt time.Time) time.Time {
	switch {
	case k.UntilFailed && owner == workflow.Failed:
		return endedAt
	case k.LastsFor > 0:
		return endedAt.Add(k.LastsFor)
	default:
		return time.Time{}
	}
}

// KeyQuery selects the keys of one scope that are alive at Now.
type KeyQuery struct {
	Env    string
	Kind   KeyKind
	Scope  string
	Prefix string // with which they begin; empty: all
	// Key, where it is given, leaves of them that key, and those that were asked for with another hash than theirs: few, however many there are.
	Key string
	Now time.Time
}

// Range is what bounds the keys that begin with the prefix, byte by byte: from the first text up to but not with the second.
func (q *KeyQuery) Range() (from, to string) {
	if q.Prefix == "" {
		return "", "\xff" // after every text
	}
	last := len(q.Prefix) - 1
	return q.Prefix, q.Prefix[:last] + string([]byte{q.Prefix[last] + 1})
}

// App is an app's record. Manifest is the JSON that the app answered last.
type App struct {
	Env         string
	Name        string
	URL         string
	Private     bool // the operator's word: the address may be private
	Concurrency int
	Manifest    []byte
	Hash        string
	SeenAt      time.Time            // when the app last answered
	Version     int64                // grows with each change of the record
	Gone        map[string]time.Time // workflows that the last manifest lacks, and since when
}

// RunQuery selects runs. Empty fields select all.
type RunQuery struct {
	Env      string
	App      string
	Workflow string
	Status   workflow.Status
	Key      string
	Before   string // only ids below this one
	Live     bool   // only runs that have not ended
	Limit    int
}

// EntryQuery selects entries of a run.
type EntryQuery struct {
	RunID      string
	Chapter    *int // that of this restart number; nil: the current one
	After      int64
	EntriesMax int
	BytesMax   int
}

// EventQuery selects events, newest first. Empty fields select all. Before is the position of the last one seen; zero is the end.
type EventQuery struct {
	Env    string
	Name   string
	Before int64
	Limit  int
	// Forward turns the order: oldest first, those after After, up to and with UpTo if that is not zero. An empty Env is every
	// environment then, UnusedBy leaves out what that run has used (W7), and BytesMax bounds the payloads, but for one event.
	Forward  bool
	After    int64
	UpTo     int64
	UnusedBy string
	BytesMax int // zero: no bound
}

// TimerQuery asks for runs whose timer is due at Now: those behind one whose timer was due at AfterAt, with the id AfterID.
type TimerQuery struct {
	Now     time.Time
	AfterAt time.Time
	AfterID string
	Limit   int
}

// CutOff is the error of an attempt that was cut off.
var CutOff = jsontext.Value(`{"name":"CutOff","message":"the attempt was cut off before its result was saved"}`)
