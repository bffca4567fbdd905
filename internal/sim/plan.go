package sim

import (
	"fmt"
	"slices"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
)

// plan is what a seed decides beforehand: what there is, what is asked for, and which faults come.
type plan struct {
	workflows   []*workflowPlan
	apps        int
	nodes       int // at work at once
	concurrency int
	lease       time.Duration
	jitter      float64
	runsFor     time.Duration // how long ended runs are kept; zero: for ever
	sweepEvery  time.Duration
	forgetAfter time.Duration // how long what an app declares no more is kept
	clients     [][]operation
	faults      []faultPlan
	pauses      []pausePlan

	// How many of a thousand messages, reads and commits meet a fault.
	messageOdds, readOdds, commitOdds int
	staleOdds                         int // likewise of reads that are old when they arrive
}

// workflowPlan is a workflow: its steps in each version of its app's code.
type workflowPlan struct {
	app, name      string
	event, webhook string
	retries        int
	lease, timeout time.Duration
	cancelOn       string // an event that cancels its runs
	scheduled      bool   // each full minute starts it
	everyOther     bool   // only each second one
	catchUp        nelkap.CatchUpRule
	schedules      []schedulePlan // of its versions, in the place of the one of all

	// Of endings; see ending.go.
	onFailure, onCancel []*stepPlan // of handlers; nil: it has none
	restarts            int         // so often it begins again
	once                bool        // one run alone does its work
	logs                bool        // its code writes lines
	straysInClosing     bool        // its code throws when a closing plays it
	versions            [][]*stepPlan
}

func (f *workflowPlan) stepsOf(version int) []*stepPlan {
	return f.versions[min(version, len(f.versions)-1)]
}

// stepPlan is a step, and the code before it.
type stepPlan struct {
	name       string
	was        string // its name before it was renamed; empty: the code does not say
	takes      time.Duration
	throws     int           // its first attempts
	fails      int           // from which chapter on it throws; zero: in all
	retries    int           // -1: the workflow's
	retryAfter time.Duration // 0: the server's pause
	timeout    time.Duration
	heeds      bool // its body ends when its context does
	fatal      bool // its failure ends the run
	sends      int
	emits      string        // an event, or
	runs       *workflowPlan // a workflow
	codeTakes  time.Duration
	codeThrows int           // in so many attempts the code before the step throws
	codeNever  bool          // so that the run fails
	codeAfter  time.Duration // it asks for this pause; 0: the server's
	kills      int           // so many of its bodies kill their process

	// Of steps that are no plain body; see wait.go.
	kind        string // empty: it has a body
	once        bool   // its body runs at most once
	checked     bool   // a check looks for what its body left
	leaves      bool   // its body leaves it also where it throws
	lasts       time.Duration
	event, tag  string
	filtered    bool // tag is asked for by a filter, not by a match
	sinceWait   bool
	invokes     *workflowPlan
	key         string
	untilFailed bool
	branches    [][]*stepPlan
	gap         time.Duration // between making a callback and waiting for it
}

// operation is what a client does, some time after the one before.
type operation struct {
	after    time.Duration
	kind     string
	workflow *workflowPlan
	name     string // of an event or a webhook
	key      string // of a run or an event
	target   int    // which of the runs that it knows
	wait     time.Duration
	delay    time.Duration // of a start
	later    time.Duration // when an event is due; zero: at once
	request  string        // the Idempotency-Key of a client without an SDK
	again    bool          // which sends it once more when it was answered
	replays  bool          // for a replay
	tag      string        // of an event; of a replay from a step, where it has a payload of its own
	force    bool          // of a cancellation
	keyFor   time.Duration // how long key is held; zero: for ever
	// Of a replay: its idempotency keys are not as they would be, or its waits take only new events.
	otherKeys, newEvents bool
	from                 int // of a replay: which of the workflow's steps it begins at, from 1; zero: it is whole
}

// faultPlan is a fault at a time.
type faultPlan struct {
	at     time.Duration
	kind   string
	lasts  time.Duration
	away   time.Duration
	silent bool
	app    int
}

// The kinds of planned faults.
const (
	nodeCrashes  = "node crashes"
	nodePauses   = "node pauses longer than a lease"
	nodeTaken    = "node pauses, and another takes over"
	nodeStops    = "node stops gracefully"
	nodesClock   = "node's clock steps"
	appCrashes   = "app crashes"
	appStops     = "app stops gracefully"
	appDeploys   = "app is deployed anew"
	appPauses    = "app pauses"
	appParted    = "app is cut off from the server"
	storeIsFull  = "store can't write for a while"
	readersKinds = "read: no effect"
)

var plannedFaults = []string{nodeCrashes, nodePauses, nodeTaken, nodeStops, nodesClock, appCrashes, appStops, appDeploys, appPauses, appParted, storeIsFull}

// newPlan draws a plan of a form.
func newPlan(c chance, form Form) *plan {
	d := c.dice("plan", 0)
	p := &plan{
		apps: 1 + d.pick(6, 4), concurrency: []int{1, 2, 5, 100}[d.pick(1, 1, 2, 3)], lease: drawLease(d), jitter: []float64{0, 0.5, 0.999}[d.below(3)],
	}
	noise := [][3]int{{0, 0, 0}, {15, 3, 5}, {60, 10, 20}, {200, 30, 60}}[d.pick(2, 3, 4, 2)]
	p.messageOdds, p.readOdds, p.commitOdds = noise[0], noise[1], noise[2]
	p.drawNodes(c, form)
	for i := range 2 + d.below(4) {
		p.workflows = append(p.workflows, p.newWorkflow(c.dice("workflow", i), i))
	}
	for i, f := range p.workflows {
		p.addSends(c.dice("sends", i), i, f)
		if form != FormPlain {
			p.addWaits(c.dice("waits", i), i, f)
		}
		if form.Whole() {
			p.addEndings(c.dice("endings", i), i, f)
		}
		if form == FormSwept {
			f.addSchedule(c.dice("schedules", i))
		}
		if form == FormBroad {
			p.broaden(c.dice("broad workflow", i), f)
		}
		if form == FormChanging {
			f.deadly(c.dice("deadly", i))
		}
		f.deploy(c.dice("deploys", i))
		if form == FormChanging {
			f.rename(c.dice("renames", i))
			f.reschedule(c.dice("reschedules", i))
		}
	}
	span := time.Duration(0)
	for i := range 1 + d.below(2) {
		operations := p.newOperations(c.dice("client", i), 5+d.below(8))
		if form != FormPlain {
			vary(c.dice("varied client", i), operations)
		}
		if form.Whole() {
			varyEnds(c.dice("ending client", i), operations)
		}
		if form == FormSwept {
			stretch(c.dice("slow client", i), operations)
		}
		if form == FormBroad {
			broadenClient(c.dice("broad client", i), operations)
		}
		if form == FormChanging {
			changeClient(c.dice("changing client", i), operations)
		}
		if (form == FormBroad || form == FormChanging) && p.scheduled() {
			stretch(c.dice("slow client", i), operations)
		}
		p.clients = append(p.clients, operations)
		sum := time.Duration(0)
		for _, o := range operations {
			sum += o.after
		}
		span = max(span, sum)
	}
	p.drawFaults(c, form, []int{0, 1, 2, 3, 5}[d.pick(2, 3, 3, 2, 1)], span)
	return p
}

// drawFaults draws what goes wrong while clients ask for things: n faults as in every form, and what a form has of its own.
func (p *plan) drawFaults(c chance, form Form, n int, span time.Duration) {
	for i := range n {
		p.faults = append(p.faults, p.newFault(c.dice("fault", i), span))
	}
	if d := c.dice("outage", 0); (form == FormSwept || (form == FormBroad || form == FormChanging) && p.scheduled()) && d.odds(300) { // longer than the time between two ticks
		p.faults = append(p.faults, faultPlan{at: d.between(0, span), kind: storeIsFull, lasts: d.between(time.Minute, 4*time.Minute)})
	}
	if d := c.dice("paused schedules", 0); form == FormBroad && p.scheduled() && d.odds(500) {
		p.pauses = append(p.pauses, pausePlan{at: d.between(0, span), lasts: d.between(time.Second, 4*time.Minute)})
	}
	if form == FormChanging {
		p.deployOften(c.dice("more deploys", 0), span)
	}
	if form == FormLocked {
		p.lockRuns(c.dice("locks", 0), span)
	}
	if form == FormNodes && c.dice("nodes alone", 0).odds(250) {
		p.strikeNodesAlone(c.dice("nodes alone", 1))
	}
}

// drawNodes draws how many nodes are at work, what they drop, and how old their reads are.
func (p *plan) drawNodes(c chance, form Form) {
	p.nodes = 1
	switch form {
	case FormNodes:
		p.nodes = 2 + c.dice("nodes", 0).below(2)
	case FormStale:
		d := c.dice("stale reads", 0)
		p.nodes, p.staleOdds = 1+d.below(2), []int{20, 100, 300}[d.below(3)]
	case FormBroad:
		p.nodes = 1 + c.dice("broad nodes", 0).below(2)
	case FormChanging:
		d := c.dice("changing nodes", 0)
		p.nodes, p.forgetAfter = 1+d.below(2), d.between(10*time.Second, 2*time.Minute)
	case FormLocked:
		p.nodes = 1 + c.dice("locked nodes", 0).below(3)
	case FormSwept:
		d := c.dice("sweeps", 0)
		p.nodes, p.runsFor, p.sweepEvery = 1+d.below(3), d.between(runsForMin, 2*runsForMin), d.between(time.Second, 20*time.Second)
	case FormPlain, FormWaits, FormWhole:
	}
}

// strikeNodesAlone leaves of the faults those that no app that lives may notice by anything running again: nodes that die or stop.
func (p *plan) strikeNodesAlone(d *dice) {
	p.messageOdds, p.readOdds, p.commitOdds = 0, 0, 0
	for i := range p.faults {
		p.faults[i].kind = []string{nodeCrashes, nodeStops}[d.pick(3, 1)]
	}
}

// nodesAlone tells whether nothing goes wrong but that nodes die or stop.
func (p *plan) nodesAlone() bool {
	others := func(f faultPlan) bool { return f.kind != nodeCrashes && f.kind != nodeStops }
	return p.nodes > 1 && !slices.ContainsFunc(p.faults, others) && p.messageOdds+p.readOdds+p.commitOdds == 0 && !p.kills()
}

// taken tells whether a node that is alone at work is taken for dead, and wakes beside its successor.
func (p *plan) taken() bool {
	return p.nodes == 1 && slices.ContainsFunc(p.faults, func(f faultPlan) bool { return f.kind == nodeTaken })
}

// calm tells whether nothing goes wrong.
func (p *plan) calm() bool {
	return len(p.faults) == 0 && p.messageOdds+p.readOdds+p.commitOdds+p.staleOdds == 0 && !p.kills()
}

func drawLease(d *dice) time.Duration {
	return []time.Duration{5 * time.Second, 7 * time.Second, 30 * time.Second, 5 * time.Minute}[d.pick(4, 2, 2, 1)]
}

func (p *plan) newWorkflow(d *dice, i int) *workflowPlan {
	f := &workflowPlan{app: appName(d.below(p.apps)), name: fmt.Sprintf("workflow %d", i), retries: d.below(4), lease: drawLease(d)}
	switch d.pick(4, 4, 1) {
	case 1:
		f.event = eventName(d.below(2))
	case 2:
		f.webhook = "hook"
	}
	if d.odds(120) {
		f.timeout = d.between(2*time.Second, 40*time.Second).Truncate(time.Millisecond)
	}
	var steps []*stepPlan
	for s := range d.pick(1, 4, 4, 3, 2) {
		steps = append(steps, newStep(d, fmt.Sprintf("step %d", s)))
	}
	if len(steps) > 1 && d.odds(150) {
		steps[1].name = steps[0].name // told apart by their number
	}
	f.versions = [][]*stepPlan{steps}
	return f
}

func newStep(d *dice, name string) *stepPlan {
	s := &stepPlan{name: name, retries: -1, heeds: d.odds(700), fatal: d.odds(500)}
	switch d.pick(10, 5, 3, 1) {
	case 0:
		s.takes = d.between(10*time.Microsecond, 5*time.Millisecond)
	case 1:
		s.takes = d.between(5*time.Millisecond, 500*time.Millisecond)
	case 2:
		s.takes = d.between(500*time.Millisecond, 6*time.Second)
	case 3:
		s.takes = d.between(5*time.Second, 40*time.Second)
	}
	if d.odds(250) {
		s.throws = 1 + d.below(2)
		s.retries = d.below(4)
	}
	if d.odds(150) {
		s.retryAfter = d.between(50*time.Millisecond, 6*time.Second).Truncate(time.Millisecond)
	}
	if d.odds(100) {
		s.timeout = d.between(300*time.Millisecond, 8*time.Second)
	}
	if d.odds(200) {
		s.codeTakes = d.between(100*time.Microsecond, 2*time.Second)
	}
	if d.odds(80) {
		s.codeThrows, s.codeNever = 1+d.below(2), d.odds(200)
	}
	return s
}

// addSends lets steps send to workflows with a higher number, so that sending comes to an end.
func (p *plan) addSends(d *dice, i int, f *workflowPlan) {
	if i == len(p.workflows)-1 {
		return
	}
	for _, s := range f.versions[0] {
		if !d.odds(200) {
			continue
		}
		s.sends = 1 + d.below(2)
		to := p.workflows[i+1+d.below(len(p.workflows)-i-1)]
		if to.event == "" || p.startsBack(to.event, i) {
			s.runs = to
		} else {
			s.emits = to.event
		}
	}
}

// startsBack tells whether an event starts one of the first workflows up to i.
func (p *plan) startsBack(event string, i int) bool {
	for _, f := range p.workflows[:i+1] {
		if f.event == event {
			return true
		}
	}
	return false
}

// deploy makes the workflow's later versions: a step gets another name, is added, or is dropped.
func (f *workflowPlan) deploy(d *dice) {
	for v := 1; v <= 2; v++ {
		steps := append([]*stepPlan(nil), f.versions[v-1]...)
		at := d.below(len(steps) + 1)
		switch {
		case d.odds(300):
		case d.odds(400) || len(steps) == 0:
			added := newStep(d, fmt.Sprintf("added %d", v))
			steps = append(steps[:at:at], append([]*stepPlan{added}, steps[at:]...)...)
		case d.odds(500):
			renamed := *steps[at%len(steps)]
			renamed.name += fmt.Sprintf(" renamed %d", v)
			steps[at%len(steps)] = &renamed
		default:
			at %= len(steps)
			steps = append(steps[:at:at], steps[at+1:]...)
		}
		f.versions = append(f.versions, steps)
	}
}

func (p *plan) newOperations(d *dice, n int) []operation {
	var list []operation
	for range n {
		o := operation{after: d.between(time.Millisecond, 300*time.Millisecond), target: d.below(8)}
		if d.odds(300) {
			o.after = d.between(300*time.Millisecond, 6*time.Second)
		}
		o.workflow = p.workflows[d.below(len(p.workflows))]
		switch d.pick(9, 5, 1, 2, 1, 2, 2, 1) {
		case 0:
			o.kind = opStart
			if d.odds(300) {
				o.key = fmt.Sprintf("key %d", d.below(2))
			}
		case 1:
			o.kind, o.name = opEmit, eventName(d.below(2))
			if d.odds(400) {
				o.key = fmt.Sprintf("id %d", d.below(2))
			}
		case 2:
			o.kind, o.name = opHook, "hook"
		case 3:
			o.kind = opCancel
		case 4:
			o.kind = opReplay
		case 5:
			o.kind = opRead
		case 6:
			o.kind, o.wait = opWait, d.between(10*time.Millisecond, 20*time.Second)
		case 7:
			o.kind = opSteps
		}
		list = append(list, o)
	}
	return list
}

// runsForMin is the least that runs are kept for: a client that has had no answer sends its request again, with the same id, for a minute, and
// what it has sent may come some seconds later.
const runsForMin = 80 * time.Second

// stretch lets a client wait at times, so that what it knows is dropped meanwhile.
func stretch(d *dice, operations []operation) {
	for i := range operations {
		if d.odds(400) {
			operations[i].after += d.between(time.Second, runsForMin)
		}
	}
}

func (p *plan) newFault(d *dice, span time.Duration) faultPlan {
	f := faultPlan{
		at: d.between(0, span+3*time.Second), kind: plannedFaults[d.below(len(plannedFaults))], silent: d.odds(250), app: d.below(p.apps),
		lasts: d.between(10*time.Millisecond, 3*time.Second), away: d.between(time.Millisecond, 4*time.Second),
	}
	if d.odds(400) {
		f.lasts = d.between(3*time.Second, 45*time.Second)
	}
	return f
}

func appName(i int) string   { return fmt.Sprintf("app%c", 'A'+i) }
func eventName(i int) string { return fmt.Sprintf("event %d", i) }
