package step

import (
	"context"
	"errors"
	"fmt"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// Parallel runs the branches side by side and waits for all. Each gets a context of its own, which its steps must be given.
//
// Bodies of steps run at once; what branches do outside bodies comes in turns, one branch at a time, in the same order on every call:
// a branch must not wait for another by a channel or a lock. The first error in the history's order is Parallel's, and a panic of a
// branch goes on here. Then no further step of the others starts, the bodies that run finish and are saved, and the goroutines of the
// others end where they wait, as at the end of a call.
func Parallel(ctx context.Context, branches ...func(ctx context.Context) error) error {
	_, err := fork(ctx, &play.Branches{
		Size: len(branches),
		Run:  func(ctx context.Context, i int) error { return branches[i](ctx) },
	})
	return err
}

// MapOption is an option of Map.
type MapOption interface{ mapOption(*mapOptions) }

type mapOptions struct {
	limit int
	err   error
}

type mapOption func(*mapOptions)

func (m mapOption) mapOption(o *mapOptions) { m(o) }

// Limit is how many items are worked on at once; all of them unless given.
func Limit(n int) MapOption {
	return mapOption(func(o *mapOptions) {
		if n < 1 {
			o.err = fmt.Errorf("nelkap: Limit can't be %d: give 1 or more, or leave it out to work on all items at once", n)
		}
		o.limit = n
	})
}

// Map runs fn for each item side by side, as Parallel does, and gives the results in the items' order. Steps of one name are counted
// by the item's index: those of the third item are number 3, whichever item comes first. Results are nil where there is an error.
func Map[In, Out any](ctx context.Context, items []In, fn func(ctx context.Context, item In) (Out, error), opts ...MapOption) ([]Out, error) {
	var o mapOptions
	for _, option := range opts {
		option.mapOption(&o)
	}
	if o.err != nil {
		return nil, nelkap.NonRetriable(o.err)
	}
	results := make([]Out, len(items))
	_, err := fork(ctx, &play.Branches{
		Size: len(items), Limit: o.limit, Indexed: true,
		Run: func(ctx context.Context, i int) (err error) {
			results[i], err = fn(ctx, items[i])
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// Race runs the branches side by side, as Parallel does, and gives the index and the result of the first that ended, be it by an error:
// the same one on every call. It does not wait for the others: their bodies that run may finish and are saved, and are aborted when
// the workflow's function returns.
func Race[T any](ctx context.Context, branches ...func(ctx context.Context) (T, error)) (winner int, result T, err error) {
	if len(branches) == 0 {
		return -1, result, nelkap.NonRetriable(errors.New("nelkap: a race without branches has no winner: give at least one"))
	}
	results := make([]T, len(branches))
	winner, err = fork(ctx, &play.Branches{
		Size: len(branches), Race: true,
		Run: func(ctx context.Context, i int) (err error) {
			results[i], err = branches[i](ctx)
			return err
		},
	})
	if winner >= 0 {
		result = results[winner]
	}
	return winner, result, err
}

// fork runs branches, of which there may be none.
func fork(ctx context.Context, b *play.Branches) (decided int, err error) {
	f := play.From(ctx)
	if f == nil {
		return -1, nelkap.ErrNotInRun
	}
	if b.Size == 0 {
		return -1, nil
	}
	decided, err = f.Fork(ctx, b)
	if play.Misuse(err) {
		err = nelkap.NonRetriable(err)
	}
	return decided, err
}

// LastOption is what Last makes.
type LastOption struct{}

func (LastOption) sleepOption(o *waitOptions)  { o.request.Last = true }
func (LastOption) invokeOption(o *waitOptions) { o.request.Last = true }

func (LastOption) waitOption(o *waitOptions) {
	o.request.Last = true
	if o.request.Terms.Op != wire.OpWait {
		o.fail(errors.New("nelkap: Last is said of a wait, and a callback is made at once: leave out Last"))
	}
}

// Last says that no step of this branch comes after this one, so that the run need not be called for it alone: a fan-out of a thousand
// child runs, each the Last of its branch of Parallel or Map, calls the run once, when all have come or the first of them has failed.
// What the branch does outside steps after it waits until then. A further step of the branch is an error.
//
// Without Last what comes to a branch calls the run at once, and then at most once a second, since the branch may go on and others may
// wait for what it does. Last has no effect in a Race, which the first decides, nor while Limit keeps items waiting for their turn: the
// end of each lets the next one start.
func Last() LastOption { return LastOption{} }
