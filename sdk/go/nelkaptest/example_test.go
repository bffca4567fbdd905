package nelkaptest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/nelkaptest"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// printed prints what a test would fail with, since an example has no *testing.T.
type printed struct{ testing.TB }

func (printed) Helper()                           {}
func (printed) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (printed) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func ExampleRun() {
	t := printed{} // the *testing.T of a test
	app := nelkap.New(nelkap.Options{App: "shop"})
	fulfill := nelkap.NewWorkflow(app, "fulfill order", func(ctx context.Context, id string) (string, error) {
		invoice, err := step.Run(ctx, "invoice", func(context.Context) (string, error) { return "", fmt.Errorf("no billing here") })
		if err != nil {
			return "", err
		}
		by, ok, err := step.WaitForEvent[string](ctx, "approved", "order.approved", step.Timeout(7*24*time.Hour))
		if err != nil || !ok {
			return invoice + ", approved by nobody", err
		}
		return invoice + ", approved by " + by, step.Sleep(ctx, "cool off", 72*time.Hour)
	})
	invoice := nelkaptest.FakeStep("invoice", func(context.Context) (string, error) { return "in_1", nil })

	out, err := nelkaptest.Run(t, context.Background(), fulfill, "o_1", invoice,
		nelkaptest.Events(nelkap.Event{Name: "order.approved", Payload: "ada"}))
	fmt.Println(out, err)

	out, err = nelkaptest.Run(t, context.Background(), fulfill, "o_1", invoice)
	fmt.Println(out, err)
	// Output:
	// in_1, approved by ada <nil>
	// in_1, approved by nobody <nil>
}

func ExampleCrashEverywhere() {
	t := printed{} // the *testing.T of a test
	var outside nelkaptest.Marks
	// A fake of a service that takes keys: with one that it has seen it charges nobody again.
	charge := func(ctx context.Context, order, idempotencyKey string) error {
		if idempotencyKey == "" {
			outside.Leave(ctx, "charge "+order)
		} else {
			outside.LeaveOnce(ctx, "charge "+order, idempotencyKey)
		}
		return nil
	}
	app := nelkap.New(nelkap.Options{App: "shop"})
	pay := nelkap.NewWorkflow(app, "pay", func(ctx context.Context, order string) (nelkap.None, error) {
		return nelkap.None{}, step.Do(ctx, "charge", func(ctx context.Context) error {
			return charge(ctx, order, "") // forgets step.IdempotencyKey(ctx)
		})
	})

	nelkaptest.CrashEverywhere(t, pay, "o_1", nelkaptest.Count(&outside))
	// Output:
	// nelkaptest: Call 1 was cut off in the body of step "charge", just after it had left the mark "charge o_1", and the run was picked up. Then the mark "charge o_1" was left twice: by step "charge" of "pay" in call 1, then by step "charge" of "pay" in call 2.
	// Play this alone with nelkaptest.Only("in time, cut 1")
}
