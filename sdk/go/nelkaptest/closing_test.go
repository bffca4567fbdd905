package nelkaptest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/nelkaptest"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// trip books a flight and a hotel, waits for a day, and can't pay. Each booking has a mark with its key, and so has each return.
type trip struct {
	app    *nelkap.App
	marks  *nelkaptest.Marks
	keyed  bool // what is returned, is with a key
	book   *nelkap.Workflow[string, string]
	failed error
}

func newTrip(keyed bool) *trip {
	t := &trip{app: newApp(), marks: &nelkaptest.Marks{}, keyed: keyed}
	t.book = nelkap.NewWorkflow(t.app, "trip", t.run,
		nelkap.OnFailure(func(ctx context.Context, f nelkap.Failure[string]) error {
			nelkap.Log(ctx).Error("the trip failed", "why", f.Err.Error(), "steps", len(f.Steps))
			return step.Do(ctx, "tell", func(ctx context.Context) error {
				t.marks.LeaveOnce(ctx, "told of "+f.Payload, step.IdempotencyKey(ctx))
				return nil
			})
		}),
		nelkap.OnCancel(func(ctx context.Context, c nelkap.Cancellation[string]) error {
			if err := step.Sleep(ctx, "a while", time.Hour); err != nil {
				return err
			}
			return step.Do(ctx, "tell", func(ctx context.Context) error {
				t.marks.LeaveOnce(ctx, "told of the end of "+c.Payload, step.IdempotencyKey(ctx))
				return nil
			})
		}),
	)
	return t
}

func (t *trip) run(ctx context.Context, order string) (string, error) {
	for _, what := range []string{"flight", "hotel"} {
		nelkap.Log(ctx).Info("booking", "what", what)
		if err := step.Do(ctx, "book "+what, func(ctx context.Context) error {
			t.marks.LeaveOnce(ctx, "booked "+what, step.IdempotencyKey(ctx))
			return nil
		}); err != nil {
			return "", err
		}
		if err := step.Undo(ctx, "return "+what, func(ctx context.Context) error {
			nelkap.Log(ctx).Warn("returning", "what", what)
			if t.keyed {
				t.marks.LeaveOnce(ctx, "returned "+what, step.IdempotencyKey(ctx))
			} else {
				t.marks.Leave(ctx, "returned "+what)
			}
			return t.failed
		}); err != nil {
			return "", err
		}
	}
	if err := step.Sleep(ctx, "a day", 24*time.Hour); err != nil {
		return "", err
	}
	return "", step.Do(ctx, "pay", func(context.Context) error { return nelkap.NonRetriable(errors.New("no funds")) })
}

func names(p nelkaptest.Played) (list []string) {
	for _, s := range p.Steps {
		list = append(list, fmt.Sprint(s.Name, s.Number))
	}
	return list
}

func TestAFailedRunIsUndoneAndItsHandlerCalled(t *testing.T) {
	trip := newTrip(false)
	var played nelkaptest.Played
	_, err := nelkaptest.Run(t, t.Context(), trip.book, "t_1", nelkaptest.Report(&played))
	if err == nil || err.Error() != "no funds" {
		t.Errorf("the run ended with %v", err)
	}
	want := []string{
		"book flight1", "return flight1", "book hotel1", "return hotel1", "a day1", "pay1", "return hotel2", "return flight2", "onFailure: tell1",
	}
	if diff := cmp.Diff(want, names(played)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	wantMarks := []string{"booked flight", "booked hotel", "returned hotel", "returned flight", "told of t_1"}
	if diff := cmp.Diff(wantMarks, trip.marks.List()); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
	var lines []string
	for _, l := range played.Lines {
		lines = append(lines, strings.TrimSpace(fmt.Sprint(l.Step, " ", l.Level, " ", l.Message, " ", string(l.Fields))))
	}
	wantLines := []string{
		`INFO booking {"what":"flight"}`, `INFO booking {"what":"hotel"}`,
		`return hotel WARN returning {"what":"hotel"}`, `return flight WARN returning {"what":"flight"}`,
		`ERROR the trip failed {"steps":6,"why":"no funds"}`,
	}
	if diff := cmp.Diff(wantLines, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestACancelledRunIsUndoneAndItsHandlerCalled(t *testing.T) {
	trip := newTrip(false)
	var played nelkaptest.Played
	_, err := nelkaptest.Run(t, t.Context(), trip.book, "t_1", nelkaptest.CancelledAt("a day"), nelkaptest.Report(&played))
	if !errors.Is(err, nelkap.ErrCancelled) || played.Status != nelkap.StatusCancelled {
		t.Errorf("the run ended with %v", err)
	}
	want := []string{
		"book flight1", "return flight1", "book hotel1", "return hotel1", "return hotel2", "return flight2",
		"onCancel: a while1", "onCancel: tell1",
	}
	if diff := cmp.Diff(want, names(played)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if played.Took > 2*time.Hour {
		t.Errorf("it took %v", played.Took)
	}
}

func TestARunIsCancelledFromABody(t *testing.T) {
	trip := newTrip(false)
	_, err := nelkaptest.Run(t, t.Context(), trip.book, "t_1", nelkaptest.FakeStep("book hotel", func(ctx context.Context) (nelkap.None, error) {
		return nelkap.None{}, nelkaptest.Cancel(ctx)
	}))
	if !errors.Is(err, nelkap.ErrCancelled) {
		t.Errorf("the run ended with %v", err)
	}
	if diff := cmp.Diff([]string{"booked flight", "returned flight", "told of the end of t_1"}, trip.marks.List()); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
	if err := nelkaptest.Cancel(t.Context()); !errors.Is(err, nelkaptest.ErrNotInTest) {
		t.Errorf("Cancel outside gave %v", err)
	}
}

func TestAnUndoThatFailsForGoodKeepsNoOtherFromRunning(t *testing.T) {
	trip := newTrip(true)
	trip.failed = errors.New("not now")
	var played nelkaptest.Played
	if _, err := nelkaptest.Run(t, t.Context(), trip.book, "t_1", nelkaptest.Report(&played)); err == nil || err.Error() != "no funds" {
		t.Errorf("the run ended with %v", err)
	}
	for _, s := range played.Steps {
		if strings.HasPrefix(s.Name, "return") && s.Number == 2 && (s.Attempts != 5 || s.Error.Message != "not now") {
			t.Errorf("%s was tried %d times: %v", s.Name, s.Attempts, s.Error)
		}
	}
	if trip.marks.Count("returned flight") != 1 || !trip.marks.Has("told of t_1") {
		t.Errorf("marks %v", trip.marks.List())
	}
}

func TestCrashEverywhereCutsOffInsideClosings(t *testing.T) {
	for name, option := range map[string]nelkaptest.CrashOption{
		"failed": nelkaptest.Before(func() {}), "cancelled": nelkaptest.CancelledAt("a day"),
	} {
		t.Run(name, func(t *testing.T) {
			trip := newTrip(true)
			checked := 0
			report := nelkaptest.CrashEverywhere(t, trip.book, "t_1", nelkaptest.Count(trip.marks), option,
				nelkaptest.Check(func(p nelkaptest.Played) error {
					checked++
					for _, what := range []string{"flight", "hotel"} {
						if !trip.marks.Has("returned " + what) {
							return fmt.Errorf("the %s was not returned", what)
						}
					}
					said := map[string]int{}
					for _, l := range p.Lines {
						if l.Step == "" {
							said[l.Message+string(l.Fields)]++
						}
					}
					for text, times := range said {
						if times > 1 {
							return fmt.Errorf("the line %s stands %d times", text, times)
						}
					}
					return nil
				}))
			if report.Cuts < 30 || checked != report.Scenarios {
				t.Errorf("there were %+v and %d checks", report, checked)
			}
		})
	}
}

func TestCrashEverywhereFindsAnUndoThatIsNotSafeToRunTwice(t *testing.T) {
	trip := newTrip(false)
	found := crashes(t, trip)
	if !strings.Contains(found, `the mark "returned hotel" was left twice: by step "return hotel"`) {
		t.Errorf("it found %s", found)
	}
}

func crashes(t *testing.T, trip *trip) string {
	r := &recorder{TB: t}
	nelkaptest.CrashEverywhere(r, trip.book, "t_1", nelkaptest.Count(trip.marks))
	return r.said
}

func TestARunBeginsAgainInItsPlace(t *testing.T) {
	app := newApp()
	marks := &nelkaptest.Marks{}
	pages := nelkap.NewWorkflow(app, "pages", nelkap.NoResult(func(ctx context.Context, page int) error {
		nelkap.Log(ctx).Info("page", "number", page)
		if err := step.Do(ctx, "copy", func(ctx context.Context) error {
			marks.LeaveOnce(ctx, fmt.Sprint("page ", page), step.IdempotencyKey(ctx))
			return nil
		}); err != nil || page == 3 {
			return err
		}
		return step.Restart(ctx, page+1)
	}))
	var played nelkaptest.Played
	if _, err := nelkaptest.Run(t, t.Context(), pages, 1, nelkaptest.Report(&played)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"page 1", "page 2", "page 3"}, marks.List()); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
	if played.Restarts != 2 || len(played.Steps) != 1 || len(played.Lines) != 3 || played.Lines[2].Level != slog.LevelInfo {
		t.Errorf("played %+v", played)
	}
	nelkaptest.CrashEverywhere(t, pages, 1, nelkaptest.Count(marks))
}

// Rule H4.
func TestAFanOutWakesItsParentOnce(t *testing.T) {
	app := newApp()
	child := nelkap.NewWorkflow(app, "child", func(_ context.Context, n int) (int, error) { return 2 * n, nil })
	numbers := make([]int, 100)
	for i := range numbers {
		numbers[i] = i
	}
	parent := nelkap.NewWorkflow(app, "parent", func(ctx context.Context, _ nelkap.None) (int, error) {
		doubled, err := step.Map(ctx, numbers, func(ctx context.Context, n int) (int, error) {
			return step.Invoke(ctx, "child", child, n, step.Last())
		})
		return doubled[99], err
	})
	var played nelkaptest.Played
	out, err := nelkaptest.Run(t, t.Context(), parent, nelkap.None{}, nelkaptest.Report(&played))
	if err != nil || out != 198 || played.Calls != 2 {
		t.Errorf("it gave %d and %v in %d calls", out, err, played.Calls)
	}
}
