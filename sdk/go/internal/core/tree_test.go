package core

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// waitsOf are the trees that the code's call ends with.
func waitsOf(t *testing.T, run function, entries ...wire.Entry) string {
	t.Helper()
	now := start
	m := New(&wire.Call{Steps: wire.Steps{Entries: entries}}, Config{Retries: 4}, now)
	r := &runner{m: m, now: &now, retries: 4, function: run}
	m.Begin(now)
	for {
		outs := append([]Output{}, m.Take()...)
		if len(outs) == 0 {
			t.Fatal("the call does not end")
		}
		for _, o := range outs {
			if r.act(o) {
				continue
			}
			if o.Do != DoAnswer || o.Answer.Type != wire.AnswerSuspended {
				t.Fatalf("it does %d: %+v", o.Do, o.Answer)
			}
			var answer struct{ Waits json.RawMessage }
			if err := json.Unmarshal(o.Answer.AppendJSON(nil), &answer); err != nil {
				t.Fatal(err)
			}
			return string(answer.Waits)
		}
	}
}

// all runs functions side by side, at most limit at once.
func all(limit int, functions ...function) function {
	return func(c *code) (json.RawMessage, *thrown) {
		f := c.fork(&Fork{Limit: limit}, functions...)
		if f.Decided != nil {
			return nil, decidedBy(f).thrown
		}
		return nil, nil
	}
}

func napping(name string) function {
	return func(c *code) (json.RawMessage, *thrown) { c.sleep(name, time.Minute); return nil, nil }
}

// leaves write a capital letter as the wait of that name.
var leaves = strings.NewReplacer("A", leafOf("A"), "B", leafOf("B"), "C", leafOf("C"), "D", leafOf("D"))

func leafOf(name string) string { return `{"wait":{"name":"` + name + `","number":1}}` }

// Rule H4. What may go on after its step wakes the run; what may not is waited for together.
func TestTreesSayWhatTheCodeWaitsFor(t *testing.T) {
	last := func(name string) function { return lastly(name, time.Minute) }
	napped := wire.Entry{Entry: 1, Kind: "sleep", Name: "A", Number: 1, Status: "completed"}
	for _, c := range []struct {
		name    string
		run     function
		entries []wire.Entry
		want    string
	}{
		{"one thing", napping("A"), nil, `[A]`},
		{"branches that may go on", all(0, napping("A"), napping("B")), nil, `[A,B]`},
		{"branches that end with it", all(0, last("A"), last("B"), last("C")), nil, `[{"all":[A,B,C]}]`},
		{"what has come is left out", all(0, last("A"), last("B"), last("C")), []wire.Entry{napped}, `[{"all":[B,C]}]`},
		{"some of both", all(0, last("A"), napping("B"), last("C")), nil, `[B,{"all":[A,C]}]`},
		{"items that wait for their turn", all(2, last("A"), last("B"), last("C")), nil, `[A,B]`},
		{"the last of them have begun", all(2, last("A"), last("B"), last("C")), []wire.Entry{napped}, `[{"all":[B,C]}]`},
		{"a race", first(napping("A"), last("B")), nil, `[{"race":[A,B]}]`},
		{"a race in a branch", all(0, first(napping("A"), napping("B")), last("C")), nil, `[{"race":[A,B]},{"all":[C]}]`},
		{"branches of a race", first(all(0, last("A"), last("B")), all(0, napping("C"), napping("D"))), nil, `[{"race":[{"all":[A,B]},C,D]}]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := leaves.Replace(c.want)
			if diff := cmp.Diff(want, waitsOf(t, c.run, c.entries...)); diff != "" {
				t.Errorf("waits (-want +got):\n%s", diff)
			}
		})
	}
}

// Rule H4.
func TestAStepAfterTheLastOneIsRefused(t *testing.T) {
	b := playing(t, wire.Call{Steps: wire.Steps{Entries: []wire.Entry{{Entry: 1, Kind: "run", Name: "a", Number: 1, Status: "completed"}}}}, Config{})
	b.want("code")
	b.askFor(b.m.Root(), "a", AskOptions{Last: true})
	b.want("release a1")
	if err := b.ask("b"); !errors.Is(err, ErrLast) {
		t.Errorf("a further step gave %v", err)
	}
	if err := b.m.Fork(b.m.Root(), &Fork{Size: 1}, b.now); !errors.Is(err, ErrLast) {
		t.Errorf("a fork gave %v", err)
	}
}
