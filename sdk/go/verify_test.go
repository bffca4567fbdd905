package nelkap_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// verify plays the run's code against its history.
func (s *fakeServer) verify(workflow string, limitMs int64) answer {
	s.t.Helper()
	text, err := json.Marshal(map[string]any{
		"type": "verify", "run": map[string]any{"id": "run_1", "workflow": workflow, "payload": "o_1"},
		"steps": map[string]any{"entries": s.entries, "next": nil, "retrying": []any{}, "waiting": []any{}}, "limitMs": limitMs,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	a := s.serve(signed(s.t.Context(), text))
	if a.Type != "verified" || a.Status != 200 {
		s.t.Fatalf("answered %d %s %s", a.Status, a.Type, a.Detail)
	}
	return a
}

func entries(names ...string) (list []wire.Entry) {
	for i, name := range names {
		list = append(list, wire.Entry{Entry: int64(i + 1), Kind: "run", Name: name, Number: 1, Status: "completed", Output: json.RawMessage("1")})
	}
	return list
}

// D3: nothing is started, registered, claimed or sent.
func TestAVerifyActsOnNothing(t *testing.T) {
	local := &kept{}
	s := newServer(t, nelkap.Options{App: "shop", Logger: local.logger()})
	other := nelkap.NewWorkflow(s.app, "other", func(context.Context, string) (string, error) { return "", nil })
	nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, order string) (string, error) {
		nelkap.Log(ctx).Info("said again")
		run, err := nelkap.Run(ctx, other, order)
		if err != nil || run.ID == "" {
			return "", fmt.Errorf("%v %w", run, err)
		}
		if made, err := s.app.Emit(ctx, nelkap.Event{Name: "e"}); err != nil || made[0].ID == "" {
			return "", fmt.Errorf("%v %w", made, err)
		}
		if err := step.Do(ctx, "a", func(context.Context) error { panic("started") }); err != nil {
			return "", err
		}
		nelkap.Log(ctx).Info("never said")
		return "", step.Parallel(ctx,
			func(ctx context.Context) error {
				return step.Do(ctx, "b", func(context.Context) error { panic("started") })
			},
			func(ctx context.Context) error { return step.Sleep(ctx, "nap", time.Hour) },
			func(ctx context.Context) error { _, err := step.Claim(ctx, "claim", "k"); return err },
			func(ctx context.Context) error {
				return step.Undo(ctx, "undo", func(context.Context) error { return nil })
			},
		)
	}, nelkap.Once(func(order string) string { return order }))
	s.entries = entries("", "a", "gone")
	s.entries[0].Kind = "claim"
	a := s.verify("w", 5000)
	if a.End != "" || a.Error != nil {
		t.Errorf("it ended as %s with %v", a.End, a.Error)
	}
	if diff := cmp.Diff([]wire.StepKind{{Kind: "run", Name: "gone", Number: 1}}, a.Unasked); diff != "" {
		t.Errorf("unasked (-want +got):\n%s", diff)
	}
	asked := []wire.StepKind{
		{Kind: "run", Name: "b", Number: 1},
		{Kind: "sleep", Name: "nap", Number: 1},
		{Kind: "claim", Name: "claim", Number: 1},
		{Kind: "undo", Name: "undo", Number: 1},
	}
	if diff := cmp.Diff(asked, a.Asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if len(s.requests) > 0 || local.take() != "" {
		t.Errorf("it sent %v", s.requests)
	}
}

func TestAVerifySaysHowTheCodeEnded(t *testing.T) {
	s := newServer(t, nelkap.Options{App: "shop"})
	for name, fn := range map[string]func(ctx context.Context, order string) (string, error){
		"returned":  func(context.Context, string) (string, error) { return "x", nil },
		"restarted": func(ctx context.Context, _ string) (string, error) { return "", step.Restart(ctx, "o_2") },
		"threw":     func(context.Context, string) (string, error) { return "", errors.New("no") },
		"panicked":  func(context.Context, string) (string, error) { panic("no") },
		"of another kind": func(ctx context.Context, _ string) (string, error) {
			return "", step.Sleep(ctx, "a", time.Hour)
		},
	} {
		nelkap.NewWorkflow(s.app, name, fn)
	}
	s.entries = entries("a")
	for name, want := range map[string]string{
		"returned": "returned <nil>", "restarted": "returned <nil>", "threw": "threw &{Error no", "panicked": "threw &{panic no",
		"of another kind": "threw &{StepKindError step a was saved as a step with a body, and the code asks for a sleep under that name",
	} {
		a := s.verify(name, 5000)
		if got := fmt.Sprint(a.End, " ", a.Error); len(got) < len(want) || got[:len(want)] != want {
			t.Errorf("%s: it ended as %s, want %s", name, got, want)
		}
	}
}

// Code that never comes to rest holds nothing that others need, and its end comes to nothing.
func TestAVerifyThatIsLateIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{App: "shop", Logger: slog.New(slog.DiscardHandler)})
		var late error
		left := make(chan struct{})
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ string) (string, error) {
			defer close(left)
			time.Sleep(time.Hour)
			defer func() {
				late = step.Do(ctx, "a", func(context.Context) error { return nil })
				panic("late")
			}()
			return step.Run(ctx, "b", func(context.Context) (string, error) { return "", nil })
		})
		started := time.Now()
		a := s.verify("w", 2000)
		if took := time.Since(started); a.End != "late" || took < 2*time.Second || took > 3*time.Second {
			t.Errorf("it ended as %s after %v", a.End, took)
		}
		if err := s.app.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown waited for it: %v", err)
		}
		<-left
		if !errors.Is(late, nelkap.ErrCallOver) {
			t.Errorf("a late step gave %v", late)
		}
	})
}

func TestAVerifyIsRefusedLikeACall(t *testing.T) {
	s := newServer(t, nelkap.Options{App: "shop"})
	for text, want := range map[string]string{
		`{"type":"verify"}`: "bad_request",
		`{"type":"verify","run":{"id":"run_1","workflow":"gone"}}`:                                          "workflow_unknown",
		`{"type":"verify","run":{"id":"run_1","workflow":"gone"},"steps":{"entries":[],"next":7}}`:          "bad_request",
		`{"type":"verify","run":{"id":"run_1","workflow":"gone"},"ending":{"reason":"failed","entries":0}}`: "bad_request",
	} {
		if a := s.serve(signed(t.Context(), []byte(text))); a.Code != want {
			t.Errorf("%s: answered %s, want %s", text, a.Code, want)
		}
	}
}
