package filter

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

const (
	// PayloadBytesMax is the largest payload that the server takes by default, for webhooks' sake.
	PayloadBytesMax = 4 << 20
	// PayloadValuesMax bounds how many values a payload holds, members and elements at every depth: ten bytes each in a payload of 1 MiB.
	PayloadValuesMax = 100_000
	// PayloadDepthMax is how deep the server lets values be nested.
	PayloadDepthMax = 200
)

// Event is an event as filters and matches see it. It is read once, for however many of them, and never changed. A webhook's call, which
// is no event, has a payload alone.
type Event struct {
	ID        string
	Name      string // event.event
	CreatedAt time.Time
	payload   any // map[string]any, []any or scalar
	run       *run
}

// run is the run for which an event is looked at.
type run struct {
	id, key string
	payload any
}

// For is the event as a filter of that run sees it: a wait's, or a cancelOn's. A trigger's sees no run. The error is NewEvent's.
func (event Event) For(id, key string, payload []byte) (Event, error) {
	read, err := NewEvent(id, "", time.Time{}, payload)
	if err != nil {
		return Event{}, fmt.Errorf("filters can't read the payload of run %s: %w", id, err)
	}
	event.run = &run{id, key, read.payload}
	return event, nil
}

// NewEvent reads an event. No payload is null; of members with the same name the last counts, as in JavaScript. The error is for the
// record: what can't be read matches nothing (E3).
func NewEvent(id, name string, createdAt time.Time, payload []byte) (Event, error) {
	event := Event{ID: id, Name: name, CreatedAt: createdAt, payload: scalar("null")}
	if len(payload) == 0 {
		return event, nil
	}
	if len(payload) > PayloadBytesMax {
		return Event{}, fmt.Errorf("filters can't read the payload of event %s: it has %d bytes, more than %d", id, len(payload), PayloadBytesMax)
	}
	r := reader{decoder: jsontext.NewDecoder(bytes.NewReader(payload), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))}
	tree, err := r.value()
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return Event{}, fmt.Errorf("filters can't read the payload of event %s: %w", id, err)
	}
	event.payload = tree
	return event, nil
}

// reader makes a tree of a JSON text. Its leaves are the text's own, so that what reads them decides what they are.
type reader struct {
	decoder *jsontext.Decoder
	values  int
}

func (r *reader) value() (any, error) {
	if r.values++; r.values > PayloadValuesMax {
		return nil, fmt.Errorf("it holds more than %d values", PayloadValuesMax)
	}
	if r.decoder.StackDepth() > PayloadDepthMax {
		return nil, fmt.Errorf("it is nested more than %d deep", PayloadDepthMax)
	}
	switch r.decoder.PeekKind() {
	case '{':
		return r.object()
	case '[':
		return r.array()
	default:
		text, err := r.decoder.ReadValue()
		return scalar(text), err
	}
}

func (r *reader) object() (any, error) {
	if _, err := r.decoder.ReadToken(); err != nil {
		return nil, err
	}
	members := map[string]any{}
	for r.decoder.PeekKind() != '}' {
		name, err := r.decoder.ReadToken()
		if err != nil {
			return nil, err
		}
		text := name.String() // before the next read, which takes its place
		if members[text], err = r.value(); err != nil {
			return nil, err
		}
	}
	_, err := r.decoder.ReadToken()
	return members, err
}

func (r *reader) array() (any, error) {
	if _, err := r.decoder.ReadToken(); err != nil {
		return nil, err
	}
	elements := []any{}
	for r.decoder.PeekKind() != ']' {
		element, err := r.value()
		if err != nil {
			return nil, err
		}
		elements = append(elements, element)
	}
	_, err := r.decoder.ReadToken()
	return elements, err
}

func (r *reader) end() error {
	_, err := r.decoder.ReadToken()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return errors.New("it holds more than one value")
	}
	return err
}

// scalar is the text of a JSON text, number, true, false or null.
type scalar string

// text returns a JSON text without its quotes and escapes. It is not exact where what is written is no Unicode, such as half a surrogate
// pair: then it holds a replacement.
func (s scalar) text() (text string, exact bool) {
	unquoted, err := jsontext.AppendUnquote(nil, s)
	return string(unquoted), err == nil
}

func (s scalar) kind() jsontext.Kind { return jsontext.Value(s).Kind() }

// value is what an expression sees.
func (s scalar) value() ref.Val {
	switch s.kind() {
	case 'n':
		return types.NullValue
	case 't', 'f':
		return types.Bool(s == "true")
	case '"':
		text, _ := s.text()
		return types.String(text)
	default:
		return number(string(s))
	}
}

// variables are those of an expression.
func (event Event) variables() map[string]any {
	payload := adapter{}.NativeToValue(event.payload)
	variables := map[string]any{
		"payload":         payload,
		"event.id":        types.String(event.ID),
		"event.event":     types.String(event.Name),
		"event.createdAt": types.Timestamp{Time: event.CreatedAt},
		"event.payload":   payload,
	}
	if r := event.run; r != nil {
		variables["run.id"], variables["run.key"] = types.String(r.id), types.String(r.key)
		variables["run.payload"] = adapter{}.NativeToValue(r.payload)
	}
	return variables
}

// adapter shows the tree of a payload to an expression, as far as it looks.
type adapter struct{}

// NativeToValue implements types.Adapter.
func (a adapter) NativeToValue(value any) ref.Val {
	switch value := value.(type) {
	case scalar:
		return value.value()
	case map[string]any:
		return types.NewStringInterfaceMap(a, value)
	case []any:
		return types.NewDynamicList(a, value)
	case nil:
		return types.NullValue // an Event that NewEvent did not make
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}
