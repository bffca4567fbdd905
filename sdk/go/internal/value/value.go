// Package value turns users' Go values into JSON and refuses what JSON would lose.
//
// It decides what may be a step's result, a payload or an output: what comes back after JSON must be what went in, or the
// value is refused with the path of the part that does not fit. Refused are
//
//   - structs with unexported fields and no MarshalJSON or MarshalText, and those whose method is an embedded type's, which
//     leaves out the other fields;
//   - fields that lose their name in JSON to another field;
//   - NaN and the infinities, channels, functions, complex numbers, and text that is not UTF-8;
//   - keys of a map that are one in JSON, values that contain themselves, and those that are nested more than depthMax deep;
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
	"unicode/utf8"
)

const (
	// depthMax bounds the nesting of a value in JSON: deeper ones are refused before they exhaust a stack somewhere else.
	depthMax = 1000
	// stepsMax bounds how deep a walk goes: a level of JSON may take an interface, a pointer and what it leads to.
	stepsMax = 3 * depthMax
)

// RefusalError says which part of a value JSON can't hold.
type RefusalError struct {
	Path string // such as result.items[2].done
	Why  string
	deep bool // it is of the whole, since it is nested too deeply
}

func (r *RefusalError) Error() string { return r.Path + " " + r.Why }

// encoder writes one value after the other. Making one costs more than a small value does.
type encoder struct {
	bytes.Buffer
	json *json.Encoder
}

var encoders = sync.Pool{New: func() any {
	e := &encoder{}
	e.json = json.NewEncoder(e)
	e.json.SetEscapeHTML(false)
	return e
}}

// Encode is *v as JSON; root is the word that paths start with. It fails with a *RefusalError, or with what a MarshalJSON of
// the user's threw, be it by a panic. struct{} is nil: JavaScript's undefined. It takes a pointer so that a MarshalJSON of a pointer is found.
func Encode[T any](root string, v *T) (json.RawMessage, error) {
	t := reflect.TypeFor[T]()
	if t == noneType {
		return nil, nil
	}
	return encode(subject{root, v, false}, shapeOf(t))
}

// EncodeAny is v as JSON, as Encode does it, where v is any only since its type is another's to know: it comes back as what the reader
// says. Nil is null.
func EncodeAny(root string, v any) (json.RawMessage, error) {
	if v == nil {
		return json.RawMessage("null"), nil
	}
	return encode(subject{root, &v, true}, shapeOf(reflect.TypeOf(v)))
}

// subject is a value to encode.
type subject struct {
	root  string
	at    any  // points to it
	loose bool // an interface is there, which does not count
}

// encode encodes what has the shape s.
func encode(v subject, s *shape) (written json.RawMessage, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("%s can't be encoded: a method with which it writes itself panicked: %v", v.root, panicked)
		}
	}()
	if !s.clean {
		if err := v.check(false); err != nil {
			return nil, err
		}
	}
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	e.Reset()
	if err := e.json.Encode(v.at); err != nil {
		return nil, v.explain(err)
	}
	text := bytes.TrimSuffix(e.Bytes(), []byte("\n"))
	if s.wild {
		if err := v.tamed(text); err != nil {
			return nil, err
		}
	}
	if bytes.Contains(text, []byte(`\ufffd`)) || bytes.Contains(text, []byte("\uFFFD")) {
		if err := v.check(true); err != nil {
			return nil, err
		}
	}
	return bytes.Clone(text), nil
}

// tamed refuses JSON that is nested too deeply, or not UTF-8: the server takes no message that has such a value.
func (v subject) tamed(text []byte) error {
	deep, broken := depth(text) > depthMax, !utf8.Valid(text)
	if !deep && !broken {
		return nil
	}
	if err := v.check(true); err != nil {
		return err
	}
	if broken {
		return &RefusalError{Path: v.root, Why: notUTF8}
	}
	return &RefusalError{Path: v.root, Why: tooDeep}
}

// depth is how deep JSON is nested: 0 for a text or a number.
func depth(written []byte) int {
	at, deepest, text := 0, 0, false
	for i := 0; i < len(written); i++ {
		switch c := written[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			at++
			deepest = max(deepest, at)
		case c == '}' || c == ']':
			at--
		}
	}
	return deepest
}

var noneType = reflect.TypeFor[struct{}]()

// explain finds the path of what the encoder refused; errors of a user's own methods pass as they are.
func (v subject) explain(err error) error {
	if refusal := v.check(true); refusal != nil {
		return refusal
	}
	return fmt.Errorf("%s can't be encoded: %w", v.root, err)
}

// Decode reads text into v. Nil text leaves v as it is.
func Decode(text json.RawMessage, v any) error {
	if text == nil {
		return nil
	}
	return json.Unmarshal(text, v)
}
