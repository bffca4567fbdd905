package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nelkap/nelkap/internal/workflow"
)

// The rare situations that the long form must reach (sometimes-assertions), each named as a sentence.
const (
	lateSave            = "a late save was accepted before the next call began"
	supersededSave      = "a save of a superseded call was refused"
	supersededPlaying   = "a second playing of a call was superseded by its nonce"
	unsavedInAnswer     = "an answer carried results that could not be saved"
	endThroughAPI       = "the end of a call came through the API"
	claimedTwice        = "two nodes claimed the same due run"
	staleRefused        = "a change on an old version of a run was refused"
	beginVoid           = "a begin was void"
	doubledVoid         = "a begin was void, and a double of its call had been played elsewhere" // too rare to be asked for
	commitUnknownAfter  = "a commit of unknown outcome had taken effect"
	commitUnknownBefore = "a commit of unknown outcome had not taken effect"
	stepStands          = "a step was saved again, and the first result stood"
	startRecorded       = "a step's start was recorded"
	pickedUp            = "a run was picked up after a cut"
	suspendedForRetry   = "a run was suspended until a step's retry"
	toldLater           = "a call was told to try again later"
	savedWhileEnding    = "a step was saved while its run was ending"
	timedOut            = "a run timed out"
	keyAnswered         = "a run key answered the run that has it"
	eventAnswered       = "an event's id answered the event that has it"
	sendRepeated        = "a step's send was repeated and found its first"
	adopted             = "a node adopted a call of the node before"
	leaseMoved          = "a stored lease was moved by contact"
	batchInterleaved    = "a batch of two nodes was interleaved"
	manyInOneCommit     = "a commit carried the changes of several runs"
	threwBesideWaits    = "code outside steps threw, and waits of its run were open"
	appFull             = "an app had as many calls as it takes"
	attemptOutOfTime    = "an attempt of a step was out of time, and was tried again"
	failedOutOfTime     = "a step failed since its last attempt was out of time"
	bodyAborted         = "a body heard that its call was over"
	codeFailed          = "code outside steps threw and was tried again"
	bodyRanTwice        = "a body that was not saved ran again"
	twoPlayings         = "two playings of one run were alive at once"

	eventLookedBack      = "an event came before its wait and was found by looking back"
	noEventCame          = "no event came in the time of its wait"
	eventAsNews          = "an event came while a call was current and reached it as news"
	sleepAsNews          = "a sleep was over while a call was current, which heard of it"
	childAsNews          = "a child ended while a call of its parent was current, which heard of it"
	waitStood            = "a wait was registered twice and stood"
	childFoundCall       = "a child's end found its parent in a call"
	childTookTooLong     = "a child took longer than its parent's timeout"
	parentCancelledChild = "a cancelled parent cancelled its child"
	orphanCancelled      = "an orphaned child was cancelled after its invoke timed out"
	eventCancelled       = "a run was cancelled by an event"
	claimRefused         = "a claim was refused to a second run"
	claimOfFailed        = "a claim passed on from a run that failed"
	claimOfTime          = "a claim passed on some time after its owner's end"
	claimOfReplay        = "a claim passed on to a replay of its owner"
	onceInterrupted      = "a step at most once was interrupted"
	checkFound           = "a check found what the body had left"
	checkFoundNothing    = "a check found nothing, and the body ran again"
	begunLater           = "a run began later, as it was asked for"

	undoneAgain         = "an undo was cut off, and its body ran again in another call"
	undoneAfterTimeout  = "an undo was done after a timeout"
	undoneAfterCancel   = "an undo was done after a cancellation"
	undoneOfReplay      = "a replay undid what it had kept from its original"
	undoFailed          = "an undo failed for good"
	undoMissing         = "an undo was missing in the code"
	handlerSaved        = "a step of a handler was saved"
	handlerAgain        = "a handler was called again"
	cancelledInClosing  = "a cancellation came in a closing"
	closingAdopted      = "a closing was adopted by another node"
	closingDone         = "a closing did all that it was for"
	closingForced       = "force ended a closing"
	closingGivenUp      = "a closing was given up"
	childOfClosing      = "a child was cancelled by its parent's closing"
	begunAgain          = "a run began again"
	begunAgainByAPI     = "a restart's answer was lost, and delivered through the API"
	orphansName         = "a child was started under the name of an orphan"
	usedBeforeRestart   = "an event that was used before a restart was not given again"
	savedInPastChapter  = "a save of a chapter that was closed was refused"
	postedBefore        = "a callback was posted to before the code waited for it"
	postedWhile         = "a callback was posted to while the code waited for it"
	postedTwice         = "a second post to a callback was refused"
	callbackPassed      = "a callback passed on to a replay that kept it"
	skippedOnce         = "a run was skipped, since another does its work"
	replayedFromStep    = "a replay kept the steps before the one that it began at"
	replayedLastChapter = "a replay from a step began in the last chapter of its original"
	lineWritten         = "a line was written to a run's log"
)

// newsOf is what comes up where a call hears of an entry of a kind that was made while it was current.
var newsOf = map[string]string{workflow.KindEvent: eventAsNews, workflow.KindSleep: sleepAsNews, workflow.KindInvoke: childAsNews}

// Situations are all that must come up. That a result stands against another one does not: it takes a second playing that saves, which
// the call's nonce keeps out before.
var Situations = []string{
	lateSave, supersededSave, supersededPlaying, unsavedInAnswer, endThroughAPI, claimedTwice, staleRefused, beginVoid, commitUnknownAfter,
	commitUnknownBefore, startRecorded, pickedUp, suspendedForRetry, toldLater, savedWhileEnding, timedOut, keyAnswered,
	eventAnswered, sendRepeated, adopted, leaseMoved, batchInterleaved, manyInOneCommit, codeFailed, bodyRanTwice, twoPlayings,
	eventLookedBack, noEventCame, eventAsNews, sleepAsNews, childAsNews, waitStood, childFoundCall, childTookTooLong, parentCancelledChild,
	orphanCancelled, eventCancelled, claimRefused, claimOfFailed, claimOfTime, claimOfReplay, onceInterrupted, checkFound, checkFoundNothing,
	begunLater, undoneAgain, undoneAfterTimeout, undoneAfterCancel, undoneOfReplay, undoFailed, undoMissing, handlerSaved, handlerAgain,
	cancelledInClosing, closingAdopted, closingDone, closingForced, closingGivenUp, childOfClosing, begunAgain, begunAgainByAPI, orphansName,
	usedBeforeRestart, savedInPastChapter, postedBefore, postedWhile, postedTwice, callbackPassed, skippedOnce, replayedFromStep, replayedLastChapter, lineWritten,
	appFull, bodyAborted, attemptOutOfTime, failedOutOfTime,
}

// What can come up only where several nodes are at work.
const (
	inherited   = "a call went on at a node that heard it, after its holder was lost"
	lostCallCut = "a call of a lost node that no other heard was cut off"
	guestSaved  = "a call saved through another node than the one that holds it"
	cursorTaken = "the matching went over to another node"
)

// NodeSituations are those of many nodes.
var NodeSituations = []string{inherited, lostCallCut, guestSaved, cursorTaken}

// What can come up only in swept seeds, which are long, and where ended runs are dropped.
const (
	runDropped = "a run that had ended was dropped"
	keyOfGone  = "a run key named a run that is gone"
	passedGone = "a claim passed on from a run that is gone"
	ticked     = "a schedule's tick started its run"
	caughtUp   = "a schedule caught up with ticks that it had missed"
)

// SweptSituations are those of swept seeds.
var SweptSituations = []string{runDropped, ticked, keyOfGone, passedGone, caughtUp}

// What can come up only in broad seeds.
const (
	keyIsOver   = "a run key whose time was over started another run"
	keysKept    = "a whole replay had its original's idempotency keys"
	tickLeftOut = "a schedule left out ticks that it had missed"
	resumed     = "a schedule went on after a pause"
)

// What can come up only in changing seeds.
const (
	foundByWas     = "a renamed step was found by the name that it had"
	openByWas      = "a renamed step that was not saved yet went on under the name that it had"
	otherRule      = "a schedule's rule of catching up changed"
	undeclared     = "a schedule went a while after its code had lost it"
	emittedLater   = "an event for later was emitted when it was due"
	answeredAgain  = "a request with an Idempotency-Key was answered again as it was the first time"
	cutOffTooOften = "a step was cut off ten times in a row, and failed"
	aloneAfterCuts = "a body ran alone after five cuts in a row"
	keyReused      = "a request with the Idempotency-Key of another one was refused"
)

// ChangingSituations are those of changing seeds.
var ChangingSituations = []string{foundByWas, openByWas, otherRule, undeclared, emittedLater, answeredAgain, keyReused, cutOffTooOften, aloneAfterCuts, ticked, caughtUp, tickLeftOut}

// BroadSituations are those of broad seeds.
var BroadSituations = []string{threwBesideWaits, keyIsOver, keysKept, tickLeftOut, resumed}

// Report says what simulations did. Its numbers are sums, so that reports can be added.
type Report struct {
	mu sync.Mutex

	Seeds      int
	Operations int            // that clients tried
	Completed  int            // of these, answered as asked
	Runs       int            // that ended
	Faults     map[string]int // injected, by kind
	Reached    map[string]int // situations
	Time       time.Duration  // simulated
	Violations []string       // each with its seed
}

// NewReport makes an empty report.
func NewReport() *Report { return &Report{Faults: map[string]int{}, Reached: map[string]int{}} }

func (r *Report) fault(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Faults[kind]++
}

func (r *Report) reached(situation string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Reached[situation]++
}

func (r *Report) operation(completed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Operations++
	if completed {
		r.Completed++
	}
}

// Add adds another report to r.
func (r *Report) Add(other *Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Seeds += other.Seeds
	r.Operations += other.Operations
	r.Completed += other.Completed
	r.Runs += other.Runs
	r.Time += other.Time
	for kind, n := range other.Faults {
		r.Faults[kind] += n
	}
	for situation, n := range other.Reached {
		r.Reached[situation] += n
	}
	r.Violations = append(r.Violations, other.Violations...)
}

// FaultKinds are all kinds of faults that a report counts.
func FaultKinds() []string {
	kinds := slices.Clone(plannedFaults)
	for _, name := range fateNames[1:] {
		kinds = append(kinds, "message: "+name)
	}
	for _, name := range diskFates[1:] {
		kinds = append(kinds, "commit: "+name)
	}
	return append(kinds, "read: "+diskFates[fails])
}

// Missing lists the kinds of faults and the situations that did not come up: a report that lacks one proves less than it says.
func (r *Report) Missing(form Form) []string {
	var missing []string
	for _, kind := range FaultKinds() {
		if r.Faults[kind] == 0 {
			missing = append(missing, "fault: "+kind)
		}
	}
	situations := slices.Clone(Situations)
	switch form {
	case FormNodes:
		situations = append(situations, NodeSituations...)
	case FormSwept:
		situations = append(situations, SweptSituations...)
	case FormBroad:
		situations = append(situations, BroadSituations...)
	case FormChanging:
		situations = append(situations, ChangingSituations...)
	case FormStale:
		if r.Faults[StaleRead] == 0 {
			missing = append(missing, "fault: "+StaleRead)
		}
	case FormLocked:
		if r.Faults[RunLocked] == 0 {
			missing = append(missing, "fault: "+RunLocked)
		}
	case FormPlain, FormWaits, FormWhole:
	}
	for _, situation := range situations {
		if r.Reached[situation] == 0 {
			missing = append(missing, "situation: "+situation)
		}
	}
	if r.Completed == 0 {
		missing = append(missing, "success: no operation was completed")
	}
	return missing
}

// String is the report as people read it. Its last line stands for the whole.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds, %d operations, %d completed, %d runs ended, %v of simulated time\n", r.Seeds, r.Operations, r.Completed, r.Runs, r.Time.Round(time.Second))
	faults := 0
	for _, kind := range slices.Sorted(maps.Keys(r.Faults)) {
		fmt.Fprintf(&b, "  %10d  %s\n", r.Faults[kind], kind)
		faults += r.Faults[kind]
	}
	b.WriteString("Sometimes:\n")
	for _, situation := range slices.Sorted(maps.Keys(r.Reached)) {
		fmt.Fprintf(&b, "  %10d  %s\n", r.Reached[situation], situation)
	}
	fmt.Fprintf(&b, "seeds=%d operations=%d completed=%d faults=%d violations=%d", r.Seeds, r.Operations, r.Completed, faults, len(r.Violations))
	return b.String()
}
