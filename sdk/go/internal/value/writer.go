package value

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
)

// method is a method by which a type says itself what it is in JSON.
type method int

const (
	none method = iota
	marshalJSON
	marshalText
	marshalJSONTo // of encoding/json/v2, which encoding/json heeds too where it is built on that
	unmarshalJSON
	unmarshalJSONFrom
)

func (m method) String() string {
	return [...]string{"none", "MarshalJSON", "MarshalText", "MarshalJSONTo", "UnmarshalJSON", "UnmarshalJSONFrom"}[m]
}

// writer is what writes the values of a type.
type writer struct {
	method   method
	embedded int    // the embedded field whose method it is; -1: the type has its own
	lost     string // why all values are refused; empty: they are not
}

// writersOf are what writes a value of t that has an address, and one that has none.
func writersOf(t reflect.Type) (pointer, value writer) {
	return writerOf(t, reflect.PointerTo(t)), writerOf(t, t)
}

// writerOf is what writes t where methods are looked up in set: t, or the pointer to it.
func writerOf(t, set reflect.Type) writer {
	w := writer{embedded: -1}
	switch {
	case promoted(t, marshalJSONTo) >= 0:
		w.method = marshalJSONTo
	case set.Implements(marshalerType):
		w.method = marshalJSON
	case set.Implements(textType):
		w.method = marshalText
	}
	if t.Kind() != reflect.Struct {
		return w
	}
	w.embedded = promoted(t, w.method)
	w.lost = leftOut(t, w.method, w.embedded)
	for _, reader := range []method{unmarshalJSONFrom, unmarshalJSON} {
		if w.lost == "" {
			w.lost = leftOut(t, reader, promoted(t, reader))
		}
	}
	return w
}

// leftOut says what the method of an embedded type's leaves out of t; empty: nothing.
func leftOut(t reflect.Type, m method, embedded int) string {
	if embedded < 0 {
		return ""
	}
	for i := range t.NumField() {
		if f := t.Field(i); i != embedded && !skipped(f) {
			return fmt.Sprintf("is a %s, whose %s is that of its embedded %s, so that the field %s would be lost: "+
				"give the embedded field a name, or the type a MarshalJSON and an UnmarshalJSON of its own", t, m, t.Field(embedded).Type, f.Name)
		}
	}
	return ""
}

// promoted is the index of the embedded field whose method t has; -1: it has none, or declares it.
//
// reflect does not say who declared a method. What embedded fields have leaves two cases: where none has the method, or the shallowest
// are two, t has it from nobody. Where one has it, t may still declare its own over it, and that shows in the code alone: the compiler
// writes a promoted method itself, and gives it no file. It does so for values, pointers, interfaces and generic types alike, inlined or
// not, while what a type declares has the file where it stands. An own method that only looks promoted there would be refused, which
// can be seen; a compiler that writes files there would leave the types as they were before.
func promoted(t reflect.Type, m method) int { return promotedIn(t, m, nil) }

// promotedIn is promoted for a type that the types of in embed.
func promotedIn(t reflect.Type, m method, in []reflect.Type) int {
	if t.Kind() != reflect.Struct || !has(t, m) {
		return -1
	}
	in = append(slices.Clip(in), t)
	from, least, alone := -1, 0, false
	for i := range t.NumField() {
		f := t.Field(i)
		if inner := elem(f.Type); f.Anonymous && has(inner, m) && !slices.Contains(in, inner) {
			depth := depthOf(inner, m, in)
			alone = from < 0 || depth < least || alone && depth > least
			if from < 0 || depth < least {
				from, least = i, depth
			}
		}
	}
	if !alone || t.Name() != "" && declares(t, m) {
		return -1
	}
	return from
}

// depthOf is how many embedded types m of t comes through.
func depthOf(t reflect.Type, m method, in []reflect.Type) int {
	if from := promotedIn(t, m, in); from >= 0 {
		return 1 + depthOf(elem(t.Field(from).Type), m, append(slices.Clip(in), t))
	}
	return 0
}

// has is true where a value of t, or a pointer to one, has m.
func has(t reflect.Type, m method) bool {
	_, ok := lookUp(t, m)
	return ok
}

// lookUp is m in the methods of t or of a pointer to it. The names are constants, by which the linker knows that programs call no other
// methods so, and leaves out those that nobody calls.
func lookUp(t reflect.Type, m method) (found reflect.Method, ok bool) {
	for _, set := range []reflect.Type{t, reflect.PointerTo(t)} {
		switch m {
		case none:
			return found, false
		case marshalJSON:
			found, ok = set.MethodByName("MarshalJSON")
		case marshalText:
			found, ok = set.MethodByName("MarshalText")
		case marshalJSONTo:
			found, ok = set.MethodByName("MarshalJSONTo")
		case unmarshalJSON:
			found, ok = set.MethodByName("UnmarshalJSON")
		case unmarshalJSONFrom:
			found, ok = set.MethodByName("UnmarshalJSONFrom")
		}
		if ok {
			return found, true
		}
	}
	return found, false
}

// declares is true where the code of m has a file.
func declares(t reflect.Type, m method) bool {
	found, _ := lookUp(t, m)
	if !found.Func.IsValid() {
		return false // an interface's
	}
	code := runtime.FuncForPC(found.Func.Pointer())
	if code == nil {
		return true
	}
	file, _ := code.FileLine(found.Func.Pointer())
	return file != "<autogenerated>"
}
