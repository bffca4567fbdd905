package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// says writes a line, in step or outside steps, and tells whether it was written and sent.
func (b *bench) says(step, message string) (written, sent bool) {
	var s *Step
	attempt := 0
	if step != "" {
		s = b.steps[step]
		attempt = s.Attempt
	}
	line, written, sent := b.m.LineOf(s, attempt, b.now)
	if sent {
		line.Message = message
		b.m.Log(line, b.now)
	}
	return written, sent
}

func linesOf(lines []*wire.Line) (list []string) {
	for _, l := range lines {
		where := fmt.Sprint("after ", l.Entry)
		if l.Step != nil {
			where = fmt.Sprint(l.Step.Name, l.Step.Number)
		}
		list = append(list, fmt.Sprintf("%s attempt %d line %d: %s", where, l.Attempt, l.Number, l.Message))
	}
	return list
}

// A line is numbered by what the code was shown, so that it has the same number whenever the code says it again.
func TestLinesAreNumberedByWhatTheCodeWasShown(t *testing.T) {
	b := playing(t, wire.Call{Run: wire.Run{Attempt: 2}}, Config{})
	b.want("code")
	b.says("", "one")
	b.says("", "two")
	b.ask("a")
	b.want("body a1")
	b.says("a1", "in a")
	b.threw("a1")
	b.want("save failed-a1")
	lines := linesOf(b.save.Logs)
	b.accepted(wire.ItemOutcome{Status: wire.ItemRetrying, Attempt: 1, RetryInMs: 0})
	b.want("body a1")
	b.says("a1", "in a")
	b.returned("a1")
	b.want("save completed-a1")
	lines = append(lines, linesOf(b.save.Logs)...)
	b.accepted(saved(1))
	b.want("release a1")
	b.says("", "three")
	b.m.Completed(nil, b.now)
	lines = append(lines, linesOf(b.answer("completed").Logs)...)
	want := []string{
		"after 0 attempt 2 line 1: one", "after 0 attempt 2 line 2: two", "a1 attempt 1 line 1: in a", "a1 attempt 2 line 1: in a",
		"after 1 attempt 2 line 1: three",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// The claim of the run's own key is shown to nobody. What a process that died had written after it is written again.
func TestLinesAfterTheRunsOwnKeyAreWrittenAgain(t *testing.T) {
	own := wire.Entry{Entry: 1, Kind: wire.KindClaim, Number: 1, Status: "completed", Output: []byte("true")}
	b := playing(t, wire.Call{Run: wire.Run{Attempt: 1}, Steps: wire.Steps{Entries: []wire.Entry{own}}}, Config{Once: new("k")})
	b.want("code")
	b.says("", "one")
	b.m.Completed(nil, b.now)
	if diff := cmp.Diff([]string{"after 1 attempt 1 line 1: one"}, linesOf(b.answer("completed").Logs)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestLinesThatWereWrittenBeforeAreNot(t *testing.T) {
	b := playing(t, wire.Call{Steps: wire.Steps{Entries: []wire.Entry{runEntry(1, "a", 1), runEntry(2, "b", 1)}}}, Config{})
	b.want("code")
	for _, name := range []string{"a", "b"} {
		if written, sent := b.says("", "before "+name); written || sent {
			t.Errorf("the line before %s: written %v, sent %v", name, written, sent)
		}
		b.ask(name)
		b.want("release " + name + "1")
	}
	if written, sent := b.says("", "after b"); !written || !sent {
		t.Errorf("the line after b: written %v, sent %v", written, sent)
	}
}

// A line of a body that nobody waits for any more stays where it was written.
func TestLinesOfAnEndedCallStayHere(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.want("code")
	b.ask("a")
	b.want("body a1")
	b.returned("a1")
	if written, sent := b.says("a1", "late"); !written || sent {
		t.Errorf("after the body's end: written %v, sent %v", written, sent)
	}
	b.m.News(&wire.News{Status: wire.StatusSuperseded}, b.now)
	if written, sent := b.says("", "late"); !written || sent {
		t.Errorf("after the call's end: written %v, sent %v", written, sent)
	}
}

func TestLinesGoByThemselvesAfterASecond(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.want("code")
	b.says("", "one")
	if wake := b.m.Wake(b.now); !wake.Equal(b.now.Add(logPause)) {
		t.Errorf("it wakes at %v", wake)
	}
	b.after(logPause - 1)
	b.want()
	b.after(1)
	b.want("save")
	if len(b.save.Items) != 0 || len(b.save.Logs) != 1 {
		t.Errorf("the save is %+v", b.save)
	}
	b.says("", "two")
	b.accepted()
	b.want()
	b.after(logPause)
	b.want("save")
}

// A superseded playing whose body goes on wants no Tick for lines that it may not send: each would want the next at once.
func TestNothingIsDueInACallThatIsOver(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.want("code")
	b.ask("a")
	b.want("body a1")
	b.says("a1", "one")
	b.m.News(&wire.News{Status: wire.StatusSuperseded}, b.now)
	b.after(2 * logPause)
	if wake := b.m.Wake(b.now); !wake.IsZero() {
		t.Errorf("it wakes at %v, and nothing can be done then", wake)
	}
}

// Rule C11: whether the lines arrive is no matter of the run's.
func TestASaveOfLinesThatFailsHoldsUpNothing(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.want("code")
	b.says("", "one")
	b.after(logPause)
	b.want("save")
	for range 100 { // far longer than the contact with the server may be lost
		b.m.SaveFailed(b.save, b.now)
		b.want()
		b.after(b.m.Wake(b.now).Sub(b.now))
		b.want("save")
	}
	b.says("", "two")
	b.m.Completed(nil, b.now)
	want := []string{"after 0 attempt 0 line 1: one", "after 0 attempt 0 line 2: two"}
	if diff := cmp.Diff(want, linesOf(b.answer("completed").Logs)); diff != "" {
		t.Errorf("lines of the answer (-want +got):\n%s", diff)
	}
}

func TestUnsentLinesAreBounded(t *testing.T) {
	for _, c := range []struct {
		message string
		kept    int
	}{{"x", linesMax}, {strings.Repeat("x", 8<<10), 248}} {
		b := playing(t, wire.Call{}, Config{})
		b.want("code")
		for range linesMax + 1 {
			b.says("", c.message)
		}
		b.m.Completed(nil, b.now)
		lines := b.answer("completed").Logs
		bytes := 0
		for _, l := range lines {
			bytes += l.Size()
		}
		last := lines[len(lines)-1]
		want := fmt.Sprintf("%d lines were dropped", linesMax+1-len(lines)+1)
		if last.Message != want || last.Level != wire.LevelWarn || bytes > lineBytesMax+1000 || len(lines) < c.kept {
			t.Errorf("there are %d lines of %d bytes, the last says %q, want %q", len(lines), bytes, last.Message, want)
		}
	}
}

// A save with a big result has no room for many lines: they go with the next.
func TestLinesLeaveRoomForABigResult(t *testing.T) {
	b := playing(t, wire.Call{}, Config{})
	b.want("code")
	b.ask("a")
	b.want("body a1")
	b.says("a1", "in a")
	s := b.steps["a1"]
	b.m.BodyEnded(s, 1, Settled{Output: slices.Repeat([]byte("1"), 7<<20)}, b.now)
	b.want("save completed-a1")
	if b.save.Logs != nil || b.save.Size() > wire.RequestBytesMax {
		t.Errorf("the save has %d lines and %d bytes", len(b.save.Logs), b.save.Size())
	}
	b.after(time.Second)
	b.accepted(saved(1))
	b.want("save", "release a1")
}
