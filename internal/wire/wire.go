// Package wire holds the messages between server and app, version 1 of the protocol (protocol/SPEC.md), and decodes those
// that come from outside. It decides what a well-formed message is and nothing else: it knows no run, no store and no socket.
//
// Users' values (payloads, outputs) stay the JSON text they came as (jsontext.Value); a nil value is JavaScript's undefined.
package wire

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
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
	ErrorBytesMax  = 64 << 10 // one error with its causes
	PageEntriesMax = 1_000    // entries in one page of steps
	PageBytesMax   = 4 << 20  // results in one page of steps
	nestingMax     = 200      // depth of causes is 8; of whole messages this
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
	Limits Limits   `json:"limits"`
	URL    string   `json:"url"`
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

// Steps is the first page of a run's history, and the steps that are due again.
type Steps struct {
	Entries  []Entry    `json:"entries"`
	Next     *int64     `json:"next"`
	Retrying []Retrying `json:"retrying"`
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
	Waits        []Wait         `json:"waits,omitempty"`
}

// Wait is one thing that a suspended run waits for.
type Wait struct {
	Retry *StepRef `json:"retry,omitzero"`
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
)

// Item is one thing that a save says of a step. The kind of a step is "run".
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
	Seen  int64  `json:"seen"`
	Items []Item `json:"items"`
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
)

// Statuses of one item's outcome.
const (
	ItemStarted  = "started"
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
}

// EndingInfo says that a run is ending, and why: "cancelled" or "timedOut".
type EndingInfo struct {
	Reason string `json:"reason"`
}

// Heartbeat is the body of POST /v1/heartbeats: the calls that a process plays.
type Heartbeat struct {
	Process string  `json:"process"`
	Calls   []Fence `json:"calls"`
	WaitMs  int64   `json:"waitMs"`
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
	if err := json.Unmarshal(data, into, options); err != nil {
		return fmt.Errorf("the body is not the JSON that is expected here: %w", err)
	}
	return nil
}

// Encode writes a message. It fails only on a broken user value, which Decode would have refused.
func Encode(message any) ([]byte, error) {
	return json.Marshal(message, options)
}

// CheckItem gives the rule that an item breaks, as a sentence; empty if it breaks none.
func CheckItem(item *Item) string {
	switch {
	case item.Kind != "run":
		return fmt.Sprintf("an item's kind must be \"run\", not %q", clip(item.Kind))
	case item.Name == "" || len(item.Name) > NameBytesMax:
		return fmt.Sprintf("a step's name must have 1 to %d bytes, not %d", NameBytesMax, len(item.Name))
	case item.Number < 1 || item.Attempt < 1:
		return fmt.Sprintf("step %q: number and attempt count from 1", item.Name)
	case item.Op == OpFailed && item.Error == nil:
		return fmt.Sprintf("step %q failed without an error", item.Name)
	case item.Op != OpStart && item.Op != OpCompleted && item.Op != OpFailed:
		return fmt.Sprintf("an item's op must be start, completed or failed, not %q", clip(item.Op))
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
