package value

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

type (
	a    struct{ ID string }
	b    struct{ ID string }
	both struct {
		a
		b
	}
	tagOfName struct {
		X  int `json:"ID"`
		ID int
	}
	twice struct {
		Left
		Right
	}
	Left     struct{ base }
	Right    struct{ base }
	shadowed struct {
		Left
		ID string
	}
	tagWins struct {
		Left
		Named
	}
	Named struct {
		N string `json:"ID"`
	}
	itself struct {
		*itself
		N int
	}
	deeper struct{ both }

	meeting struct {
		time.Time
		Note string
	}
	meetings struct{ meeting }
	onlyTime struct{ time.Time }
	unsaid   struct {
		time.Time
		note string
	}
	withoutNote struct {
		time.Time
		Note string `json:"-"`
	}
	tagged struct {
		time.Time `json:"at"`
		Note      string
	}
	pointed struct {
		*guest
		Note string
	}
	guest  struct{ n int }
	byFace struct {
		json.Marshaler
		Note string
	}
	generic[T any] struct {
		genericGuest[T]
		Note string
	}
	genericGuest[T any] struct{ v T }
	read                struct{ N int }
	readOnly            struct {
		read
		Note string
	}
	texts struct {
		textual
		Note string
	}
	textual struct{ s string }

	ownMeeting struct {
		time.Time
		Note string
	}
	ownPointer struct {
		guest
		Note string
	}
	ownGeneric[T any] struct {
		genericGuest[T] //nolint:unused // whose method this type declares anew
		Note            T
	}
	twoWriters struct {
		textual //nolint:unused // whose method this type declares anew
		Other
		Note string
	}
	Other struct{ textual }
)

func (v *guest) MarshalJSON() ([]byte, error)          { return json.Marshal(v.n) }
func (v *guest) UnmarshalJSON(text []byte) error       { return json.Unmarshal(text, &v.n) }
func (v genericGuest[T]) MarshalJSON() ([]byte, error) { return json.Marshal(v.v) }
func (r *read) UnmarshalJSON([]byte) error             { r.N = 1; return nil }
func (t textual) MarshalText() ([]byte, error)         { return []byte(t.s), nil }
func (v ownMeeting) MarshalJSON() ([]byte, error)      { return json.Marshal(v.Note) }
func (v *ownMeeting) UnmarshalJSON(text []byte) error  { return json.Unmarshal(text, &v.Note) }
func (v *ownPointer) MarshalJSON() ([]byte, error)     { return json.Marshal(v.Note) }
func (v *ownPointer) UnmarshalJSON(text []byte) error  { return json.Unmarshal(text, &v.Note) }
func (v ownGeneric[T]) MarshalJSON() ([]byte, error)   { return json.Marshal(v.Note) }
func (t twoWriters) MarshalText() ([]byte, error)      { return []byte(t.Note), nil }

func refusal[T any](v T) string {
	text, err := Encode("result", &v)
	var refused *RefusalError
	if !errors.As(err, &refused) {
		return fmt.Sprintf("%s, %v", text, err)
	}
	return err.Error()
}

func TestFieldsThatLoseTheirNameAreRefused(t *testing.T) {
	for want, got := range map[string]string{
		`result is a value.both, whose fields a.ID and b.ID have one name in JSON, "ID", so that both would be lost`: refusal(both{a{"1"}, b{"2"}}),
		"whose fields X and Y have one name": refusal(reflect.Zero(reflect.StructOf([]reflect.StructField{
			{Name: "X", Type: reflect.TypeFor[int](), Tag: `json:"v"`}, {Name: "Y", Type: reflect.TypeFor[int](), Tag: `json:"v"`},
		})).Interface()),
		`result.V is a value.both`:                                      refusal(holder{both{}}),
		`result["k"] is a value.both`:                                   refusal(map[string]both{"k": {}}),
		`whose fields both.a.ID and both.b.ID`:                          refusal([]deeper{{}}),
		"whose fields Left.base.ID and Right.base.ID":                   refusal(twice{}),
		"whose field Left.base.ID would be lost, since ID has its name": refusal(shadowed{Left{base{"1"}}, "2"}),
		"whose field Left.base.ID would be lost, since Named.N has":     refusal(tagWins{Left{base{"1"}}, Named{}}),
		"whose field ID would be lost, since X has its name in JSON":    refusal(tagOfName{1, 2}),
		"whose field itself would be lost, since value.itself has":      refusal(itself{itself: &itself{}}),
		`{"ID":"2"}, <nil>`:                                             refusal(shadowed{ID: "2"}),
		`{"ID":"3"}, <nil>`:                                             refusal(tagWins{Named: Named{"3"}}),
		`{"ID":1}, <nil>`:                                               refusal(tagOfName{X: 1}),
		`{"N":1}, <nil>`:                                                refusal(itself{N: 1}),
		"[null], <nil>":                                                 refusal([]*both{nil}),
		`{"id":1,"ID":2,"Id":3}, <nil>`: refusal(struct {
			A  int `json:"id"`
			ID int
			Id int //nolint:revive,staticcheck // names that differ in case alone
		}{1, 2, 3}),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// The method of an embedded type is the outer type's too, and knows nothing of the outer type's fields.
func TestMethodsOfEmbeddedTypesAreRefusedWhereFieldsAreLost(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, got := range map[string]string{
		"result is a value.meeting, whose MarshalJSON is that of its embedded time.Time, so that the field Note would be lost": refusal(meeting{at, "n"}),
		"result.V is a value.meeting,":                                          refusal(holder{meeting{at, "n"}}),
		"result[0] is a value.meeting,":                                         refusal([]*meeting{{at, "n"}}),
		"result is a value.meeting, whose":                                      refusal(meetings{meeting{at, "n"}}),
		"result is a value.unsaid":                                              refusal(unsaid{at, "n"}),
		"result is a value.tagged":                                              refusal(tagged{at, "n"}),
		"value.pointed, whose MarshalJSON is that of its embedded *value.guest": refusal(pointed{&guest{1}, "n"}),
		"that of its embedded json.Marshaler":                                   refusal(byFace{json.RawMessage("1"), "n"}),
		"that of its embedded value.genericGuest[int]":                          refusal(generic[int]{genericGuest[int]{1}, "n"}),
		"value.readOnly, whose UnmarshalJSON is that of its":                    refusal(readOnly{read{2}, "n"}),
		"value.texts, whose MarshalText is that of its embedded":                refusal(texts{textual{"s"}, "n"}),
		"is a struct { time.Time; Note string }, whose": refusal(struct {
			time.Time
			Note string
		}{at, "n"}),
		`"2026-01-02T03:04:05Z", <nil>`: refusal(onlyTime{at}),
		`{"V":"2026-01-02T03:04:05Z"}`:  refusal(holder{withoutNote{Time: at}}),
		`"own", <nil>`:                  refusal(ownMeeting{at, "own"}),
		`["pointer"], <nil>`:            refusal([]ownPointer{{guest{1}, "pointer"}}),
		`{"k":"generic"}, <nil>`:        refusal(map[string]ownGeneric[string]{"k": {Note: "generic"}}),
		`"two", <nil>`:                  refusal(twoWriters{Note: "two"}),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestWholeNumbersInInterfaces(t *testing.T) {
	const wide = 1<<53 + 1
	for want, got := range map[string]string{
		`result["id"] is the whole number 9007199254740993 in an interface`: refusal(map[string]any{"id": int64(wide)}),
		"result is the whole number -9007199254740993":                      refusal[any](-wide),
		"result[0] is the whole number 18446744073709551615":                refusal([]any{uint64(math.MaxUint64)}),
		"result.V.N[1] is the whole number":                                 refusal(holder{struct{ N []int64 }{[]int64{1, wide}}}),
		"result.V is the whole number 9007199254740995":                     refusal(holder{json.Number("9007199254740995")}),
		"result.V is the whole number 9007199254740997":                     refusal(holder{json.RawMessage(`{"9007199254740991":[1.5,"9007199254740999",9007199254740997]}`)}),
		"result.V is the whole number 36893488147419103232":                 refusal(holder{new(big.Int).Lsh(big.NewInt(1), 65)}),
		`{"V":9007199254740992}, <nil>`:                                     refusal(holder{int64(wholeMax)}),
		`{"V":-9007199254740992}, <nil>`:                                    refusal(holder{json.Number("-9007199254740992")}),
		`{"V":1e+300}, <nil>`:                                               refusal(holder{1e300}),
		`{"V":{"N":"9007199254740993"}}, <nil>`: refusal(holder{struct {
			N int64 `json:",string"`
		}{wide}}),
		"result.V[1] is the whole number 9007199254740993": refusal(holder{map[int64]int64{1: wide}}),
		"result.V.Ns[0] is the whole number": refusal(holder{struct {
			Ns []int64 `json:",string"` //nolint:staticcheck // it has no effect there
		}{[]int64{wide}}}),
		"result.V.M is the whole number": refusal(holder{struct {
			N int64 `json:",string"`
			M int64
		}{wide, wide}}),
		`{"V":{"9007199254740993":1}}, <nil>`: refusal(holder{map[int64]int{wide: 1}}),
		`[9007199254740993], <nil>`:           refusal([]int64{wide}),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for want, v := range map[string]any{
		"9007199254740993": int64(wide), `{"X":9007199254740993,"Y":0}`: point{X: wide}, "null": nil, "[9007199254740993]": json.RawMessage("[9007199254740993]"),
		`payload["id"] is the whole number`: map[string]any{"id": uint64(wide)},
	} {
		got, err := EncodeAny("payload", v)
		if err != nil {
			got = []byte(err.Error())
		}
		if !strings.HasPrefix(string(got), want) {
			t.Errorf("EncodeAny(%v) = %s, want %s", v, got, want)
		}
	}
}

func TestTimesWhoseOffsetHasSecondsAreRefused(t *testing.T) {
	mean := time.FixedZone("LMT", 19*60+32)
	at := time.Date(1900, 1, 1, 0, 0, 0, 0, mean)
	for want, got := range map[string]string{
		"result is a time whose offset from UTC has seconds, +00:19:32": refusal(at),
		"result.At is a time":    refusal(struct{ At *time.Time }{&at}),
		"result.V is a time":     refusal(holder{at}),
		"result is a time":       refusal(onlyTime{at}),
		`result["k"] is a time`:  refusal(map[string]time.Time{"k": at}),
		"] is a time":            refusal(map[time.Time]int{at: 1}),
		`"1899-12-31T23:40:28Z"`: refusal(at.UTC()),
		`:00+01:00", <nil>`:      refusal(at.In(time.FixedZone("", 3600)).Add(28 * time.Minute).Truncate(time.Minute)),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

type (
	chain   struct{ Next *chain }
	account struct{ bank, number string }
	letters struct{ json.RawMessage }
)

func (a account) MarshalText() ([]byte, error) { return []byte(a.number), nil }

// A message with such a text is refused as a whole, also when it is sent again.
func TestWhatWritesItselfIsUTF8(t *testing.T) {
	bad := json.RawMessage("[\"a\xff\"]")
	for want, got := range map[string]string{
		"result is written as JSON that is not UTF-8":      refusal(bad),
		"result.R is written":                              refusal(struct{ R json.RawMessage }{bad}),
		`result["a"][0] is written`:                        refusal(map[string]any{"a": []any{bad}}),
		"result is written as JSON that is not UTF-8: let": refusal(letters{bad}),
		"result is text that is not UTF-8":                 refusal(account{number: "\xff"}),
		`["é"], <nil>`:                                     refusal(json.RawMessage(`["é"]`)),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestDeepValuesAreRefused(t *testing.T) {
	chained := func(n int) (c *chain) {
		for range n {
			c = &chain{c}
		}
		return c
	}
	raw := func(n int) json.RawMessage { return json.RawMessage(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	list := func(n int) (v any) {
		for range n {
			v = []any{v}
		}
		return v
	}
	for name, at := range map[string]func(n int) string{
		"its own type": func(n int) string { return refusal(chained(n)) },
		"raw JSON":     func(n int) string { return refusal(raw(n)) },
		"interfaces":   func(n int) string { return refusal(list(n)) },
		"text":         func(n int) string { return refusal(struct{ C any }{map[string]any{"\uFFFD": chained(n - 2)}}) },
	} {
		if got := at(depthMax); !strings.HasSuffix(got, "<nil>") {
			t.Errorf("%s: %.200s", name, got)
		}
		for _, n := range []int{depthMax + 1, 20_000} {
			if got := at(n); got != "result is nested too deeply" {
				t.Errorf("%s, %d deep: %.200s", name, n, got)
			}
		}
	}
}

func TestKeysThatAreOneInJSONAreRefused(t *testing.T) {
	for want, got := range map[string]string{
		`result has two keys that are "7" in JSON`: refusal(map[account]int{{"a", "7"}: 1, {"b", "7"}: 2}),
		`{"7":1,"8":2}, <nil>`:                     refusal(map[account]int{{"a", "7"}: 1, {"b", "8"}: 2}),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// Random structs, all of whose fields are set, are refused exactly where encoding/json loses one.
func TestNamesAreThoseOfTheEncoder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 3000 {
		v := reflect.New(structOf(random, 0))
		fill(v.Elem(), random)
		text, err := EncodeAny("result", v.Interface())
		if err != nil {
			refused++
			text, _ = json.Marshal(v.Interface())
		}
		back := reflect.New(v.Type().Elem())
		if err := json.Unmarshal(text, back.Interface()); err != nil {
			t.Fatalf("%v: %v", v.Type(), err)
		}
		if same := reflect.DeepEqual(v.Interface(), back.Interface()); same != (err == nil) {
			t.Fatalf("%v: error %v, and %s came back as %+v", v.Type(), err, text, back.Elem())
		}
	}
	if refused < 300 || refused > 2700 {
		t.Errorf("%d of the types were refused: the test shows little", refused)
	}
}

func structOf(random *rand.Rand, depth int) reflect.Type {
	fields := make([]reflect.StructField, 1+random.IntN(3))
	for i := range fields {
		f := &fields[i]
		*f = reflect.StructField{Name: string(rune('A' + i)), Type: reflect.TypeFor[int]()}
		if depth < 3 && random.IntN(3) == 0 {
			f.Type, f.Anonymous = structOf(random, depth+1), true
			if random.IntN(3) == 0 {
				f.Type = reflect.PointerTo(f.Type)
			}
		}
		if tag := []string{"", "", "", "A", "B", "x", ",omitempty", "x,string", "-,"}[random.IntN(9)]; tag != "" && (!f.Anonymous || tag != "x,string") {
			f.Tag = reflect.StructTag(fmt.Sprintf("json:%q", tag))
		}
	}
	return reflect.StructOf(fields)
}

func fill(v reflect.Value, random *rand.Rand) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), random)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), random)
		}
	default:
		v.SetInt(1 + random.Int64N(1000))
	}
}
