package step

import (
	"context"
	"fmt"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/value"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// Undo says how to undo what a step does: fn runs when the run fails for good, times out or is cancelled, and else never. When Undo has
// returned, it is saved that there is something to undo. A run may be cancelled or time out while the body of a step runs: its result
// is then saved, and an Undo after it is not. Where that matters say Undo before the step, and have fn look for what there is to undo.
//
// The run then closes in calls of its own. The workflow's function is played with what was saved, and starts nothing; then the undos run,
// the last first and one at a time, each as a step of the undo's name: with its idempotency key, tried again as often as the workflow's
// Retries say, and saved. fn gets a step's context. One that fails for good does not keep the next from running. One that the code asks
// for no more, since it was changed, fails with an UndoMissingError.
//
// fn sees the function's variables as they are after that playing, when the function has returned or rests in a step, so that deferred
// functions may have run. An undo takes two counts of its name, its own and that of fn: a name of its own is best.
func Undo(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	f := play.From(ctx)
	if f == nil {
		return notInRun(name)
	}
	var err error
	if fn == nil {
		err = errNoFunction
	}
	_, err = ask(f, &play.Request{
		Name: name, Terms: &wire.Terms{Op: wire.OpUndo, Kind: wire.KindUndo}, Undo: &play.Request{Name: name, Body: bodyWithout(fn)},
	}, err)
	return err
}

// Restart ends this history and begins the run again with payload, in its place: under the same id, with no saved steps, and with new
// idempotency keys. Return what it returns. In it belongs to the workflow; the payload has at most 4 MiB.
//
// It does return only where it is refused: in the body of a step, in OnFailure and OnCancel, and for a payload that JSON can't hold or
// that is too large. Else the function's goroutine ends there, also in a branch of Parallel, Map or Race, as at the end of a call:
// deferred functions run, and nelkap.CallOver tells them. Bodies that still run are aborted, and have ten seconds.
func Restart[In any](ctx context.Context, payload In) error {
	f := play.From(ctx)
	if f == nil {
		return fmt.Errorf("the restart: %w", nelkap.ErrNotInRun)
	}
	raw, err := value.Encode("payload", &payload)
	if err != nil {
		return nelkap.NonRetriable(fmt.Errorf("nelkap: the run can't begin again with this payload: %w", err))
	}
	return nelkap.NonRetriable(f.Restart(raw))
}
