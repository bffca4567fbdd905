// Package wire holds the messages between server and app, version 1 of the protocol (protocol/SPEC.md), and decodes those
// that come from outside. It decides what a well-formed message is and nothing else: it knows no run, no store and no socket.
//
// Users' values (payloads, outputs) stay the JSON text they came as (jsontext.Value); a nil value is JavaScript's undefined.
package wire

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Names and limits of the protocol. The numbers are those of protocol/SPEC.md.
const (
	ContentType    = "application/vnd.nelkap+json"
	HeaderProtocol = "Nelkap-Protocol"
	HeaderSDK      = "Nelkap-SDK"
	HeaderToken    = "Nelkap-Token"
	HeaderNonce    = "Nelkap-Nonce"
	Version        = 1

	CallBytesMax   = 16 << 20 // a call or its answer
	SavesBytesMax  = 8 << 20  // one POST /v1/saves
	ResultBytesMax = 4 << 20  // one step's result, a payload or an output (promise 16)
	StepsMax       = 10_000   // saved steps of one run (promise 16)
	RunBytesMax    = 64 << 20 // saved results of one run (promise 16)
	NameBytesMax   = 256      // a step's, workflow's or event's name
	KeyBytesMax    = 512      // a run's key, a claim's key
	ErrorBytesMax  = 64 << 10 // one error with its causes
	PageEntriesMax = 1_000    // entries in one page of steps
	PageBytesMax   = 4 << 20  // results in one page of steps
	nestingMax     = 200      // depth of causes is 8; of whole messages this

	DurationMsMax = 3_155_760_000_000 // 100 years: what is longer is for ever, and may not fit Go's durations
)

// Time is an instant as JSON carries it: RFC 3339, UTC, milliseconds.
type Time struct{ time.Time }

// At makes a Time of t, cut to milliseconds.
func At(t time.Time) Time { return Time{t.UTC().Truncate(time.Millisecond)} }

const timeLayout = "2006-01-02T15:04:05.000Z"

// MarshalJSONTo writes the instant, or null for the zero time.
func (t Time) MarshalJSONTo(enc *jsontext.Encoder) error {
	if t.IsZero() {
		return enc.WriteToken(jsontext.Null)
	}
	return enc.WriteToken(jsontext.String(t.UTC().Format(timeLayout)))
}

// UnmarshalJSONFrom reads any RFC 3339 instant, or null as the zero time.
func (t *Time) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	tok, err := dec.ReadToken()
	if err != nil {
		return err
	}
	if tok.Kind() == 'n' {
		*t = Time{}
		return nil
	}
	if tok.Kind() != '"' {
		return fmt.Errorf("a time must be a text such as %q", timeLayout)
	}
	parsed, err := time.Parse(time.RFC3339Nano, tok.String())
	if err != nil {
		return fmt.Errorf("%q is not an RFC 3339 time", tok.String())
	}
	*t = At(parsed)
	return nil
}

// Error is what user code threw.
type Error struct {
	Name    string         `json:"name"`
	Message string         `json:"message"`
	Stack   string         `json:"stack,omitzero"`
	Cause   *Error         `json:"cause,omitzero"`
	Fields  jsontext.Value `json:"fields,omitzero"`
}

// Manifest is what an app says of itself.
type Manifest struct {
	App       string     `json:"app"`
	SDK       SDK        `json:"sdk"`
	Protocol  int        `json:"protocol"`
	Hash      string     `json:"hash"`
	Workflows []Workflow `json:"workflows"`
}

// SDK names the library that an app uses.
type SDK struct {
	Language string `json:"language"`
	Version  string `json:"version"`
}

// Workflow is a workflow as its app declares it. A nil option was not given.
type Workflow struct {
	Name      string    `json:"name"`
	Triggers  []Trigger `json:"triggers,omitempty"`
	Retries   *int      `json:"retries,omitzero"`
	TimeoutMs int64     `json:"timeoutMs,omitzero"`
	LeaseMs   int64     `json:"leaseMs,omitzero"`
	CancelOn  []Trigger `json:"cancelOn,omitempty"`
	OnFailure bool      `json:"onFailure,omitzero"`
	OnCancel  bool      `json:"onCancel,omitzero"`
}

// Trigger is one way to start a workflow: Event, Webhook or Schedule is set.
type Trigger struct {
	Event    string `json:"event,omitzero"`
	Webhook  string `json:"webhook,omitzero"`
	Schedule string `json:"schedule,omitzero"`
	Timezone string `json:"timezone,omitzero"`
	CatchUp  string `json:"catchUp,omitzero"`
	If       string `json:"if,omitzero"`
}

// Describe asks an app for its manifest.
type Describe struct {
	Type string `json:"type"`
}

// Call is the server's request to play a run.
type Call struct {
	Type   string   `json:"type"`
	Run    Run      `json:"run"`
	Call   CallInfo `json:"call"`
	Steps  Steps    `json:"steps"`
	Ending *Closing `json:"ending,omitzero"`
	Limits Limits   `json:"limits"`
	URL    string   `json:"url"`
}

// Closing says to a call that it undoes and tells, and what the run ends with (Z1).
type Closing struct {
	Reason  string         `json:"reason"`
	Error   jsontext.Value `json:"error,omitzero"`
	Entries int64          `json:"entries"`
}

// Run is the run that a call plays.
type Run struct {
	ID        string         `json:"id"`
	Workflow  string         `json:"workflow"`
	App       string         `json:"app"`
	Payload   jsontext.Value `json:"payload,omitzero"`
	Event     *Event         `json:"event"`
	Key       *string        `json:"key"`
	ReplayOf  *string        `json:"replayOf"`
	Root      string         `json:"root"`
	Restart   int            `json:"restart"`
	Attempt   int            `json:"attempt"`
	CreatedAt Time           `json:"createdAt"`
}

// Event is the event that started a run.
type Event struct {
	ID        string         `json:"id"`
	Event     string         `json:"event"`
	Payload   jsontext.Value `json:"payload,omitzero"`
	CreatedAt Time           `json:"createdAt"`
}

// CallInfo is the call itself: who may save, and how contact is kept.
type CallInfo struct {
	ID          string `json:"id"`
	Epoch       int64  `json:"epoch"`
	Token       string `json:"token"`
	Cuts        int    `json:"cuts"`
	LeaseMs     int64  `json:"leaseMs"`
	HeartbeatMs int64  `json:"heartbeatMs"`
	SentAt      Time   `json:"sentAt"`
}

// Limits are what the SDK checks before a body (counts) and after it (sizes).
type Limits struct {
	Steps       int `json:"steps"`
	ResultBytes int `json:"resultBytes"`
}

// Steps is the first page of a run's history, the steps that are due again, the waits that are open, and the steps whose start is recorded, of
// which some may be saved.
type Steps struct {
	Entries  []Entry    `json:"entries"`
	Next     *int64     `json:"next"`
	Retrying []Retrying `json:"retrying"`
	Waiting  []Waiting  `json:"waiting,omitempty"`
	Begun    []StepRef  `json:"begun,omitempty"`
}

// Waiting is a wait that is open.
type Waiting struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Number int    `json:"number"`
}

// Retrying is a step that threw Attempt times and is due again.
type Retrying struct {
	Name      string `json:"name"`
	Number    int    `json:"number"`
	Attempt   int    `json:"attempt"`
	RetryInMs int64  `json:"retryInMs"`
}

// Entry is one entry of a run's history (W9).
type Entry struct {
	Entry    int64          `json:"entry"`
	Kind     string         `json:"kind"`
	Name     string         `json:"name"`
	Number   int            `json:"number"`
	Status   string         `json:"status"`
	Output   jsontext.Value `json:"output,omitzero"`
	Error    jsontext.Value `json:"error,omitzero"`
	Attempts int            `json:"attempts,omitzero"`
}

// Types of an answer.
const (
	Completed = "completed"
	Failed    = "failed"
	Suspended = "suspended"
	Yielded   = "yielded"
	Restarted = "restarted"
	Over      = "over"
)

// End is the answer to a call, over HTTP or through the API.
type End struct {
	Type         string         `json:"type"`
	Nonce        string         `json:"nonce,omitzero"`
	Manifest     string         `json:"manifest,omitzero"`
	Unsaved      []Item         `json:"unsaved,omitempty"`
	Output       jsontext.Value `json:"output,omitzero"`
	Error        *Error         `json:"error,omitzero"`
	Retriable    bool           `json:"retriable,omitzero"`
	Retries      int            `json:"retries,omitzero"`
	RetryAfterMs *int64         `json:"retryAfterMs,omitzero"`
	Seen         int64          `json:"seen,omitzero"`
	Excused      bool           `json:"excused,omitzero"`
	Register     []Item         `json:"register,omitempty"`
	Waits        []Tree         `json:"waits,omitempty"`
	Payload      jsontext.Value `json:"payload,omitzero"`
	// Unasked are saved steps that the code, at rest, did not ask for.
	Unasked []StepRef `json:"unasked,omitempty"`
	Logs    []LogLine `json:"logs,omitempty"`
}

// Tree is one thing that a suspended run waits for, or several combined (H4). One of the fields is set.
type Tree struct {
	Retry *StepRef `json:"retry,omitzero"`
	Wait  *StepRef `json:"wait,omitzero"`
	All   []Tree   `json:"all,omitempty"`
	Race  []Tree   `json:"race,omitempty"`
	Any   []Tree   `json:"any,omitempty"`
}

// StepRef names a step of a run.
type StepRef struct {
	Name   string `json:"name"`
	Number int    `json:"number"`
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

// UntilFailed frees a claim when its owner fails.
const UntilFailed = "failed"

// Item is one thing that a save says of a step.
type Item struct {
	Op           string         `json:"op"`
	Kind         string         `json:"kind"`
	Name         string         `json:"name"`
	Number       int            `json:"number"`
	Attempt      int            `json:"attempt"`
	Output       jsontext.Value `json:"output,omitzero"`
	Error        *Error         `json:"error,omitzero"`
	Retriable    bool           `json:"retriable,omitzero"`
	Retries      int            `json:"retries,omitzero"`
	RetryAfterMs *int64         `json:"retryAfterMs,omitzero"`
	StartedAt    Time           `json:"startedAt,omitzero"`
	EndedAt      Time           `json:"endedAt,omitzero"`
	// Once: of a start, its step runs at most once (S5); of a claim, it is its workflow's (K4).
	Once bool `json:"once,omitzero"`

	// Of a wait, a callback or a claim.
	DelayMs   *int64                    `json:"delayMs,omitzero"`
	Until     string                    `json:"until,omitzero"` // an instant; of a claim "failed"
	Events    []string                  `json:"events,omitempty"`
	Match     map[string]jsontext.Value `json:"match,omitempty"`
	If        string                    `json:"if,omitzero"`
	Since     string                    `json:"since,omitzero"`
	Workflow  string                    `json:"workflow,omitzero"`
	App       string                    `json:"app,omitzero"`
	Payload   jsontext.Value            `json:"payload,omitzero"`
	Of        int                       `json:"of,omitzero"`
	TimeoutMs *int64                    `json:"timeoutMs,omitzero"`

	// Of a claim.
	Key   string `json:"key,omitzero"`
	ForMs int64  `json:"forMs,omitzero"`
}

// Saves is the body of POST /v1/saves.
type Saves struct {
	Process  string `json:"process"`
	Manifest string `json:"manifest,omitzero"`
	Saves    []Save `json:"saves"`
}

// Fence is the right to speak for a call: its id, its token, and the playing's nonce (C4, C6).
type Fence struct {
	Call  string `json:"call"`
	Token string `json:"token"`
	Nonce string `json:"nonce"`
}

// Save is what one playing saves.
type Save struct {
	Fence `json:",inline"`
	Seen  int64     `json:"seen"`
	Items []Item    `json:"items"`
	Logs  []LogLine `json:"logs,omitempty"`
}

// Statuses of one outcome of a save, an end or a heartbeat.
const (
	Accepted   = "accepted"
	Later      = "later"
	Superseded = "superseded"
	Ended      = "ended"
	Invalid    = "invalid"
	Ending     = "ending"
	NamedQ     = "named?"
	NewEntries = "entries"
)

// Statuses of one item's outcome.
const (
	ItemStarted  = "started"
	ItemWaiting  = "waiting"
	ItemSaved    = "saved"
	ItemStands   = "stands"
	ItemRetrying = "retrying"
	ItemRefused  = "refused"
)

// SavesAnswer answers POST /v1/saves: one outcome for each save, in order (N3).
type SavesAnswer struct {
	Time  Time          `json:"time"`
	Saves []SaveOutcome `json:"saves"`
}

// SaveOutcome is the outcome of one save.
type SaveOutcome struct {
	Call    string        `json:"call"`
	Status  string        `json:"status"`
	Items   []ItemOutcome `json:"items,omitempty"`
	Entries []Entry       `json:"entries,omitempty"`
	Ending  *EndingInfo   `json:"ending,omitzero"`
	Detail  string        `json:"detail,omitzero"`
}

// ItemOutcome is the outcome of one item.
type ItemOutcome struct {
	Status    string `json:"status"`
	Entry     int64  `json:"entry,omitzero"`
	Attempt   int    `json:"attempt,omitzero"`
	RetryInMs int64  `json:"retryInMs,omitzero"`
	Error     *Error `json:"error,omitzero"`
	// Again: an attempt of the step was started before; its check runs CheckInMs from now at the earliest (S4).
	Again     bool           `json:"again,omitzero"`
	CheckInMs int64          `json:"checkInMs,omitzero"`
	Output    jsontext.Value `json:"output,omitzero"`
}

// EndingInfo says that a run is ending, and why: "cancelled" or "timedOut".
type EndingInfo struct {
	Reason string `json:"reason"`
}

// Heartbeat is the body of POST /v1/heartbeats: the calls that a process plays.
type Heartbeat struct {
	Process string  `json:"process"`
	Calls   []Named `json:"calls"`
	WaitMs  int64   `json:"waitMs"`
}

// Named is a call that a process names, with the last entry that it has seen; nil: it takes no news of entries.
type Named struct {
	Fence `json:",inline"`
	Seen  *int64 `json:"seen,omitzero"`
}

// HeartbeatAnswer has the calls with news.
type HeartbeatAnswer struct {
	Time  Time   `json:"time"`
	Calls []News `json:"calls"`
}

// News is what a process must know of one of its calls.
type News struct {
	Call   string      `json:"call"`
	Nonce  string      `json:"nonce"`
	Status string      `json:"status"`
	Ending *EndingInfo `json:"ending,omitzero"`
	// Entries are those that the call has not seen, of NewEntries (H2).
	Entries []Entry `json:"entries,omitempty"`
}

// Ends is the body of POST /v1/ends.
type Ends struct {
	Process string    `json:"process"`
	Ends    []SentEnd `json:"ends"`
}

// SentEnd is one call's end through the API.
type SentEnd struct {
	Fence `json:",inline"`
	End   End `json:"end"`
}

// EndsAnswer answers POST /v1/ends.
type EndsAnswer struct {
	Time Time         `json:"time"`
	Ends []EndOutcome `json:"ends"`
}

// EndOutcome is the outcome of one end.
type EndOutcome struct {
	Call   string `json:"call"`
	Status string `json:"status"`
	Detail string `json:"detail,omitzero"`
}

// StepsPage answers GET /v1/calls/{id}/steps.
type StepsPage struct {
	Time    Time    `json:"time"`
	Entries []Entry `json:"entries"`
	Next    *int64  `json:"next"`
}

// Send marks a run or an event that a step sends (K1).
type Send struct {
	Fence `json:",inline"`
	Step  StepRef `json:"step"`
	Place int     `json:"place"`
}

// options keep escaped lone surrogates, which JavaScript's texts may hold, as they are; raw bytes must be UTF-8 (checked by Decode).
var options = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true), jsontext.PreserveRawStrings(true))

// Decode reads one message from data. Its errors are sentences for whoever sent it.
func Decode(data []byte, into any) error {
	if !utf8.Valid(data) {
		return fmt.Errorf("the body is not valid UTF-8: send JSON in UTF-8")
	}
	if err := json.Unmarshal(data, into, bounded(len(data))); err != nil {
		return fmt.Errorf("the body is not the JSON that is expected here: %w", err)
	}
	return nil
}

// What a message is made of takes up to a hundred times the memory of its JSON where that is `{}`, and work: in a large message each has
// at least so many bytes, on the average, as the shortest that means something.
const (
	bytesFree  = 64 << 10 // a message of so many may hold anything
	fenceBytes = 64       // of what names a call: its id and its token alone are longer
	itemBytes  = 32
	treeBytes  = 16
)

// errTooMany: a message holds more than its bytes can mean.
var errTooMany = errors.New("it holds too many things that say nothing")

// bounded are the options that read a message of so many bytes.
func bounded(size int) json.Options {
	if size <= bytesFree {
		return options
	}
	left := size + bytesFree
	return json.JoinOptions(options, json.WithUnmarshalers(json.JoinUnmarshalers(
		counted[Save](&left, fenceBytes), counted[Named](&left, fenceBytes), counted[SentEnd](&left, fenceBytes),
		counted[Item](&left, itemBytes), counted[LogLine](&left, itemBytes), counted[Tree](&left, treeBytes),
	)))
}

// counted takes a value's bytes from those that are left, and leaves the reading to the library.
func counted[T any](left *int, bytes int) *json.Unmarshalers {
	return json.UnmarshalFromFunc(func(*jsontext.Decoder, *T) error {
		if *left -= bytes; *left < 0 {
			return errTooMany
		}
		return errors.ErrUnsupported
	})
}

// Encode writes a message. It fails only on a broken user value, which Decode would have refused.
func Encode(message any) ([]byte, error) {
	return json.Marshal(message, options)
}

// kinds are the kinds of steps, and the ops that their items have.
var kinds = map[string][]string{
	"run":      {OpStart, OpCompleted, OpFailed},
	"sleep":    {OpWait, OpFailed},
	"event":    {OpWait, OpFailed},
	"invoke":   {OpWait, OpFailed},
	"callback": {OpWait, OpCallback, OpFailed},
	"claim":    {OpClaim, OpFailed},
	"undo":     {OpUndo, OpFailed},
}

// CheckItem gives the rule that an item breaks, as a sentence; empty if it breaks none.
func CheckItem(item *Item) string {
	ops, known := kinds[item.Kind]
	switch {
	case !known:
		return fmt.Sprintf("an item's kind must be run, sleep, event, invoke, callback, claim or undo, not %q", clip(item.Kind))
	case item.Op == OpClaim && item.Once && item.Name == "" && item.Number == 1:
		return checkKey(item)
	case item.Name == "" || len(item.Name) > NameBytesMax:
		return fmt.Sprintf("a step's name must have 1 to %d bytes, not %d", NameBytesMax, len(item.Name))
	case item.Number < 1:
		return fmt.Sprintf("step %q: number counts from 1", item.Name)
	case !slices.Contains(ops, item.Op):
		return fmt.Sprintf("step %q: an item of kind %s has the op %s, not %q", item.Name, item.Kind, strings.Join(ops, " or "), clip(item.Op))
	case item.Attempt < 1 && (item.Op == OpStart || item.Op == OpCompleted || item.Op == OpFailed):
		return fmt.Sprintf("step %q: attempt counts from 1", item.Name)
	case item.Op == OpFailed && item.Error == nil:
		return fmt.Sprintf("step %q failed without an error", item.Name)
	case item.Op == OpClaim:
		return checkKey(item)
	}
	return ""
}

func checkKey(item *Item) string {
	switch {
	case item.Key == "" || len(item.Key) > KeyBytesMax:
		return fmt.Sprintf("claim %q: a key has 1 to %d bytes, not %d", item.Name, KeyBytesMax, len(item.Key))
	case item.Until != "" && item.Until != UntilFailed:
		return fmt.Sprintf("claim %q: until is \"failed\" or absent, not %q", item.Name, clip(item.Until))
	case item.ForMs < 0:
		return fmt.Sprintf("claim %q: forMs can't be negative", item.Name)
	case item.ForMs > DurationMsMax:
		return fmt.Sprintf("claim %q: forMs is at most %d, which is 100 years; without it the key is kept for ever", item.Name, int64(DurationMsMax))
	}
	return ""
}

// clip keeps hostile texts out of sentences: at most 64 bytes.
func clip(text string) string {
	if len(text) > 64 {
		return text[:64] + "…"
	}
	return text
}

// DepthMax bounds how deep a user's value may be nested, so that nothing that reads it later runs out of stack.
const DepthMax = 200

// Depth is how deep valid JSON is nested: 0 for a text or a number.
func Depth(value []byte) int {
	depth, deepest, text := 0, 0, false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}
