package store

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"
)

// ops are all that a change can have.
var ops = []Op{
	InsertRun{},
	UpdateRun{},
	SaveSteps{},
	InsertEvent{},
	TakeKey{},
	PutApp{},
	DropKeys{},
	CloseWait{},
	UseEvent{},
	InsertCallback{},
	EndCallback{},
	ExpireCallback{},
	PassKey{},
	PutSchedule{},
	DropSchedule{},
	PutLater{},
	DropLater{},
	AddLogs{},
	DropEvents{},
	InsertDelivery{},
	DropDeliveries{},
	PutNode{},
	DropNode{},
	TakeCursor{},
	Advance{},
	LookedBack{},
	DropRuns{},
}

// TestEveryValueCounts: whatever op holds a value, a batch that is bounded in bytes knows of it.
func TestEveryValueCounts(t *testing.T) {
	if declared := opsDeclared(t); len(ops) != declared {
		t.Errorf("there are %d ops, and %d are looked at", declared, len(ops))
	}
	for _, op := range ops {
		filled := reflect.New(reflect.TypeOf(op)).Elem()
		want := fill(filled)
		if got := bytesOf(filled.Interface().(Op)); got != want {
			t.Errorf("%T: %d bytes, want %d", op, got, want)
		}
	}
}

// fill gives every value under v a thousand bytes, and lists one member, and says how many bytes those are.
func fill(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(make([]byte, 1000))
			return 1000
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		return fill(v.Index(0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return fill(v.Elem())
	case reflect.Interface:
		v.Set(reflect.ValueOf(EndCallback{Payload: make([]byte, 1000)}))
		return 1000
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				n += fill(v.Field(i))
			}
		}
	default: // it is no value, nor has any
	}
	return n
}

// opsDeclared counts the ops of the package.
func opsDeclared(t *testing.T) (n int) {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		n += len(regexp.MustCompile(`(?m)^func \(\w+\) op\(\)`).FindAll(text, -1))
	}
	return n
}
