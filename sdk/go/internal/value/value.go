// Package value turns users' Go values into JSON and refuses what JSON would lose.
//
// It decides what may be a step's result, a payload or an output: what comes back after JSON must be what went in, or the
// value is refused with the path of the part that does not fit. Refused are
//
//   - structs with unexported fields and no MarshalJSON or MarshalText, and those whose method is an embedded type's, which
//     leaves out the other fields;
//   - fields that lose their name in JSON to another field;
//   - NaN and the infinities, channels, functions, complex numbers, text that is not UTF-8, and values that contain themselves;
//   - in an interface, whole numbers beyond ±2^53, which come back as float64; and times whose offset from UTC has seconds.
//
// Nothing is escaped for HTML.
//
// Most values are judged by their type alone, once per type (shape.go); only a value whose type can hide something, or whose
// JSON shows a sign of trouble, is walked (walk.go).
package value

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
)

// depthMax bounds the nesting of a value: deeper ones are refused before they exhaust a stack somewhere else.
const depthMax = 1000

// RefusalError says which part of a value JSON can't hold.
type RefusalError struct {
	Path string // such as result.items[2].done
	Why  string
	deep bool // it is of the whole, since it is nested too deeply
}

func (r *RefusalError) Error() string { return r.Path + " " + r.Why }

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Encode is *v as JSON; root is the word that paths start with. It fails with a *RefusalError, or with what a MarshalJSON of
// the user's threw. struct{} is nil: JavaScript's undefined. It takes a pointer so that a MarshalJSON of a pointer is found.
func Encode[T any](root string, v *T) (json.RawMessage, error) {
	t := reflect.TypeFor[T]()
	if t == noneType {
		return nil, nil
	}
	return encode(root, v, shapeOf(t).clean)
}

// EncodeAny is v as JSON, as Encode does it, where v is any only since its type is another's to know: it comes back as what the reader
// says. Nil is null.
func EncodeAny(root string, v any) (json.RawMessage, error) {
	if v == nil {
		return json.RawMessage("null"), nil
	}
	return encode(root, loose{v}, shapeOf(reflect.TypeOf(v)).clean)
}

// loose is a value that no pointer leads to.
type loose struct{ v any }

// encode encodes what v, a pointer or loose, leads to. clean says that its type can hide nothing.
func encode(root string, v any, clean bool) (json.RawMessage, error) {
	if !clean {
		if err := check(root, v, false); err != nil {
			return nil, err
		}
	}
	b := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(b)
	b.Reset()
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	given := v
	if l, ok := v.(loose); ok {
		given = l.v
	}
	if err := encoder.Encode(given); err != nil {
		return nil, explain(root, v, err)
	}
	text := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if bytes.Contains(text, []byte(`\ufffd`)) || bytes.Contains(text, []byte("\uFFFD")) {
		if err := check(root, v, true); err != nil {
			return nil, err
		}
	}
	return bytes.Clone(text), nil
}

var noneType = reflect.TypeFor[struct{}]()

// explain finds the path of what the encoder refused; errors of a user's own methods pass as they are.
func explain(root string, v any, err error) error {
	if refusal := check(root, v, true); refusal != nil {
		return refusal
	}
	return fmt.Errorf("%s can't be encoded: %w", root, err)
}

// Decode reads text into v. Nil text leaves v as it is.
func Decode(text json.RawMessage, v any) error {
	if text == nil {
		return nil
	}
	return json.Unmarshal(text, v)
}
