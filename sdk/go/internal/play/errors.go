package play

import (
	"errors"
	"iter"

	"github.com/nelkap/nelkap/sdk/go/internal/core"
)

// The errors of a playing. Package nelkap exports those that users check for.
var (
	ErrCallOver      = errors.New("nelkap: the call is over; the run goes on in another one")
	ErrSuperseded    = errors.New("nelkap: call superseded")
	ErrCancelled     = errors.New("nelkap: run cancelled")
	ErrTimeout       = errors.New("nelkap: timed out")
	ErrAbandoned     = errors.New("nelkap: this attempt of the step timed out or was abandoned, and may send nothing more")
	ErrAmbiguousSend = errors.New("nelkap: two sends of one name in a step overlapped or changed places, " +
		"so that they can't be told apart when the step repeats: give each an id or a key")
	// A repeat runs the check first: what it sent would have the places of what the body has sent.
	ErrCheckSends = errors.New("nelkap: the check of a step only looks: send from the step's body")
	ErrInStep     = errors.New("nelkap: a step can't start a step: " +
		"start it in the workflow, outside the body, with the workflow's context")
	ErrStepInFlight = errors.New("nelkap: another step of this branch is in flight: " +
		"run steps one after the other, or side by side with step.Parallel, Map or Race, each branch with the context that it is given")
	ErrBranchEnded = errors.New("nelkap: the branch that this context belongs to has ended: " +
		"use the context of the function that goes on")
	ErrLast = errors.New("nelkap: this branch said with step.Last that no step would come after that one: " +
		"leave Last out where the branch goes on")
	ErrUndoInHandler = errors.New("nelkap: there is nothing to undo in OnFailure and OnCancel, which run last: " +
		"do there what must be done, in a step")
	ErrRestartInHandler = errors.New("nelkap: a run can't begin again in OnFailure and OnCancel, which end it: " +
		"start a new run with nelkap.Run, in a step")
	ErrRestartInStep = errors.New("nelkap: a step can't begin the run again: " +
		"return from its body, and call step.Restart in the workflow, with the workflow's context")
	ErrStepsMax = errors.New("nelkap: the run has as many steps as the server allows: " +
		"split the work over several runs, or raise the server's limit")
)

// cause is the error that a context ends with.
func cause(r core.Reason) error {
	switch r {
	case core.Superseded:
		return ErrSuperseded
	case core.Cancelled:
		return ErrCancelled
	case core.TimedOut:
		return ErrTimeout
	case core.Ended, core.Abandoned:
		return ErrCallOver
	}
	return ErrCallOver
}

// refused is the error of a step that the machine did not take. Where the call is over for l the goroutine ends here.
func (p *Playing) refused(l *lane, err error) error {
	switch {
	case errors.Is(err, core.ErrBusy):
		return ErrStepInFlight
	case errors.Is(err, core.ErrEnded):
		return ErrBranchEnded
	case errors.Is(err, core.ErrLast):
		return ErrLast
	case errors.Is(err, core.ErrStepsMax):
		return ErrStepsMax
	}
	return p.exit(l)
}

// Misuse is true for errors of Step that trying again would not mend. err may be a branch's.
func Misuse(err error) bool {
	for layer := range Layers(err) {
		is, _ := layer.(interface{ Is(target error) bool })
		for _, misuse := range []error{ErrInStep, ErrStepInFlight, ErrBranchEnded, ErrLast, ErrUndoInHandler, ErrStepsMax, errName} {
			if layer == misuse || is != nil && is.Is(misuse) { //nolint:errorlint // each layer is looked at by itself
				return true
			}
		}
	}
	return false
}

const (
	// layersDeepMax bounds how deep the layers of an error are looked at: people's have a dozen.
	layersDeepMax = 100
	// layersMax bounds how many are looked at in all: as many as an error that joins one of each step has.
	layersMax = 10_000
)

// Layers are err and what it wraps, each branch before the next, as errors.Is goes through them; but not without end where an error of
// the user's unwraps to itself.
func Layers(err error) iter.Seq[error] {
	return func(yield func(error) bool) {
		left := layersMax
		layers(err, 0, &left, yield)
	}
}

// layers is false when no more are wanted.
func layers(err error, depth int, left *int, yield func(error) bool) bool {
	if err == nil || depth >= layersDeepMax || *left == 0 {
		return true
	}
	*left--
	if !yield(err) {
		return false
	}
	switch e := err.(type) { //nolint:errorlint // one layer is unwrapped at a time
	case interface{ Unwrap() error }:
		return layers(e.Unwrap(), depth+1, left, yield)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if !layers(inner, depth+1, left, yield) {
				return false
			}
		}
	}
	return true
}

var errName = errors.New("nelkap: bad name")
