package nelkaptest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	nelkap "github.com/nelkap/nelkap/sdk/go"
)

const (
	// scenariosMax is how many scenarios are played unless ScenariosMax says otherwise: some 60 steps with two events.
	scenariosMax = 1_000
	// scenarioBodiesMax bounds the bodies of one scenario: as many as a run may have steps.
	scenarioBodiesMax = 10_000
)

// errLimit says that a bound of the kit was reached.
var errLimit = errors.New("a bound was reached")

// CrashOption is an option of CrashEverywhere. Every Option is one.
type CrashOption interface{ crashOption(o *crashOptions) }

type crashOption func(*crashOptions)

func (c crashOption) crashOption(o *crashOptions) { c(o) }

type crashOptions struct {
	options
	marks        []*Marks
	before       []func()
	checks       []func(Played) error
	mayEnd       []nelkap.Status
	startedTwice bool
	only         string
	scenariosMax int
}

// Count has no mark of these be left twice. They are cleared before each scenario.
func Count(marks ...*Marks) CrashOption {
	return crashOption(func(o *crashOptions) { o.marks = append(o.marks, marks...) })
}

// Before is called before each scenario: it puts what the test's fakes remember back to the beginning.
func Before(f func()) CrashOption {
	return crashOption(func(o *crashOptions) { o.before = append(o.before, f) })
}

// Check is called after each scenario, with its run as it ended. An error fails the scenario.
func Check(f func(Played) error) CrashOption {
	return crashOption(func(o *crashOptions) { o.checks = append(o.checks, f) })
}

// MayEnd are the statuses that the run may end with; without it only that which it ends with when nothing cuts it off.
func MayEnd(statuses ...nelkap.Status) CrashOption {
	return crashOption(func(o *crashOptions) { o.mayEnd = append(o.mayEnd, statuses...) })
}

// StartedTwice plays two runs of the payload too, as an event that is emitted twice starts them: for what may happen once per order.
func StartedTwice() CrashOption {
	return crashOption(func(o *crashOptions) { o.startedTwice = true })
}

// Only plays the scenario of that name alone: it is in the message of a failure.
func Only(scenario string) CrashOption {
	return crashOption(func(o *crashOptions) { o.only = scenario })
}

// ScenariosMax is how many scenarios are played at most: 1,000 unless given. More of them fail the test.
func ScenariosMax(n int) CrashOption {
	if n < 1 {
		panic(fmt.Sprintf("nelkaptest: ScenariosMax can't be %d", n))
	}
	return crashOption(func(o *crashOptions) { o.scenariosMax = n })
}

// CrashReport is what was played.
type CrashReport struct {
	Scenarios int
	Cuts      int // scenarios that were cut off somewhere
	Bodies    int // how often bodies and checks of steps ran
}

// CrashEverywhere proves that a workflow is safe to run twice. It plays its run again and again, and cuts it off once in each: before every
// save, after every save but before the app hears of it, after the body or check of every step, after every mark, and before every answer,
// those of a run that closes among them (step.Undo, OnFailure, OnCancel); each with its Events and Posts in time, early, late and twice. Each scenario is played until its runs have ended.
//
// It fails the test, by t.Error, with the first scenario in which a mark was left twice, code outside steps started a run or emitted an
// event again, the run ended otherwise than undisturbed, or a Check failed. The message names the step and the cut, and how to play that
// scenario alone; no further scenario is played.
//
// A call that is cut off is as one whose process was killed: nothing that it saves or sends is taken any more. But Go can't end a body:
// it runs to its end, its context done, before the run is picked up, and deferred functions run. So what it can't show is two attempts
// that overlap. Where bodies run side by side, the order of the places, and so a scenario's number, is not always the same.
func CrashEverywhere[In, Out any](t testing.TB, wf *nelkap.Workflow[In, Out], payload In, opts ...CrashOption) CrashReport {
	t.Helper()
	c := &crash{o: crashOptions{scenariosMax: scenariosMax}}
	for _, each := range opts {
		each.crashOption(&c.o)
	}
	c.o.bodiesMax, c.o.report = scenarioBodiesMax, nil
	c.start = func(w *world) (*run, error) { return startIn(context.Background(), w, wf, payload) }
	if err := c.playAll(); err != nil {
		t.Errorf("nelkaptest: %v", err)
	}
	return c.report
}

// crash is one CrashEverywhere.
type crash struct {
	o      crashOptions
	start  func(*world) (*run, error)
	report CrashReport
}

// variant is how scenarios differ, beside where they are cut off.
type variant struct {
	name, story string
	timing      timing
	second      bool
}

func (c *crash) variants() []variant {
	all := []variant{{name: "in time"}}
	if len(c.o.outside) > 0 {
		all = append(all,
			variant{name: "early", timing: early, story: "; its events came before it waited for them"},
			variant{name: "late", timing: late, story: "; its events came as late as they could"},
			variant{name: "twice", timing: twice, story: "; each event came twice"})
	}
	if c.o.startedTwice {
		all = append(all, variant{name: "started twice", second: true, story: "; the run was started twice"})
	}
	return all
}

func (c *crash) playAll() error {
	if c.o.only != "" {
		return c.playOnly()
	}
	for _, v := range c.variants() {
		// What the undisturbed run comes to is what the others are held against.
		ending, _, err := c.play(v, 0, "")
		for cut, was := 1, true; was && err == nil; cut++ {
			_, was, err = c.play(v, cut, ending)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// playOnly plays the scenario that was asked for, after the undisturbed one that it is held against.
func (c *crash) playOnly() error {
	name, place, _ := strings.Cut(c.o.only, ", ")
	at, err := strconv.Atoi(strings.TrimPrefix(place, "cut "))
	for _, v := range c.variants() {
		if v.name != name || err != nil && place != "uncut" {
			continue
		}
		ending, was, err := c.play(v, 0, "")
		if err == nil && place != "uncut" {
			_, was, err = c.play(v, at, ending)
		}
		if err != nil || was || place == "uncut" {
			return err
		}
	}
	return fmt.Errorf("there is no scenario %q: its name is in the message of a failure", c.o.only)
}

// play plays one scenario, cut off at the at-th place, or nowhere where that is 0. cut is false where the run ended before that.
func (c *crash) play(v variant, at int, undisturbed nelkap.Status) (ending nelkap.Status, cut bool, err error) {
	for _, m := range c.o.marks {
		m.Clear()
	}
	for _, f := range c.o.before {
		f()
	}
	w := newWorld(&c.o.options, v.timing)
	story := "Nothing was cut off"
	left := at
	var first *run
	w.cutsHere = func(p *process, where string) bool {
		left--
		if left != 0 {
			return false
		}
		whose := ""
		if p.run.workflow != first.workflow {
			whose = fmt.Sprintf(" of %q", p.run.workflow)
		}
		story = fmt.Sprintf("Call %d%s was cut off %s, and the run was picked up", p.number, whose, where)
		cut = true
		return true
	}
	defer w.stop()
	roots, err := c.startAll(w, v)
	if err != nil {
		return "", false, err
	}
	first = roots[0]
	err = w.play(context.Background(), func() bool {
		return !slices.ContainsFunc(w.runs, func(r *run) bool { return r.played && !r.hasEnded() })
	})
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	c.report.Bodies += w.bodies
	if at > 0 && !cut && err == nil {
		return first.status, false, nil
	}
	c.report.Scenarios++
	if cut {
		c.report.Cuts++
	}
	if c.report.Scenarios > c.o.scenariosMax {
		return "", cut, fmt.Errorf("there are more than %d scenarios: raise ScenariosMax, or give a smaller payload", c.o.scenariosMax)
	}
	if errors.Is(err, errLimit) {
		return "", cut, err
	}
	if err == nil {
		err = c.judge(w, roots, v, undisturbed)
	}
	if err != nil {
		name := fmt.Sprintf("%s, cut %d", v.name, at)
		if at == 0 {
			name = v.name + ", uncut"
		}
		err = fmt.Errorf("%s%s. Then %w.\nPlay this alone with nelkaptest.Only(%q)", story, v.story, err, name)
	}
	return first.status, cut, err
}

func (c *crash) startAll(w *world, v variant) (roots []*run, err error) {
	times := 1
	if v.second {
		times = 2
	}
	for range times {
		r, err := c.start(w)
		if err != nil {
			return nil, err
		}
		roots = append(roots, r)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beginOutside()
	return roots, nil
}

// judge is what is wrong with a scenario. The world's mu is held.
func (c *crash) judge(w *world, roots []*run, v variant, undisturbed nelkap.Status) error {
	for _, m := range c.o.marks {
		if finding := m.twice(); finding != "" {
			return errors.New(finding)
		}
	}
	for _, key := range w.sentKeys {
		if s := w.sent[key]; s.times > 1 {
			return fmt.Errorf("%s %d times by code outside steps: place it in a step", s.what, s.times)
		}
	}
	for _, r := range roots {
		may := c.o.mayEnd
		if len(may) == 0 {
			may = []nelkap.Status{cmp.Or(undisturbed, r.status)}
		}
		if v.second { // which of two runs owns a key is their race's matter
			may = append(slices.Clone(may), nelkap.StatusSkipped)
		}
		if !slices.Contains(may, r.status) {
			return otherwise(r, may)
		}
		for _, check := range c.o.checks {
			if err := check(w.played(r)); err != nil {
				return fmt.Errorf("the check failed: %w", err)
			}
		}
	}
	return nil
}

func otherwise(r *run, may []nelkap.Status) error {
	why := ""
	if r.failure != nil {
		why = " (" + r.failure.Message + ")"
	}
	words := make([]string, len(may))
	for i, s := range may {
		words[i] = string(s)
	}
	return fmt.Errorf("the run ended as %s%s, not as %s: where it may, say so with MayEnd", r.status, why, strings.Join(words, " or "))
}
