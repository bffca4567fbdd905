// Package wire holds the messages between server and app, as protocol/SPEC.md has them (version 1).
//
// It decides how messages look and nothing else: no I/O, no rules. Users' values are json.RawMessage throughout: nil is an
// absent field (JavaScript's undefined), `null` is null, and their bytes are kept. Messages that are sent for every step are
// written by hand (append.go), since they are most of what the SDK costs.
package wire

import (
	"encoding/json"
	"time"
)

const (
	// Version is what the header Nelkap-Protocol says.
	Version = "1"
	// ContentType is that of calls and of their answers: body parsers leave it alone, so that the signed bytes survive.
	ContentType = "application/vnd.nelkap+json"
	// MessageBytesMax bounds a call and its answer.
	MessageBytesMax = 16 << 20
	// RequestBytesMax bounds a request of saves or ends.
	RequestBytesMax = 8 << 20
	// BesideBytes is the size from which an item travels in a request of its own.
	BesideBytes = 256 << 10
	// ErrorBytesMax bounds an error as JSON.
	ErrorBytesMax = 64 << 10
)

// Request is what the server sends to the app. Call's fields are set where Type is "call"; where it is "verify", those of them that
// a verify has, and LimitMs.
type Request struct {
	Type string `json:"type"`
	Call
	LimitMs int64 `json:"limitMs"`
}

// Call asks the app to play a run.
type Call struct {
	Run    Run      `json:"run"`
	Call   CallInfo `json:"call"`
	Steps  Steps    `json:"steps"`
	Limits Limits   `json:"limits"`
	Ending *Closing `json:"ending"` // nil unless the run closes
	URL    string   `json:"url"`
}

// Closing says with what a run closes (Z1). Entries is how many entries the history had when that began; Error is nil for a cancelled
// run.
type Closing struct {
	Reason  string `json:"reason"`
	Error   *Error `json:"error"`
	Entries int64  `json:"entries"`
}

// Run is the run as a call carries it.
type Run struct {
	ID        string          `json:"id"`
	Workflow  string          `json:"workflow"`
	App       string          `json:"app"`
	Payload   json.RawMessage `json:"payload,omitempty"`
	Event     *Event          `json:"event"`
	Key       string          `json:"key"`
	ReplayOf  string          `json:"replayOf"`
	Root      string          `json:"root"`
	Restart   int             `json:"restart"`
	Attempt   int             `json:"attempt"`
	CreatedAt time.Time       `json:"createdAt"`
}

// Event is the event that started a run.
type Event struct {
	ID        string          `json:"id"`
	Event     string          `json:"event"`
	Payload   json.RawMessage `json:"payload,omitempty"`
	CreatedAt time.Time       `json:"createdAt"`
}

// CallInfo is the call itself.
type CallInfo struct {
	ID          string    `json:"id"`
	Epoch       int64     `json:"epoch"`
	Token       string    `json:"token"`
	Cuts        int       `json:"cuts"`
	LeaseMs     int64     `json:"leaseMs"`
	HeartbeatMs int64     `json:"heartbeatMs"`
	SentAt      time.Time `json:"sentAt"`
}

// Steps is the first page of a run's history, the steps that are due again, the waits that are open, and the steps whose start is recorded.
type Steps struct {
	Entries  []Entry   `json:"entries"`
	Next     *int64    `json:"next"`
	Retrying []Retry   `json:"retrying"`
	Waiting  []Open    `json:"waiting"`
	Begun    []StepRef `json:"begun"`
}

// Open is a wait that is registered and has no entry yet.
type Open struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Number int    `json:"number"`
}

// Entry is one numbered entry of a run's history.
type Entry struct {
	Entry    int64           `json:"entry"`
	Kind     string          `json:"kind"`
	Name     string          `json:"name"`
	Number   int             `json:"number"`
	Status   string          `json:"status"`
	Output   json.RawMessage `json:"output,omitempty"`
	Error    *Error          `json:"error,omitempty"`
	Attempts int             `json:"attempts,omitempty"`
}

// Retry is a step that threw and is due again after RetryInMs; Attempt tries were made so far.
type Retry struct {
	Name      string `json:"name"`
	Number    int    `json:"number"`
	Attempt   int    `json:"attempt"`
	RetryInMs int64  `json:"retryInMs"`
}

// Limits are the server's; zero is none.
type Limits struct {
	Steps       int `json:"steps"`
	ResultBytes int `json:"resultBytes"`
}

// Error is a thrown error as it is saved.
type Error struct {
	Name    string          `json:"name"`
	Message string          `json:"message"`
	Stack   string          `json:"stack,omitempty"`
	Cause   *Error          `json:"cause,omitempty"`
	Fields  json.RawMessage `json:"fields,omitempty"`
}

// What an Item does.
const (
	OpStart     = "start"
	OpCompleted = "completed"
	OpFailed    = "failed"
	OpWait      = "wait"
	OpClaim     = "claim"
	OpCallback  = "callback"
	OpUndo      = "undo"
)

// The kinds of steps. All but KindRun have no body: the server brings their result.
const (
	KindRun      = "run"
	KindSleep    = "sleep"
	KindEvent    = "event"
	KindInvoke   = "invoke"
	KindCallback = "callback" // the making of one, and the wait for it
	KindClaim    = "claim"
	KindUndo     = "undo" // says that there is something to undo
)

// Item is one line of a save, or of what a suspended answer registers.
type Item struct {
	Op           string          `json:"op"`
	Kind         string          `json:"kind"`
	Name         string          `json:"name"`
	Number       int             `json:"number"`
	Attempt      int             `json:"attempt"`
	Output       json.RawMessage `json:"output,omitempty"`
	Error        *Error          `json:"error,omitempty"`
	Retriable    bool            `json:"retriable"`
	Retries      int             `json:"retries"`
	RetryAfterMs *int64          `json:"retryAfterMs,omitempty"`
	StartedAt    time.Time       `json:"startedAt"`
	EndedAt      time.Time       `json:"endedAt"`
	Once         bool            `json:"once,omitempty"` // of a start: the step runs at most once (S5)
	Terms        *Terms          `json:"-"`              // of a wait, a claim, a callback and an undo, and of nothing else
}

// Save is one call's part of a request of saves.
type Save struct {
	Call  string
	Token string
	Nonce string
	Seen  int64
	Items []*Item
	Logs  []*Line
}

// The levels of a line.
const (
	LevelDebug = "debug"
	LevelInfo  = "info"
	LevelWarn  = "warn"
	LevelError = "error"
)

// Line is a line of the run's log. Step is nil for one that was written outside steps, which has Entry then: the highest entry that the
// code had been shown. Number counts the lines of the attempt, or those since that entry, from 1.
type Line struct {
	At      time.Time
	Level   string
	Message string
	Fields  json.RawMessage // a JSON object; nil: none
	Step    *StepRef
	Attempt int
	Entry   int64
	Number  int
}

// The statuses of a save, an end and a piece of news.
const (
	StatusAccepted   = "accepted"
	StatusLater      = "later"
	StatusSuperseded = "superseded"
	StatusEnded      = "ended"
	StatusInvalid    = "invalid"
	StatusEnding     = "ending"
	StatusEntries    = "entries"
	StatusNamed      = "named?"
)

// The statuses of an item.
const (
	ItemStarted  = "started"
	ItemWaiting  = "waiting"
	ItemSaved    = "saved"
	ItemStands   = "stands"
	ItemRetrying = "retrying"
	ItemRefused  = "refused"
)

// Outcome is the answer to one save. Outcomes come in the order of the saves, whose calls they name; that is not read.
type Outcome struct {
	Status  string        `json:"status"`
	Items   []ItemOutcome `json:"items"`
	Entries []Entry       `json:"entries"`
	Ending  *Ending       `json:"ending"`
	Detail  string        `json:"detail"`
}

// ItemOutcome is the answer to one item.
type ItemOutcome struct {
	Status    string          `json:"status"`
	Entry     int64           `json:"entry"`
	Output    json.RawMessage `json:"output"` // of a claim and a callback
	Attempt   int             `json:"attempt"`
	RetryInMs int64           `json:"retryInMs"`
	Again     bool            `json:"again"` // of a start: an attempt of the step was started before (S4)
	CheckInMs int64           `json:"checkInMs"`
	Error     *Error          `json:"error"`
}

// Why a run is ending, or closes. One that failed is never ending: it closes at once.
const (
	ReasonCancelled = "cancelled"
	ReasonTimedOut  = "timedOut"
	ReasonFailed    = "failed"
)

// Ending says why a run is ending (Z1).
type Ending struct {
	Reason string `json:"reason"`
}

// News is what a heartbeat's answer says of a call.
type News struct {
	Call    string  `json:"call"`
	Nonce   string  `json:"nonce"`
	Status  string  `json:"status"`
	Ending  *Ending `json:"ending"`
	Entries []Entry `json:"entries"`
}

// Page is a page of a run's history; Next is nil on the last.
type Page struct {
	Time    time.Time `json:"time"`
	Entries []Entry   `json:"entries"`
	Next    *int64    `json:"next"`
}

// The types of an answer.
const (
	AnswerCompleted = "completed"
	AnswerFailed    = "failed"
	AnswerSuspended = "suspended"
	AnswerYielded   = "yielded"
	AnswerRestarted = "restarted"
	AnswerOver      = "over"
)

// Answer is the answer to a call, and the end that goes through the API in its place.
type Answer struct {
	Type         string
	Nonce        string
	Manifest     string
	Output       json.RawMessage
	Error        *Error
	Retriable    bool
	Retries      int
	RetryAfterMs *int64
	Payload      json.RawMessage // with which the run begins again
	Seen         int64
	Excused      bool    // yielded because the process stops, or the API can't be reached
	Register     []*Item // waits that are to be opened
	Waits        []Wait
	Unasked      []StepRef // saved steps that the code did not ask for
	Unsaved      []*Item
	Logs         []*Line
}

// Wait is one thing that a suspended run waits for, as a tree (H4): a step that threw, a wait that is open, all of several, or the first
// of them. One of the fields is set.
type Wait struct {
	Retry *StepRef `json:"retry,omitempty"`
	Wait  *StepRef `json:"wait,omitempty"`
	All   []Wait   `json:"all,omitempty"`
	Race  []Wait   `json:"race,omitempty"`
}

// How the code ended that was verified; it waits where Verified.End is empty.
const (
	EndReturned = "returned"
	EndThrew    = "threw"
	EndLate     = "late"
)

// Verified is the answer to a verify.
type Verified struct {
	Unasked []StepKind // saved steps that the code did not ask for
	Asked   []StepKind // steps without an entry that the code waits for
	End     string
	Error   *Error // where End is EndThrew
}

// StepKind names a step and its kind.
type StepKind struct {
	Kind   string
	Name   string
	Number int
}

// StepRef names a step within its run.
type StepRef struct {
	Name   string `json:"name"`
	Number int    `json:"number"`
}

// End is one call's end through the API.
type End struct {
	Call  string
	Token string
	Nonce string
	End   *Answer
}

// EndOutcome is the answer to one end, as an Outcome is to a save.
type EndOutcome struct {
	Status string `json:"status"`
}
