package value

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// wholeMax is the largest whole number up to which float64, which a number in an interface comes back as, holds each.
const wholeMax = 1 << 53

// check walks v, and gives the first part that JSON can't hold: of what the encoder would let through in silence, or of all.
func (v subject) check(all bool) error {
	at := reflect.ValueOf(v.at).Elem()
	if v.loose {
		at = at.Elem()
	}
	w := walker{all: all}
	r := w.walk(at, 0, false)
	switch {
	case r == nil:
		return nil
	case r.deep && !all:
		return v.check(true) // which knows what contains itself
	case r.deep:
		r.Path = ""
	}
	return r.in(v.root)
}

// in is r where its path begins with part.
func (r *RefusalError) in(part string) *RefusalError {
	r.Path = part + r.Path
	return r
}

type visit struct {
	pointer uintptr
	length  int
	t       reflect.Type
}

type walker struct {
	all  bool
	open map[visit]bool // nil until the walk is of all
}

// walk gives the first part of v that is refused, by its path below v. held says that an interface holds it.
func (w *walker) walk(v reflect.Value, depth int, held bool) *RefusalError {
	if !v.IsValid() {
		return nil
	}
	if depth > stepsMax {
		return &RefusalError{Why: tooDeep, deep: true}
	}
	s := shapeOf(v.Type())
	if !w.all && (s.plain || s.clean && !held) {
		return nil
	}
	if v.Type() == timeType {
		return offset(v)
	}
	if writer := s.writer(v); writer.method != none || writer.lost != "" {
		return w.written(v, writer, depth, held)
	}
	switch v.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return &RefusalError{Why: "is a " + v.Kind().String() + ", which JSON can't hold"}
	case reflect.Float32, reflect.Float64:
		return number(v.Float())
	case reflect.Int, reflect.Int64:
		return whole(held && (v.Int() > wholeMax || v.Int() < -wholeMax), v)
	case reflect.Uint, reflect.Uint64, reflect.Uintptr:
		return whole(held && v.Uint() > wholeMax, v)
	case reflect.String:
		if v.Type() == numberType && held && beyond([]byte(v.String())) != "" {
			return whole(true, v)
		}
		return text(v.String())
	case reflect.Interface, reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return w.inside(v, depth, held)
	case reflect.Struct:
		return w.members(v, s, depth, held)
	default: // small whole numbers and truth values
		return nil
	}
}

// writer is what writes v: a method of a pointer is found only where v has an address, which the values of a map and of an interface
// have not.
func (s *shape) writer(v reflect.Value) writer {
	switch {
	case v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer:
		return writer{} // what it leads to is judged
	case v.CanAddr():
		return s.pointer
	}
	return s.value
}

// written judges what a method writes of v.
func (w *walker) written(v reflect.Value, by writer, depth int, held bool) *RefusalError {
	switch {
	case by.lost != "":
		return &RefusalError{Why: by.lost}
	case by.embedded >= 0:
		return w.walk(v.Field(by.embedded), depth+1, held)
	case v.CanAddr():
		v = v.Addr()
	}
	if !v.CanInterface() {
		return nil
	}
	switch m := v.Interface().(type) {
	case json.Marshaler:
		if w.all || held {
			return jsonOf(m, held)
		}
	case encoding.TextMarshaler:
		if w.all {
			return textOf(m)
		}
	}
	return nil
}

const (
	tooDeep = "is nested too deeply"
	notUTF8 = "is written as JSON that is not UTF-8: let its MarshalJSON write UTF-8"
)

// jsonOf judges what m writes of itself. What it fails with is the encoder's to find.
func jsonOf(m json.Marshaler, held bool) *RefusalError {
	written, err := m.MarshalJSON()
	if err != nil {
		return nil //nolint:nilerr // the encoder has it too
	}
	switch n := beyond(written); {
	case !utf8.Valid(written):
		return &RefusalError{Why: notUTF8}
	case depth(written) > depthMax:
		return &RefusalError{Why: tooDeep, deep: true}
	case held && n != "":
		return tooWide(n)
	}
	return nil
}

func textOf(m encoding.TextMarshaler) *RefusalError {
	written, err := m.MarshalText()
	if err != nil {
		return nil //nolint:nilerr // the encoder has it too
	}
	return text(string(written))
}

// inside walks into what v points to, unless the walk is in there already. One that is not of all does not look: in what contains itself
// it ends at depthMax.
func (w *walker) inside(v reflect.Value, depth int, held bool) *RefusalError {
	if !w.all {
		return w.parts(v, depth, held)
	}
	var at visit
	switch v.Kind() {
	case reflect.Pointer, reflect.Map:
		at = visit{v.Pointer(), 0, v.Type()}
	case reflect.Slice:
		at = visit{v.Pointer(), v.Len(), v.Type()}
	default: // an interface or an array is part of what holds it
	}
	if at.pointer == 0 {
		return w.parts(v, depth, held)
	}
	if w.open[at] {
		return &RefusalError{Why: "contains itself, which JSON can't hold"}
	}
	if w.open == nil {
		w.open = map[visit]bool{}
	}
	w.open[at] = true
	defer delete(w.open, at)
	return w.parts(v, depth, held)
}

func (w *walker) parts(v reflect.Value, depth int, held bool) *RefusalError {
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		return w.items(v, depth, held)
	case reflect.Map:
		return w.entries(v, depth, held)
	default: // an interface or a pointer
		return w.walk(v.Elem(), depth+1, held || v.Kind() == reflect.Interface)
	}
}

func (w *walker) items(v reflect.Value, depth int, held bool) *RefusalError {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return nil
	}
	for i := range v.Len() {
		if r := w.walk(v.Index(i), depth+1, held); r != nil {
			return r.in("[" + strconv.Itoa(i) + "]")
		}
	}
	return nil
}

func (w *walker) entries(v reflect.Value, depth int, held bool) *RefusalError {
	if r := distinct(v); r != nil {
		return r
	}
	for each := v.MapRange(); each.Next(); {
		key, item := each.Key(), each.Value()
		if key.Kind() == reflect.String && !utf8.ValidString(key.String()) {
			return &RefusalError{Why: "has the key " + strconv.Quote(key.String()) + ", which is not UTF-8"}
		}
		r := w.walk(key, depth+1, false)
		if r == nil {
			r = w.walk(item, depth+1, held)
		}
		if r == nil {
			continue
		}
		name := fmt.Sprint(key)
		if key.Kind() == reflect.String {
			name = strconv.Quote(key.String())
		}
		return r.in("[" + name + "]")
	}
	return nil
}

// distinct refuses a map of which two keys write the same text.
func distinct(v reflect.Value) *RefusalError {
	if !writesText(v.Type().Key()) || v.Len() < 2 {
		return nil
	}
	seen := map[string]bool{}
	for each := v.MapRange(); each.Next(); {
		key, ok := each.Key().Interface().(encoding.TextMarshaler)
		if !ok {
			return nil
		}
		written, err := key.MarshalText()
		if err != nil {
			return nil //nolint:nilerr // the encoder has it too
		}
		if seen[string(written)] {
			return &RefusalError{Why: fmt.Sprintf("has two keys that are %q in JSON, so that one would be lost: give each a text of its own", written)}
		}
		seen[string(written)] = true
	}
	return nil
}

// members walks a struct that writes nothing itself.
func (w *walker) members(v reflect.Value, s *shape, depth int, held bool) *RefusalError {
	if s.lost != "" {
		return &RefusalError{Why: s.lost}
	}
	for i := range s.fields {
		f := &s.fields[i]
		if !w.all && (f.plain || f.clean && !held) {
			continue
		}
		member, ok := f.of(v)
		switch {
		case !ok:
		case f.winner == "":
			if r := w.walk(member, depth+1, held && !f.quoted); r != nil {
				return r.in(f.path)
			}
		case !member.IsZero():
			return &RefusalError{Why: fmt.Sprintf("is a %s, whose field %s would be lost, since %s has its name in JSON, %q: "+
				"give it a json tag with another name, or leave it out with json:\"-\"", v.Type(), f.name, f.winner, f.key)}
		}
	}
	return nil
}

// of is the field's value in v; ok is false where an embedded pointer on the way is nil.
func (f *field) of(v reflect.Value) (member reflect.Value, ok bool) {
	for i, at := range f.index {
		if i > 0 && v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return v, false
			}
			v = v.Elem()
		}
		v = v.Field(at)
	}
	return v, true
}

// offset refuses times that RFC 3339 can't name: its offsets have whole minutes.
func offset(v reflect.Value) *RefusalError {
	if !v.CanInterface() {
		return nil
	}
	var t time.Time
	if v.CanAddr() {
		t = *v.Addr().Interface().(*time.Time)
	} else {
		t = v.Interface().(time.Time)
	}
	if _, seconds := t.Zone(); seconds%60 != 0 {
		return &RefusalError{Why: "is a time whose offset from UTC has seconds, " + t.Format("-07:00:00") +
			", which JSON cuts off, so that another instant comes back: save it in UTC, as t.UTC()"}
	}
	return nil
}

func number(f float64) *RefusalError {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return &RefusalError{Why: "is " + strconv.FormatFloat(f, 'g', -1, 64) + ", which JSON can't hold"}
	}
	return nil
}

func whole(refused bool, v reflect.Value) *RefusalError {
	if !refused {
		return nil
	}
	return tooWide(fmt.Sprint(v))
}

func tooWide(n string) *RefusalError {
	return &RefusalError{Why: "is the whole number " + n + " in an interface, from which a float64 comes back, which does not hold it: " +
		"give it a type of its own, such as a struct with a field of int64, or save it as text"}
}

// beyond is the first whole number of JSON text that is beyond wholeMax; empty: there is none.
func beyond(written []byte) string {
	for i := 0; i < len(written); i++ {
		switch c := written[i]; {
		case c == '"':
			for i++; i < len(written) && written[i] != '"'; i++ {
				if written[i] == '\\' {
					i++
				}
			}
		case c == '-' || '0' <= c && c <= '9':
			from := i
			for i < len(written) && strings.IndexByte("+-.0123456789Ee", written[i]) >= 0 {
				i++
			}
			n := string(written[from:i])
			f, err := strconv.ParseFloat(n, 64)
			if err == nil && math.Abs(f) >= wholeMax && !strings.ContainsAny(n, ".eE") && strings.TrimPrefix(n, "-") != strconv.Itoa(wholeMax) {
				return n
			}
			i--
		}
	}
	return ""
}

func text(s string) *RefusalError {
	if !utf8.ValidString(s) {
		return &RefusalError{Why: "is text that is not UTF-8: save bytes as []byte, which travel as base64"}
	}
	return nil
}
