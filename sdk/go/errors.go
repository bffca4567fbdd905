package nelkap

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/core"
	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/value"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// The errors to check for with errors.Is.
var (
	// ErrNotInRun says that a step was started with a context that belongs to no run.
	ErrNotInRun = errors.New("nelkap: not in a run: a step needs the context that the workflow's function was given")
	// ErrNotInStep says that something of an attempt was asked for outside a step's body.
	ErrNotInStep = errors.New("nelkap: not in a step: use the context that the step's body was given")
	// ErrStepCutOff says that a step was cut off too often while it ran, and failed for that.
	ErrStepCutOff = errors.New("nelkap: step cut off too often")
	// ErrStepInterrupted says that a step that runs at most once was cut off.
	ErrStepInterrupted = errors.New("nelkap: step was interrupted")
	// ErrCancelled says that the run was cancelled.
	ErrCancelled = play.ErrCancelled
	// ErrSkipped says that the run was skipped, since another run owns its key.
	ErrSkipped = errors.New("nelkap: run skipped")
	// ErrSuperseded says that a newer call has the run: this one can save nothing more.
	ErrSuperseded = play.ErrSuperseded
	// ErrTimeout says that a step's attempt or a run took longer than it may.
	ErrTimeout = play.ErrTimeout
	// ErrCallOver says that the call has ended, and the run goes on in another one.
	ErrCallOver = play.ErrCallOver
)

// savedNames are the names of saved errors that stand for an Err value.
var savedNames = map[string]error{
	"StepCutOffError":      ErrStepCutOff,
	"StepInterruptedError": ErrStepInterrupted,
	"RunSkippedError":      ErrSkipped,
	"RunCancelledError":    ErrCancelled,
	"TimeoutError":         ErrTimeout,
}

type nonRetriableError struct{ error }

func (e nonRetriableError) Unwrap() error { return e.error }

type retryAfterError struct {
	error
	after time.Duration
}

func (e retryAfterError) Unwrap() error { return e.error }

// NonRetriable marks err: no further attempt. NonRetriable(nil) is nil.
func NonRetriable(err error) error {
	if err == nil {
		return nil
	}
	return nonRetriableError{err}
}

// RetryAfter marks err: the next attempt comes after d, if there is one. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return retryAfterError{err, max(0, d)}
}

// RunError is an error that was saved: what a step or a workflow threw, as it came back. Find it with errors.As. errors.Is
// finds ErrStepCutOff and the like by its Name.
type RunError struct {
	Name    string // the type of the error, "Error" where that says nothing, or "panic"
	Message string
	Stack   string // of a panic
	Cause   *RunError
	// Fields are the thrown error's own fields as a JSON object; nil where it had none.
	Fields json.RawMessage
}

func (e *RunError) Error() string { return e.Message }

// Unwrap is the cause.
func (e *RunError) Unwrap() error {
	if e.Cause == nil {
		return nil
	}
	return e.Cause
}

// Is is true for the Err value that the saved name stands for.
func (e *RunError) Is(target error) bool { return savedNames[e.Name] == target }

// StepError is what a step's last failure is when it reaches the workflow. Returned by the workflow it ends the run at once.
type StepError struct {
	Step     string
	Attempts int
	Err      *RunError
}

func (e *StepError) Error() string { return "step " + e.Step + ": " + e.Err.Message }

// Unwrap is the saved error.
func (e *StepError) Unwrap() error { return e.Err }

// stepError is what a failed entry is for the code.
func stepError(e *wire.Entry) error {
	failed := e.Error
	if failed == nil {
		failed = &wire.Error{Name: "Error", Message: "the step failed"}
	}
	return &StepError{Step: e.Name, Attempts: e.Attempts, Err: runError(failed)}
}

func runError(e *wire.Error) *RunError {
	if e == nil {
		return nil
	}
	return &RunError{Name: e.Name, Message: e.Message, Stack: e.Stack, Cause: runError(e.Cause), Fields: e.Fields}
}

// wire is e for the server, with as many of its causes as travel: one that users made may be its own.
func (e *RunError) wire(depth int) *wire.Error {
	if e == nil || depth > causesMax {
		return nil
	}
	saved := &wire.Error{Name: e.Name, Message: e.Message, Stack: e.Stack, Cause: e.Cause.wire(depth + 1)}
	if e.Fields != nil { // which users may set to what is no JSON
		saved.Fields, _ = value.Encode("fields", &e.Fields)
	}
	return saved
}

// failureOf is how err is saved. It never panics, whatever the methods of err do.
func failureOf(err error) (end core.Settled) {
	end = core.Settled{Err: wire.Fit(savedError(err, 0)), Retriable: true, RetryAfter: -1}
	defer func() {
		_ = recover() // an Is, As or Unwrap of the user's panicked: what is set so far stands
	}()
	if after, ok := find[retryAfterError](err); ok {
		end.RetryAfter = after.after
	} else if _, ok := find[*StepError](err); ok {
		end.Retriable = false
	}
	if _, ok := find[nonRetriableError](err); ok {
		end.Retriable = false
	}
	return end
}

// find is errors.AsType, which is for ever in an error that unwraps to itself, over the layers that are looked at.
func find[E error](err error) (found E, ok bool) {
	for layer := range play.Layers(err) {
		if found, ok = layer.(E); ok { //nolint:errorlint // each layer is looked at as what it is
			return found, true
		}
		if as, has := layer.(interface{ As(target any) bool }); has && as.As(&found) {
			return found, true
		}
	}
	return found, false
}

// causesMax is how many causes of an error are looked at: as many as travel.
const causesMax = 8

// savedError is err and its causes; markers such as NonRetriable leave no trace.
func savedError(err error, depth int) *wire.Error {
	switch e := err.(type) { //nolint:errorlint // each layer is saved as what it is; the wrapped ones follow as causes
	case nonRetriableError:
		return savedError(e.error, depth)
	case retryAfterError:
		return savedError(e.error, depth)
	case *StepError:
		if e != nil && e.Err != nil {
			return e.Err.wire(0)
		}
	case *RunError:
		if e != nil {
			return e.wire(0)
		}
	case *play.PanicError:
		return &wire.Error{Name: "panic", Message: textOf(func() string { return fmt.Sprint(e.Value) }), Stack: e.Stack}
	}
	saved := &wire.Error{Name: typeName(err), Message: textOf(err.Error), Fields: fieldsOf(err)}
	if inner := causeOf(err); inner != nil && depth < causesMax {
		saved.Cause = savedError(inner, depth+1)
	}
	return saved
}

// textOf is what text gives, as UTF-8, or a word on why it gave nothing.
func textOf(text func() string) (s string) {
	defer func() {
		if r := recover(); r != nil {
			s = "the error's own Error method panicked"
		}
	}()
	return strings.ToValidUTF8(text(), "\uFFFD")
}

// causeOf is the error below err: the first of several.
func causeOf(err error) (cause error) {
	defer func() { _ = recover() }() // an Unwrap that panics has no cause to give
	switch e := err.(type) {         //nolint:errorlint // one layer is unwrapped at a time
	case interface{ Unwrap() error }:
		return e.Unwrap()
	case interface{ Unwrap() []error }:
		if all := e.Unwrap(); len(all) > 0 {
			return all[0]
		}
	}
	return nil
}

// typeName is the name of err's type where it is an exported one, else Error.
func typeName(err error) string {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if name, _, _ := strings.Cut(t.Name(), "["); name != "" && name[0] >= 'A' && name[0] <= 'Z' {
		return name
	}
	return "Error"
}

// fieldsOf are the exported fields of err that hold text, numbers or truth values, as a JSON object.
func fieldsOf(err error) (fields json.RawMessage) {
	defer func() { _ = recover() }() // a value that can't be read has no fields to keep
	v := reflect.ValueOf(err)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return nil
	}
	kept := map[string]json.RawMessage{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous || name == "-" || !scalar(v.Field(i).Kind()) || v.Field(i).IsZero() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if text, err := value.EncodeAny(name, v.Field(i).Interface()); err == nil {
			kept[name] = text
		}
	}
	if len(kept) == 0 {
		return nil
	}
	fields, _ = value.Encode("fields", &kept) // each of them was encoded just now
	return fields
}

func scalar(k reflect.Kind) bool {
	return k == reflect.String || k == reflect.Bool || k >= reflect.Int && k <= reflect.Float64
}

// APIError is an answer of the server's that refuses a request.
type APIError struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
}

func (e *APIError) Error() string {
	return fmt.Sprintf("nelkap: the server answered %d %s: %s", e.Status, e.Code, e.Detail)
}

// Is finds ErrSuperseded, and ErrCallOver for a call that has ended.
func (e *APIError) Is(target error) bool {
	return e.Code == wire.StatusSuperseded && target == ErrSuperseded || e.Code == wire.StatusEnded && target == ErrCallOver
}
