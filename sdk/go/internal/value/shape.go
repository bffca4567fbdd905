package value

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// shape is what a type alone says of its values.
type shape struct {
	clean bool // no value of it needs a look before it is encoded
	plain bool // nor does one that an interface holds, which comes back as any
	wild  bool // its JSON needs a look: it may be of any depth, or not be UTF-8

	pointer writer // what writes a value that has an address
	value   writer // what writes one that has none, as in a map or an interface

	lost   string // of a struct that writes nothing itself: why each value of it is refused; empty: it is not
	fields []field
}

// field is a field of a struct as JSON has it, be it an embedded struct's.
type field struct {
	index  []int
	name   string // with those of the embedded structs that it is in
	path   string
	key    string // its name in JSON
	tagged bool   // key is of a tag
	quoted bool   // a tag has it written as text
	t      reflect.Type
	// winner is the field that JSON writes in its place, unless it is zero; empty: there is none.
	winner string

	clean, plain bool // as those of its type's shape
}

var (
	shapes        sync.Map // reflect.Type to *shape
	marshalerType = reflect.TypeFor[json.Marshaler]()
	textType      = reflect.TypeFor[encoding.TextMarshaler]()
	timeType      = reflect.TypeFor[time.Time]()
	numberType    = reflect.TypeFor[json.Number]()
)

// shapeOf works out a type's shape the first time it is asked for.
func shapeOf(t reflect.Type) *shape {
	if known, ok := shapes.Load(t); ok {
		return known.(*shape)
	}
	s := &shape{clean: tidy(t, false, map[part]bool{}), plain: tidy(t, true, map[part]bool{})}
	s.wild = wild(t, map[reflect.Type]bool{})
	s.pointer, s.value = writersOf(t)
	if t.Kind() == reflect.Struct {
		s.fields, s.lost = fieldsOf(t)
		for i := range s.fields {
			f := &s.fields[i]
			f.clean = f.winner == "" && tidy(f.t, false, map[part]bool{})
			f.plain = f.clean && (f.quoted || tidy(f.t, true, map[part]bool{}))
		}
	}
	known, _ := shapes.LoadOrStore(t, s)
	return known.(*shape)
}

// part is a type in another, within an interface or not.
type part struct {
	t    reflect.Type
	held bool
}

// tidy is false for types of which a value must be walked. held says that an interface holds it.
func tidy(t reflect.Type, held bool, seen map[part]bool) bool {
	if seen[part{t, held}] {
		return true
	}
	seen[part{t, held}] = true
	switch t.Kind() {
	case reflect.Interface, reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return false
	case reflect.Pointer:
		return tidy(t.Elem(), held, seen)
	default: // what may write itself
	}
	if t == timeType {
		return false
	}
	if pointer, value := writersOf(t); pointer != value || pointer.lost != "" {
		return false
	} else if pointer.method != none {
		return tidyWriter(t, pointer, held, seen)
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint, reflect.Uint64, reflect.Uintptr:
		return !held
	case reflect.String:
		return !held || t != numberType
	case reflect.Slice, reflect.Array:
		return tidy(t.Elem(), held, seen)
	case reflect.Map:
		return !writesText(t.Key()) && tidy(t.Elem(), held, seen)
	case reflect.Struct:
		fields, lost := fieldsOf(t)
		return lost == "" && !slices.ContainsFunc(fields, func(f field) bool {
			return f.winner != "" || !tidy(f.t, held && !f.quoted, seen)
		})
	default: // other numbers and truth values
		return true
	}
}

func tidyWriter(t reflect.Type, w writer, held bool, seen map[part]bool) bool {
	if w.embedded >= 0 {
		return tidy(t.Field(w.embedded).Type, held, seen)
	}
	return !held || w.method == marshalText
}

// writesText is true for keys of maps that say themselves what they are: texts do not.
func writesText(key reflect.Type) bool {
	return key.Kind() != reflect.String && key.Implements(textType)
}

// wild is true for interfaces, for types that contain themselves, and for those that write their JSON themselves. in has true for the
// types that it is in, and false for those that were looked at.
func wild(t reflect.Type, in map[reflect.Type]bool) bool {
	if open, known := in[t]; known {
		return open
	}
	if t == timeType {
		return false
	}
	in[t] = true
	defer func() { in[t] = false }()
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Pointer:
		return wild(t.Elem(), in)
	default: // what may write itself
	}
	if pointer, value := writersOf(t); pointer != value || pointer.method != none {
		return pointer.method != marshalText || value.method != marshalText
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		return wild(t.Elem(), in)
	case reflect.Struct:
		fields, _ := fieldsOf(t)
		return slices.ContainsFunc(fields, func(f field) bool { return wild(f.t, in) })
	default:
		return false
	}
}

// fieldsOf are the fields that JSON writes of a struct, and those that it leaves out for another's sake. lost says why the type can't be
// saved at all.
func fieldsOf(t reflect.Type) (fields []field, lost string) {
	fields, hidden := flatten(t, nil, "", []reflect.Type{t})
	if hidden != "" {
		return nil, fmt.Sprintf("is a %s, whose field %s is unexported and would be lost: "+
			"export it, or give the type a MarshalJSON and an UnmarshalJSON", t, hidden)
	}
	byKey := map[string][]*field{}
	for i := range fields {
		if f := &fields[i]; f.winner == "" {
			byKey[f.key] = append(byKey[f.key], f)
		}
	}
	for i := range fields {
		same := byKey[fields[i].key]
		if len(same) < 2 {
			continue
		}
		// As encoding/json has it: the shallowest wins, at one depth the one with a tag, and of two that are equal in both neither.
		slices.SortStableFunc(same, func(a, b *field) int {
			return cmp.Or(cmp.Compare(len(a.index), len(b.index)), strings.Compare(tag(a), tag(b)))
		})
		first, second := same[0], same[1]
		if len(first.index) == len(second.index) && first.tagged == second.tagged {
			return fields, fmt.Sprintf("is a %s, whose fields %s and %s have one name in JSON, %q, so that both would be lost: "+
				"give one of them a json tag with another name", t, first.name, second.name, first.key)
		}
		for _, loser := range same[1:] {
			loser.winner = first.name
		}
		delete(byKey, first.key)
	}
	return fields, ""
}

func tag(f *field) string {
	if f.tagged {
		return "a tag"
	}
	return "no tag"
}

// flatten gives the fields of t, those of embedded structs in their place, and the first that is unexported and not left out by its tag.
// in are the types that it is in.
func flatten(t reflect.Type, index []int, name string, in []reflect.Type) (fields []field, hidden string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if skipped(f) {
			continue
		}
		if unwritten(f) {
			return nil, name + f.Name
		}
		made := field{index: append(slices.Clip(index), i), name: name + f.Name, path: "." + f.Name, t: f.Type}
		made.key, made.tagged, made.quoted = tagOf(f)
		embedded := elem(f.Type)
		switch {
		case !f.Anonymous || made.tagged || embedded.Kind() != reflect.Struct:
			fields = append(fields, made)
		case slices.Contains(in, embedded):
			// Its names are all taken by the one that it is in.
			made.winner = strings.TrimSuffix(name, ".")
			if made.winner == "" {
				made.winner = embedded.String()
			}
			fields = append(fields, made)
		default:
			inner, hidden := flatten(embedded, made.index, made.name+".", append(slices.Clip(in), embedded))
			if hidden != "" {
				return nil, hidden
			}
			fields = append(fields, inner...)
		}
	}
	return fields, ""
}

// skipped is true for fields that the user left out, and for blank ones.
func skipped(f reflect.StructField) bool { return f.Tag.Get("json") == "-" || f.Name == "_" }

// unwritten is true for fields that JSON would leave out without a word. An embedded struct's exported fields are kept.
func unwritten(f reflect.StructField) bool {
	return !f.IsExported() && (!f.Anonymous || elem(f.Type).Kind() != reflect.Struct)
}

func elem(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// tagOf is what the json tag of f says. A name that encoding/json does not take is none.
func tagOf(f reflect.StructField) (key string, tagged, quoted bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	quoted = scalar(elem(f.Type).Kind()) && slices.Contains(strings.Split(options, ","), "string")
	for _, c := range name {
		if !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) {
			return f.Name, false, quoted
		}
	}
	if name == "" {
		return f.Name, false, quoted
	}
	return name, true, quoted
}

func scalar(k reflect.Kind) bool {
	return k == reflect.String || k >= reflect.Bool && k <= reflect.Float64
}
