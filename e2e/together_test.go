package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nelkap/nelkap/e2e/plan"
	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
)

const (
	// atOnce is how many clients ask each node for the same thing at once.
	atOnce = 8
	// secondLook is when whatever is done twice would have been: every node has looked at everything again.
	secondLook = 5 * time.Second
	// rollings is how often each node is replaced.
	rollings = 2
	// fewCalls is what --concurrency allows, and manyRuns the load that wants more.
	fewCalls, manyRuns = 3, 30
	// sides is how many steps of a run are side by side.
	sides = 20
)

// Many ask all nodes for the same things at the same moment; each is there once (K1, K6, W7, W8).
func TestThreeNodesDoOnceWhatIsToBeDoneOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, newPostgres(t), clusterSpec{apps: languages})
	small := plan.Plan{Steps: []plan.Step{{Name: "small"}}}
	for _, language := range languages {
		scheduled := client.PutSchedule{Workflow: plan.Planned, App: language, Schedule: "* * * * *", Payload: asJSON(t, small)}
		if _, err := c.api.PutSchedule(t.Context(), language, scheduled); err != nil {
			t.Fatal(err)
		}
	}
	tick := c.nextTick()
	for _, language := range languages {
		c.onceByEvent(language, small)
		c.onceByKey(language, small)
		c.onceByWait(language)
		c.onceByPost(language)
	}
	for _, language := range languages {
		c.completed(c.tickOf(language, tick).ID, goOnWithin)
	}
	pass(t.Context(), secondLook)
	for _, language := range languages {
		c.tickOf(language, tick)
	}
	for _, mark := range c.marks() {
		if mark.Kind == plan.MarkBody && len(c.find(plan.MarkBody, mark.Run, mark.Step)) != 1 {
			t.Errorf("the body of step %q of %s ran again", mark.Step, mark.Run)
		}
	}
}

// onceByEvent: an event that comes at every node many times starts its workflow once.
func (c *cluster) onceByEvent(language string, small plan.Plan) {
	c.t.Helper()
	event := client.Event{Event: plan.Event(language), ID: "once", Payload: asJSON(c.t, small)}
	c.atEach(atOnce, func(api *client.Client) error { _, err := api.Emit(c.t.Context(), event); return err })
	started := func(run apitype.Run) bool { return run.App == language && run.Workflow == plan.Heard }
	eventually(c.t, within, "the event's run", func() bool { return len(c.runsOf(started)) > 0 })
	for _, run := range c.runsOf(started) {
		c.completed(run.ID, within)
	}
	if n := len(c.runsOf(started)); n != 1 {
		c.t.Errorf("the event has started %d runs", n)
	}
}

// onceByKey: a key that many ask for has one run.
func (c *cluster) onceByKey(language string, small plan.Plan) {
	c.t.Helper()
	var mu sync.Mutex
	owners, created := map[string]int{}, 0
	c.atEach(atOnce, func(api *client.Client) error {
		run, err := api.StartRun(c.t.Context(), client.StartRun{Workflow: plan.Planned, App: language, Key: "once", Payload: asJSON(c.t, small)})
		mu.Lock()
		defer mu.Unlock()
		owners[run.ID]++
		if run.Created {
			created++
		}
		return err
	})
	if len(owners) != 1 || created != 1 {
		c.t.Errorf("the key's runs are %v, and %d were made", owners, created)
	}
	for id := range owners {
		c.completed(id, within)
	}
}

// onceByWait: an event that comes at every node ends one wait of a run, and not its next.
func (c *cluster) onceByWait(language string) {
	c.t.Helper()
	name := "twice." + language
	id := c.run(language, plan.Plan{Steps: []plan.Step{{Name: "one"}, {Name: "first", WaitsFor: name}, {Name: "second", WaitsFor: name}}})
	c.standsAt(id)
	emit := func(eventID string) {
		c.atEach(atOnce, func(api *client.Client) error {
			_, err := api.Emit(c.t.Context(), client.Event{Event: name, ID: eventID})
			return err
		})
	}
	emit("first")
	eventually(c.t, within, "the first wait to end", func() bool { return len(c.steps(id)) == 2 })
	pass(c.t.Context(), secondLook)
	if steps := c.steps(id); len(steps) != 2 {
		c.t.Errorf("one event has ended both waits: %s", asJSON(c.t, steps))
	}
	emit("second")
	c.completed(id, within)
}

// onceByPost: an address that many post to at every node takes one of their answers, and says so to that one alone.
func (c *cluster) onceByPost(language string) {
	c.t.Helper()
	id := c.run(language, plan.Plan{Steps: []plan.Step{{Name: "one"}, {Name: "asked", Calls: true}}})
	made, err := url.Parse(c.mark(plan.MarkAddress, id, "asked", 1).URL)
	if err != nil {
		c.t.Fatal(err)
	}
	var mu sync.Mutex
	answers, taken := map[int]int{}, ""
	posts := 0
	c.atEachNode(atOnce, func(n *clusterNode) error {
		mu.Lock()
		posts++
		payload := strconv.Itoa(posts)
		mu.Unlock()
		status, err := c.post("http://"+n.addr+made.Path, payload)
		mu.Lock()
		defer mu.Unlock()
		if answers[status]++; status == http.StatusOK {
			taken = payload
		}
		return err
	})
	if answers[http.StatusOK] != 1 || answers[http.StatusGone] != posts-1 {
		c.t.Errorf("the address was answered with %v", answers)
	}
	c.completed(id, within)
	steps := c.steps(id)
	if last := steps[len(steps)-1]; string(last.Output) != `{"payload":`+taken+`}` {
		c.t.Errorf("%s was taken, and the run was given %s", taken, last.Output)
	}
}

// post posts JSON as who has nothing but the address.
func (c *cluster) post(address, payload string) (status int, err error) {
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, address, strings.NewReader(payload))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := direct.Do(request)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

// Twenty steps end at once, and then twenty sleeps, whose saves and ends are the nodes' in turn: whichever is the last wakes the code. Beside
// them a run fails with a text that Postgres's own type for it can't hold, and no other does.
func TestThreeNodesBringSidesTogether(t *testing.T) {
	t.Parallel()
	c := newCluster(t, newPostgres(t), clusterSpec{apps: languages})
	const poison = "a\x00b"
	for _, language := range languages {
		var bodies, naps []plan.Step
		want := map[string]int{"after": 1}
		for i := range sides {
			bodies = append(bodies, plan.Step{Name: fmt.Sprintf("side %d", i)})
			naps = append(naps, plan.Step{Name: fmt.Sprintf("nap %d", i), SleepsMs: 500})
			want[bodies[i].Name] = 1
		}
		sided := plan.Plan{Steps: []plan.Step{{Beside: bodies}, {Beside: naps}, {Name: "after"}}}
		failing := c.run(language, plan.Plan{Steps: []plan.Step{{Name: "fails", Fails: poison}}})
		var ids []string
		for range manyRuns / 3 {
			ids = append(ids, c.run(language, sided))
		}
		for _, id := range ids {
			c.completed(id, 2*within)
			c.bodies(id, want)
		}
		if run := c.end(failing, within); run.Status != "failed" || !strings.Contains(run.Error.Message, poison) {
			t.Errorf("the run with the odd text is %s: %+v", run.Status, run.Error)
		}
	}
}

// K1: an app never has more calls than it takes, however many nodes there are, also while one dies and another comes.
func TestThreeNodesTogetherKeepAnAppsConcurrency(t *testing.T) {
	t.Parallel()
	c := newCluster(t, newPostgres(t), clusterSpec{apps: languages, flags: []string{"--concurrency", fmt.Sprint(fewCalls)}})
	c.open("open") // a body that has a gate leaves a mark at its end
	steps := []plan.Step{{Name: "first", TakesMs: 800, Gate: "open"}, {Name: "second", TakesMs: 800, Gate: "open"}}
	var ids []string
	for range manyRuns {
		for _, language := range languages {
			ids = append(ids, c.run(language, plan.Plan{Steps: steps}))
		}
	}
	eventually(t, within, "the load to be under way", func() bool { return len(c.marks()) > manyRuns })
	c.nodes[1].kill()
	eventually(t, 2*within, "half of the load", func() bool { return len(c.marks()) > len(ids)*len(steps) })
	c.nodes[1].start()
	for _, id := range ids {
		c.completed(id, 2*time.Minute)
		c.bodies(id, map[string]int{"first": 1, "second": 1})
	}
	for _, language := range languages {
		most := c.mostAtOnce(c.apps[language].pid())
		t.Logf("at most %d bodies ran at once in the %s app", most, language)
		if most != fewCalls {
			t.Errorf("%d bodies ran at once in the %s app, want %d", most, language, fewCalls)
		}
	}
}

// mostAtOnce is how many bodies that leave marks at their ends ran at the same moment in a process. The marks' own order is that of what
// happened: each is written in one go.
func (w *world) mostAtOnce(pid int) (most int) {
	running := map[string]bool{}
	for _, m := range w.marks() {
		if m.PID != pid {
			continue
		}
		if m.Kind == plan.MarkBody {
			running[m.ID] = true
		} else {
			delete(running, m.ID)
		}
		most = max(most, len(running))
	}
	return most
}

// A rolling restart: each node is stopped gracefully and comes again, under load. No run fails, and no body runs twice.
func TestNodesAreReplacedOneByOneUnderLoad(t *testing.T) {
	t.Parallel()
	c := newCluster(t, newPostgres(t), clusterSpec{apps: languages})
	a, stop := c.loadAll()
	begun := time.Now()
	for range rollings {
		for _, n := range c.nodes {
			n.signal(syscall.SIGTERM)
			if code := n.exit(); code != 0 {
				t.Errorf("%s exited with %d:\n%s", n.name, code, n.lastWords())
			}
			n.start()
			c.settled()
		}
	}
	took := time.Since(begun)
	stop()
	all := c.judgeLoad(a)
	c.judgeMarks(func(plan.Mark, plan.Mark) string { return "its app lives, and nodes were stopped gracefully" })
	t.Logf("%d nodes replaced in %v; %s", rollings*nodeCount, took.Round(time.Second), all)
}
