// Package apitype holds the types of the public HTTP API: what the server answers (httpapi), what the Go client reads (client),
// and what api/openapi.json is made of. JSON is camelCase; a user's value is the JSON that it is, absent for undefined.
package apitype

import (
	"encoding/json"
	"time"
)

// Time is an instant: RFC 3339, UTC, milliseconds.
type Time struct{ time.Time }

// At makes a Time; nil for the zero time.
func At(t time.Time) *Time {
	if t.IsZero() {
		return nil
	}
	return &Time{t.UTC()}
}

// MarshalJSON writes milliseconds, also where they are zero.
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(t.UTC().Format(`"2006-01-02T15:04:05.000Z"`)), nil
}

// StatusGone is the status that a start is answered whose key's run has ended and is not kept any more.
const StatusGone = "gone"

// Run is a run.
type Run struct {
	ID                string          `json:"id" doc:"run_… (a TypeID: ids sort by time)"`
	Workflow          string          `json:"workflow"`
	App               string          `json:"app"`
	Status            string          `json:"status" enum:"queued,running,waiting,completed,failed,cancelled,skipped,gone" doc:"gone: of a start alone, whose key had a run that has ended and is not kept any more (--runs-for): nothing is known of it but its id, and nothing was started"`
	Payload           json.RawMessage `json:"payload,omitempty" doc:"what the run was started with; absent for undefined"`
	Output            json.RawMessage `json:"output,omitempty" doc:"what the workflow returned; null until it has completed, absent for undefined"`
	Error             *Error          `json:"error" doc:"why it failed; also while it undoes what it did, before it has failed"`
	Event             *string         `json:"event" doc:"the name of the event that started it"`
	EventID           *string         `json:"eventId" doc:"the id of the event that started it"`
	Key               *string         `json:"key" doc:"the run key"`
	ReplayOf          *string         `json:"replayOf" doc:"the run that this one replays"`
	Attempt           int             `json:"attempt" doc:"the try of the code outside steps, counted since the last saved step"`
	Restart           int             `json:"restart" doc:"how often step.restart has begun it again; its payload and its steps are those since then"`
	Closing           bool            `json:"closing" doc:"true: its code is over, and it undoes and tells before it has its final status"`
	Warning           *string         `json:"warning" doc:"what to know of it: that its code has changed under it"`
	CreatedAt         *Time           `json:"createdAt"`
	StartedAt         *Time           `json:"startedAt" doc:"when it was first called"`
	EndedAt           *Time           `json:"endedAt"`
	CancelRequestedAt *Time           `json:"cancelRequestedAt"`
	WaitingFor        *WaitingFor     `json:"waitingFor" doc:"why it does not go on, and when it is looked at next"`
}

// WaitingFor says why a run does not go on.
type WaitingFor struct {
	Reason string `json:"reason"`
	NextAt *Time  `json:"nextAt"`
}

// Error is what user code threw, or what Nelkap says in its place.
type Error struct {
	Name    string          `json:"name"`
	Message string          `json:"message"`
	Stack   string          `json:"stack,omitempty"`
	Cause   *Error          `json:"cause,omitempty"`
	Fields  json.RawMessage `json:"fields,omitempty" doc:"the error's own fields"`
}

// StartedRun is a run that was asked for.
type StartedRun struct {
	Run
	Created        bool `json:"created" doc:"false: the key had this run already; a try again with the same id answers as the first one did"`
	PayloadDiffers bool `json:"payloadDiffers,omitzero" doc:"true: it was started with another payload"`
}

// Step is a step of a run.
type Step struct {
	Entry    *int64          `json:"entry" doc:"its number in the run's history; null until it is saved"`
	Name     string          `json:"name"`
	Number   int             `json:"number" doc:"the count of that name in the run"`
	Kind     string          `json:"kind" enum:"run,sleep,event,invoke,callback,claim,undo"`
	Status   string          `json:"status" enum:"running,retrying,completed,failed"`
	Output   json.RawMessage `json:"output,omitempty"`
	Error    *Error          `json:"error"`
	Attempts []Attempt       `json:"attempts"`
}

// Attempt is one try of a step.
type Attempt struct {
	StartedAt *Time  `json:"startedAt"`
	EndedAt   *Time  `json:"endedAt"`
	Error     *Error `json:"error"`
}

// Verification is what new code would do with live runs.
type Verification struct {
	App string `json:"app" doc:"the name of the app that answered"`
	List[VerifiedRun]
}

// VerifiedRun is what new code would do with a live run.
type VerifiedRun struct {
	RunID    string        `json:"runId"`
	Workflow string        `json:"workflow"`
	Status   string        `json:"status"`
	Diverges bool          `json:"diverges"`
	Problems []string      `json:"problems" doc:"where it would leave its history"`
	Skipped  *string       `json:"skipped" doc:"why it was not played; null if it was"`
	Asks     []PlannedStep `json:"asks" doc:"the steps that its code would ask for next"`
}

// LogLine is a line of a run's log.
type LogLine struct {
	At      *Time           `json:"at"`
	Level   string          `json:"level" enum:"debug,info,warn,error"`
	Message string          `json:"message"`
	Fields  json.RawMessage `json:"fields,omitempty" doc:"what the code gave beside the message"`
	Restart int             `json:"restart" doc:"the run's restart number then"`
	Step    *string         `json:"step" doc:"the step that it was written in; null outside steps"`
	Number  *int            `json:"number" doc:"the count of that step's name"`
	Attempt int             `json:"attempt" doc:"of the step, or of the code outside steps"`
}

// Event is a stored event.
type Event struct {
	ID        string          `json:"id"`
	Event     string          `json:"event" doc:"its name"`
	Payload   json.RawMessage `json:"payload,omitempty"`
	CreatedAt *Time           `json:"createdAt"`
	Runs      int             `json:"runs" doc:"how many runs it started"`
}

// EmittedEvent is an event that was emitted.
type EmittedEvent struct {
	Event
	Created        bool `json:"created" doc:"false: the id had this event already"`
	PayloadDiffers bool `json:"payloadDiffers,omitzero" doc:"true: it was emitted with another payload"`
	// DeliveryID is of a configured hook's event.
	DeliveryID string `json:"deliveryId,omitempty" doc:"dlv_…, the delivery that emitted it, where its hook is configured"`
}

// Delivery is a request to a configured hook.
type Delivery struct {
	ID           string           `json:"id" doc:"dlv_…"`
	Hook         string           `json:"hook" doc:"its name"`
	Provider     string           `json:"provider"`
	Status       string           `json:"status" enum:"verified,duplicate,rejected,unverified" doc:"verified: it emitted its events; duplicate: one with its id had before; rejected: it emitted nothing; unverified: a rejected one that was redelivered all the same"`
	Reason       *string          `json:"reason" doc:"why it was rejected"`
	ProviderID   *string          `json:"providerId" doc:"the id that its sender gave it; the same when it is sent again"`
	RedeliveryOf *string          `json:"redeliveryOf" doc:"the delivery that it is a redelivery of"`
	Events       []DeliveryEvent  `json:"events" doc:"what it emitted; a duplicate's are those of the first"`
	ReceivedAt   *Time            `json:"receivedAt"`
	Request      *DeliveryRequest `json:"request" doc:"what was sent; null in lists"`
}

// DeliveryEvent is an event that a delivery emitted.
type DeliveryEvent struct {
	ID    string `json:"id"`
	Event string `json:"event" doc:"its name"`
	Runs  int    `json:"runs" doc:"how many runs it started"`
}

// DeliveryRequest is a delivery's request as it came, without the headers that bear secrets.
type DeliveryRequest struct {
	Method  string            `json:"method"`
	Query   map[string]string `json:"query"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body" doc:"the raw bytes, in base64"`
}

// App is an app, or an address at which one is expected.
type App struct {
	Name        *string    `json:"name" doc:"null until the address has answered"`
	URL         string     `json:"url"`
	Status      string     `json:"status" enum:"ready,unusable"`
	Reason      *string    `json:"reason" doc:"why it can't be used now"`
	NextLookAt  *Time      `json:"nextLookAt"`
	SeenAt      *Time      `json:"seenAt" doc:"when it last answered with its manifest"`
	SDK         *SDK       `json:"sdk"`
	Concurrency int        `json:"concurrency" doc:"how many calls it gets at once"`
	Workflows   []Workflow `json:"workflows"`
	Problems    []string   `json:"problems" doc:"what its manifest asks for and this server can't do"`
}

// SDK is the library that an app uses.
type SDK struct {
	Language string `json:"language"`
	Version  string `json:"version"`
}

// Workflow is a workflow of an app.
type Workflow struct {
	Name      string    `json:"name"`
	App       string    `json:"app"`
	Triggers  []Trigger `json:"triggers"`
	Retries   *int      `json:"retries" doc:"tries after the first, of its steps and its own code; null: the SDK's default"`
	TimeoutMs *int64    `json:"timeoutMs"`
	LeaseMs   *int64    `json:"leaseMs"`
	GoneSince *Time     `json:"goneSince" doc:"since when the app lacks it; it still starts for a while"`
}

// Trigger is what starts a workflow.
type Trigger struct {
	Event    string `json:"event,omitempty"`
	Webhook  string `json:"webhook,omitempty"`
	Schedule string `json:"schedule,omitempty"`
	Timezone string `json:"timezone,omitempty"`
	CatchUp  string `json:"catchUp,omitempty"`
	If       string `json:"if,omitempty"`
}

// List is a page of a list.
type List[T any] struct {
	Data       []T     `json:"data"`
	NextCursor *string `json:"nextCursor" doc:"where the next page begins; null on the last"`
}

// Problem is an error, by RFC 9457.
//
//nolint:errname // RFC 9457's word, which clients know.
type Problem struct {
	Type      string          `json:"type" doc:"a page about the code"`
	Title     string          `json:"title"`
	Status    int             `json:"status"`
	Code      string          `json:"code" doc:"stable, for programs"`
	Detail    string          `json:"detail" doc:"what happened and what to do"`
	RequestID string          `json:"requestId"`
	Errors    []ProblemDetail `json:"errors,omitempty" doc:"where in the request"`
}

// ProblemDetail is one thing that is wrong with a request.
type ProblemDetail struct {
	Location string `json:"location,omitempty"`
	Message  string `json:"message"`
}

// Error makes Problem an error; its text is the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus is the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is RFC 9457's.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// Schedule starts a run of its workflow at each of its ticks.
type Schedule struct {
	ID        string          `json:"id"`
	Workflow  string          `json:"workflow"`
	App       string          `json:"app"`
	Schedule  string          `json:"schedule" doc:"minute, hour, day of the month, month, day of the week"`
	Timezone  string          `json:"timezone"`
	CatchUp   string          `json:"catchUp" enum:"none,last,all"`
	Payload   json.RawMessage `json:"payload,omitempty" doc:"stands beside the tick in its runs' payload"`
	Declared  bool            `json:"declared" doc:"it stands in its app's code, and changes with it"`
	Paused    bool            `json:"paused"`
	NextAt    *Time           `json:"nextAt" doc:"null while it is paused"`
	CreatedAt *Time           `json:"createdAt"`
}

// ReplayPlan says what a replay would do.
type ReplayPlan struct {
	Keeps []PlannedStep `json:"keeps" doc:"saved steps that it would take over, in their order"`
	Acts  []PlannedStep `json:"acts" doc:"steps of the original that would run, or wait, again"`
}

// PlannedStep is a step of a ReplayPlan.
type PlannedStep struct {
	Name   string `json:"name"`
	Number int    `json:"number"`
	Kind   string `json:"kind"`
}
