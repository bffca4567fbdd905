// Package value turns users' Go values into JSON and refuses what JSON would lose.
//
// It decides what may be a step's result, a payload or an output: what comes back after JSON must be what went in, or the
// value is refused with the path of the part that does not fit. Refused are structs with unexported fields and no
// MarshalJSON or MarshalText, NaN and the infinities, channels, functions, complex numbers, text that is not UTF-8, and
// values that contain themselves. Nothing is escaped for HTML.
//
// Most values are checked by their type alone, once per type; only a value whose type can hide something, or whose JSON
// shows a sign of trouble, is walked.
package value

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"sync"
	"unicode/utf8"
)

// depthMax bounds the nesting of a value: deeper ones are refused before they exhaust a stack somewhere else.
const depthMax = 1000

// RefusalError says which part of a value JSON can't hold.
type RefusalError struct {
	Path string // such as result.items[2].done
	Why  string
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
	return encode(root, v, typeOf(t).clean)
}

// encode encodes what v, a pointer, points to. clean says that its type can hide nothing.
func encode(root string, v any, clean bool) (json.RawMessage, error) {
	if !clean {
		if err := check(root, v); err != nil {
			return nil, err
		}
	}
	b := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(b)
	b.Reset()
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, explain(root, v, err)
	}
	text := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if bytes.Contains(text, []byte(`\ufffd`)) || bytes.Contains(text, []byte("\uFFFD")) {
		if err := check(root, v); err != nil {
			return nil, err
		}
	}
	return bytes.Clone(text), nil
}

var noneType = reflect.TypeFor[struct{}]()

// explain finds the path of what the encoder refused; errors of a user's own methods pass as they are.
func explain(root string, v any, err error) error {
	if refusal := check(root, v); refusal != nil {
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

// typeInfo is what the type alone says.
type typeInfo struct {
	clean bool // no value of it can be refused before it was encoded
}

var (
	types         sync.Map // reflect.Type to typeInfo
	marshalerType = reflect.TypeFor[json.Marshaler]()
	textType      = reflect.TypeFor[encoding.TextMarshaler]()
)

func typeOf(t reflect.Type) typeInfo {
	if info, ok := types.Load(t); ok {
		return info.(typeInfo)
	}
	info := typeInfo{clean: clean(t, map[reflect.Type]bool{})}
	types.Store(t, info)
	return info
}

// ownJSON is true for types that say themselves what they are in JSON.
func ownJSON(t reflect.Type) bool {
	return t.Implements(marshalerType) || t.Implements(textType)
}

// encodesItself is true where the encoder lets v say what it is: a method of a pointer is found only where v has an address,
// which the values of a map and of an interface have not.
func encodesItself(v reflect.Value) bool {
	return ownJSON(v.Type()) || v.CanAddr() && ownJSON(reflect.PointerTo(v.Type()))
}

// clean is false for what must be walked: interfaces can hide anything, and unexported fields would be lost.
func clean(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] || ownJSON(t) {
		return true
	}
	if ownJSON(reflect.PointerTo(t)) {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Interface, reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return false
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return clean(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if lost(f) || !skipped(f) && !clean(f.Type, seen) {
				return false
			}
		}
	default: // numbers, text and truth values
	}
	return true
}

// skipped is true for fields that the user left out, and for blank ones.
func skipped(f reflect.StructField) bool { return f.Tag.Get("json") == "-" || f.Name == "_" }

// lost is true for fields that JSON would leave out without a word. An embedded struct's exported fields are kept.
func lost(f reflect.StructField) bool {
	if f.IsExported() || f.Name == "_" {
		return false
	}
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return !f.Anonymous || t.Kind() != reflect.Struct
}

// check walks what v, a pointer, points to, and gives the first part that JSON can't hold.
func check(root string, v any) error {
	w := walker{open: map[visit]bool{}}
	if r := w.walk(root, reflect.ValueOf(v).Elem(), 0); r != nil {
		return r
	}
	return nil
}

type visit struct {
	pointer uintptr
	length  int
	t       reflect.Type
}

type walker struct{ open map[visit]bool }

func (w *walker) walk(path string, v reflect.Value, depth int) *RefusalError {
	if !v.IsValid() {
		return nil
	}
	if depth > depthMax {
		return &RefusalError{path, "is nested too deeply"}
	}
	if v.Kind() != reflect.Interface && encodesItself(v) {
		return nil
	}
	switch v.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return &RefusalError{path, "is a " + v.Kind().String() + ", which JSON can't hold"}
	case reflect.Float32, reflect.Float64:
		return number(path, v.Float())
	case reflect.String:
		return text(path, v.String())
	case reflect.Interface, reflect.Pointer:
		return w.inside(path, v, func() *RefusalError { return w.walk(path, v.Elem(), depth+1) })
	case reflect.Slice, reflect.Array:
		return w.inside(path, v, func() *RefusalError { return w.items(path, v, depth) })
	case reflect.Map:
		return w.inside(path, v, func() *RefusalError { return w.entries(path, v, depth) })
	case reflect.Struct:
		return w.fields(path, v, depth)
	default: // whole numbers and truth values
		return nil
	}
}

// inside walks into what v points to, unless the walk is in there already.
func (w *walker) inside(path string, v reflect.Value, into func() *RefusalError) *RefusalError {
	var at visit
	switch v.Kind() {
	case reflect.Pointer, reflect.Map:
		at = visit{v.Pointer(), 0, v.Type()}
	case reflect.Slice:
		at = visit{v.Pointer(), v.Len(), v.Type()}
	default: // an interface or an array is part of what holds it
	}
	if at.pointer == 0 {
		return into()
	}
	if w.open[at] {
		return &RefusalError{path, "contains itself, which JSON can't hold"}
	}
	w.open[at] = true
	defer delete(w.open, at)
	return into()
}

func (w *walker) items(path string, v reflect.Value, depth int) *RefusalError {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return nil
	}
	for i := range v.Len() {
		if r := w.walk(path+"["+strconv.Itoa(i)+"]", v.Index(i), depth+1); r != nil {
			return r
		}
	}
	return nil
}

func (w *walker) entries(path string, v reflect.Value, depth int) *RefusalError {
	for key, item := range v.Seq2() {
		name := fmt.Sprint(key)
		if key.Kind() == reflect.String {
			name = strconv.Quote(key.String())
			if !utf8.ValidString(key.String()) {
				return &RefusalError{path, "has the key " + name + ", which is not UTF-8"}
			}
		}
		if r := w.walk(path+"["+name+"]", item, depth+1); r != nil {
			return r
		}
	}
	return nil
}

func (w *walker) fields(path string, v reflect.Value, depth int) *RefusalError {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if lost(f) {
			return &RefusalError{path, fmt.Sprintf("is a %s, whose field %s is unexported and would be lost: "+
				"export it, or give the type a MarshalJSON and an UnmarshalJSON", t, f.Name)}
		}
		if skipped(f) {
			continue
		}
		inner := path
		if !f.Anonymous {
			inner = path + "." + f.Name
		}
		if r := w.walk(inner, v.Field(i), depth+1); r != nil {
			return r
		}
	}
	return nil
}

func number(path string, f float64) *RefusalError {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return &RefusalError{path, "is " + strconv.FormatFloat(f, 'g', -1, 64) + ", which JSON can't hold"}
	}
	return nil
}

func text(path, s string) *RefusalError {
	if !utf8.ValidString(s) {
		return &RefusalError{path, "is text that is not UTF-8: save bytes as []byte, which travel as base64"}
	}
	return nil
}
