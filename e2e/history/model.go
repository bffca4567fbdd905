package history

import "github.com/anishathalye/porcupine"

// Kinds of parts.
const (
	claims = "claim"
	runs   = "run"
	steps  = "step"
)

// noAnswer stands for the answer that did not come.
type noAnswer struct{}

func (noAnswer) String() string { return "nothing" }

// asked is what is done to a run or a step.
type asked string

const (
	startRun  asked = "start"
	cancelRun asked = "cancel"
	readRun   asked = "read"
)

const (
	readStep  asked = "read"
	beginBody asked = "the body begins"
	passStep  asked = "the code goes on after it"
)

var models = map[string]porcupine.Model{
	claims: {Init: func() any { return Claim{} }, Step: claimStep},
	runs:   {Init: func() any { return runState{} }, Step: runStep},
	steps:  {Init: func() any { return stepState{} }, Step: stepStep},
}

// claimStep is a register that is claimed once. Its state is the owner's claim, empty before the first.
func claimStep(state, input, output any) (legal bool, next any) {
	owner, want := state.(Claim), input.(Claim)
	created := owner == Claim{} || want.Drawn && want.ID == owner.ID
	if owner == (Claim{}) {
		owner = want
	}
	if _, lost := output.(noAnswer); lost {
		return true, owner
	}
	return *output.(*Claimed) == Claimed{ID: owner.ID, Created: created, Differs: owner.Value != want.Value}, owner
}

// runState is what is known of a run. Nobody sees the moment in which it ends: it has its final status from the first read that shows it.
type runState struct {
	exists      bool
	cancelAsked bool // while it went on
	final       string
}

const cancelled = "cancelled"

func runStep(state, input, output any) (legal bool, next any) {
	run := state.(runState)
	switch input {
	case startRun:
		run.exists = true
	case cancelRun:
		run.cancelAsked = run.cancelAsked || run.final == ""
	case readRun:
		return readOf(run, output.(Seen))
	}
	return true, run
}

func readOf(run runState, seen Seen) (legal bool, next runState) {
	if !seen.Found {
		return !run.exists, run
	}
	run.exists = true
	switch {
	case run.final != "": // it never changes again
		return seen.Final == run.final, run
	case seen.CancelAsked != run.cancelAsked:
		return false, run
	case seen.Final != "":
		run.final = seen.Final
		return (seen.Status == cancelled) == run.cancelAsked, run
	}
	return true, run
}

// stepState is what is known of a step. result is empty while only later code has shown that there is one.
type stepState struct {
	saved  bool
	result string
}

func stepStep(state, input, output any) (legal bool, next any) {
	step := state.(stepState)
	switch input {
	case beginBody:
		return !step.saved, step
	case passStep:
		step.saved = true
		return true, step
	default:
		return readOfStep(step, output.(string))
	}
}

func readOfStep(step stepState, result string) (legal bool, next stepState) {
	switch {
	case result == "":
		return !step.saved, step
	case step.result == "":
		return true, stepState{saved: true, result: result}
	}
	return step.result == result, step
}
