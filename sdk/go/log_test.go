package nelkap_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// savedLine is a line of the log as the server is sent it.
type savedLine struct {
	At      time.Time
	Level   string
	Message string
	Fields  json.RawMessage
	Step    *wire.StepRef
	Attempt int
	Entry   *int64
	Line    int
}

func (l *savedLine) String() string {
	where := "?"
	if l.Step != nil {
		where = fmt.Sprintf("%s %d", l.Step.Name, l.Step.Number)
	} else if l.Entry != nil {
		where = fmt.Sprintf("after %d", *l.Entry)
	}
	return strings.TrimSpace(fmt.Sprintf("%s, attempt %d, line %d: %s %s %s", where, l.Attempt, l.Line, l.Level, l.Message, string(l.Fields)))
}

// said are the lines that the server was sent since the last time.
func (s *fakeServer) said() (lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.lines {
		if s.lines[i].At.IsZero() {
			s.t.Errorf("the line %v has no time", &s.lines[i])
		}
		lines = append(lines, s.lines[i].String())
	}
	s.lines = nil
	return lines
}

// kept is a writer that tests read.
type kept struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (k *kept) Write(text []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.b.Write(text)
}

// take is what was written since the last time.
func (k *kept) take() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.b.Reset()
	return k.b.String()
}

// logger writes lines without their times.
func (k *kept) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(k, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func TestLinesGoToBothLogsAndAreNotRepeated(t *testing.T) {
	local := &kept{}
	s := newServer(t, nelkap.Options{App: "shop", Logger: local.logger()})
	nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
		log := nelkap.Log(ctx)
		log.Info("begins", "n", 1)
		err := step.Do(ctx, "a", func(ctx context.Context) error {
			nelkap.Log(ctx).WithGroup("order").With("id", "o_1").Warn("charging", "amount", 12)
			nelkap.Log(ctx).Debug("only there")
			return nil
		})
		log.Error("slept", "error", errors.New("tired"))
		if err == nil {
			err = step.Sleep(ctx, "nap", time.Hour)
		}
		log.Info("ends")
		return nelkap.None{}, err
	})
	s.call("w", nil)
	want := []string{
		`after 0, attempt 1, line 1: info begins {"n":1}`,
		`a 1, attempt 1, line 1: warn charging {"order":{"amount":12,"id":"o_1"}}`,
		`a 1, attempt 1, line 2: debug only there`,
		`after 1, attempt 1, line 1: error slept {"error":"tired"}`,
	}
	if diff := cmp.Diff(want, s.said()); diff != "" {
		t.Errorf("lines of the first call (-want +got):\n%s", diff)
	}
	wantLocal := `level=INFO msg=begins run=run_1 attempt=1 n=1
level=WARN msg=charging run=run_1 step=a attempt=1 order.id=o_1 order.amount=12
level=ERROR msg=slept run=run_1 attempt=1 error=tired
`
	if diff := cmp.Diff(wantLocal, local.take()); diff != "" {
		t.Errorf("the app's log of the first call (-want +got):\n%s", diff)
	}
	s.arrives("nap", "", nil)
	s.call("w", nil)
	if diff := cmp.Diff([]string{`after 2, attempt 1, line 1: info ends`}, s.said()); diff != "" {
		t.Errorf("lines of the second call (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("level=INFO msg=ends run=run_1 attempt=1\n", local.take()); diff != "" {
		t.Errorf("the app's log of the second call (-want +got):\n%s", diff)
	}
}

func TestALineTravelsByItselfAfterASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{App: "shop", Logger: slog.New(slog.DiscardHandler)})
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
			return nelkap.None{}, step.Do(ctx, "a", func(ctx context.Context) error {
				nelkap.Log(ctx).Info("begins")
				time.Sleep(999 * time.Millisecond)
				if got := s.said(); got != nil {
					t.Errorf("after less than a second there is %v", got)
				}
				time.Sleep(2 * time.Millisecond)
				synctest.Wait()
				if got := s.said(); len(got) != 1 {
					t.Errorf("after a second there is %v", got)
				}
				return nil
			})
		})
		if a := s.call("w", nil); a.Type != "completed" || a.Logs != nil {
			t.Errorf("answered %+v", a)
		}
		if diff := cmp.Diff([]string{"completed a 1/1"}, s.savedNames()); diff != "" {
			t.Errorf("saves (-want +got):\n%s", diff)
		}
	})
}

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("no") }
func (panics) LogValue() slog.Value         { panic("no") }

type badError struct{}

func (*badError) Error() string { panic("no") }

type jsonPanics struct{}

func (jsonPanics) MarshalJSON() ([]byte, error) { panic("no") }

// endless is a group of itself.
type endless struct{}

func (endless) LogValue() slog.Value { return slog.GroupValue(slog.Any("again", endless{})) }

func TestALineNeverFailsARun(t *testing.T) {
	s := newServer(t, nelkap.Options{App: "shop", Logger: slog.New(slog.DiscardHandler)})
	loop := map[string]any{}
	loop["loop"] = loop
	values := []any{make(chan int), func() {}, math.NaN(), loop, panics{}, jsonPanics{}, (*badError)(nil), endless{}, strings.Repeat("x", 9<<10), nil, "\xff", struct{ a int }{1}, json.RawMessage("\"caf\xe9\"")}
	nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
		for _, v := range values {
			nelkap.Log(ctx).Info(strings.Repeat("é", 5<<10), "value", v)
		}
		return nelkap.None{}, nil
	})
	a := s.call("w", nil)
	if a.Type != "completed" || len(a.Logs) != len(values) {
		t.Fatalf("answered %s with %d lines: %v", a.Type, len(a.Logs), a.Error)
	}
	for i, l := range a.Logs {
		if len(l.Message) != 8<<10 || len(l.Fields) > 8<<10 || !json.Valid(l.Fields) || !utf8.Valid(l.Fields) {
			t.Errorf("the line of %T has %d bytes and %s", values[i], len(l.Message), l.Fields)
		}
		if dropped := strings.HasPrefix(string(l.Fields), `{"dropped":"`); dropped != (i < 4 || i >= 5 && i < 9) {
			t.Errorf("the fields of %T are %s", values[i], l.Fields)
		}
	}
}

func TestALoggerServesManyGoroutinesAlsoWhenItsCallIsOver(t *testing.T) {
	s := newServer(t, nelkap.Options{App: "shop", Logger: slog.New(slog.DiscardHandler)})
	var writers sync.WaitGroup
	goOn := make(chan struct{})
	nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
		for range 8 {
			writers.Go(func() {
				for i := range 100 {
					nelkap.Log(ctx).Info("line", "i", i)
				}
			})
		}
		writers.Wait()
		writers.Go(func() { <-goOn; nelkap.Log(ctx).Info("late") })
		return nelkap.None{}, nil
	})
	a := s.call("w", nil)
	close(goOn)
	writers.Wait()
	if len(a.Logs) != 800 {
		t.Errorf("there are %d lines", len(a.Logs))
	}
}

func TestLinesThatComeTooFastAreDroppedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{App: "shop", Logger: slog.New(slog.DiscardHandler)})
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
			return nelkap.None{}, step.Do(ctx, "a", func(ctx context.Context) error {
				for range 1005 {
					nelkap.Log(ctx).Info("line")
				}
				return nil
			})
		})
		s.call("w", nil)
		said := s.said()
		if len(said) != 1001 || said[1000] != "a 1, attempt 1, line 1005: warn 5 lines were dropped" {
			t.Errorf("there are %d lines, the last is %s", len(said), said[len(said)-1])
		}
	})
}

// The function of a closing writes nothing; its undos and its handler do.
func TestInAClosingUndoesAndHandlersWriteLines(t *testing.T) {
	local := &kept{}
	s := newServer(t, nelkap.Options{App: "shop", Logger: local.logger()})
	nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
		err := step.Undo(ctx, "u", func(ctx context.Context) error { nelkap.Log(ctx).Info("undoing"); return nil })
		nelkap.Log(ctx).Info("said before")
		return nelkap.None{}, errors.Join(err, nelkap.NonRetriable(errors.New("no")))
	}, nelkap.OnFailure(func(ctx context.Context, _ nelkap.Failure[nelkap.None]) error {
		nelkap.Log(ctx).Info("handling")
		err := step.Do(ctx, "tell", func(context.Context) error { return nil })
		nelkap.Log(ctx).Info("handled")
		return err
	}))
	s.call("w", nil)
	s.said()
	local.take()
	s.close("failed", &wire.Error{Name: "Error", Message: "no"})
	s.call("w", nil)
	want := []string{"u 2, attempt 1, line 1: info undoing", "after 2, attempt 1, line 10001: info handling", "after 3, attempt 1, line 10001: info handled"}
	if diff := cmp.Diff(want, s.said()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if text := local.take(); strings.Count(text, "\n") != 3 || strings.Contains(text, "said before") {
		t.Errorf("the app's log is\n%s", text)
	}
	s.call("w", nil) // cut off and called again
	if diff := cmp.Diff(want[2:], s.said()); diff != "" {
		t.Errorf("lines of a call after that (-want +got):\n%s", diff)
	}
}

func TestOutsideARunTheLoggerIsTheDefault(t *testing.T) {
	if nelkap.Log(t.Context()) != slog.Default() {
		t.Error("it is another one")
	}
}
