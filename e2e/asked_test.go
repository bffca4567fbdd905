package e2e

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/nelkap/nelkap/e2e/plan"
	"github.com/nelkap/nelkap/internal/apitype"
)

const (
	// openMax is how many acknowledged runs of an app may be under way before clients start no more.
	openMax = 16
	// recentMax is how many runs clients choose among for what they do to them.
	recentMax = 40
)

// asked is what clients have asked for, and what they know of it.
type asked struct {
	mu        sync.Mutex
	acked     map[string]bool            // runs that were acknowledged
	ids       map[string]bool            // runs that were asked for, and events as app/id, whatever became of them
	events    map[string]bool            // events that were acknowledged, as app/id
	hooks     map[string]bool            // webhooks that may have arrived; true: acknowledged
	steps     map[string][]string        // the names of each acknowledged run's steps
	opened    map[string]map[string]bool // by app: acknowledged, and not known to have ended
	recent    []string                   // acknowledged, newest last
	endedRuns []string                   // known to have ended, newest last
	endings   int                        // acknowledged runs that are known to have ended
}

func newAsked() *asked {
	a := &asked{
		acked: map[string]bool{}, ids: map[string]bool{}, events: map[string]bool{}, hooks: map[string]bool{},
		steps: map[string][]string{}, opened: map[string]map[string]bool{},
	}
	for _, language := range languages {
		a.opened[language] = map[string]bool{}
	}
	return a
}

func (a *asked) proposed(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ids[id] = true
}

func (a *asked) acknowledged(app string, run apitype.Run) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.acked[run.ID] {
		return
	}
	a.acked[run.ID] = true
	a.steps[run.ID] = namesOf(run)
	a.recent = lastOf(append(a.recent, run.ID))
	if run.EndedAt == nil {
		a.opened[app][run.ID] = true
	}
}

func (a *asked) emitted(app, eventID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events[app+"/"+eventID] = true
}

func (a *asked) hooked(name string, acked bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hooks[name] = acked
}

func (a *asked) ended(run string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, open := range a.opened {
		if open[run] {
			delete(open, run)
			a.endings++
			a.endedRuns = lastOf(append(a.endedRuns, run))
		}
	}
}

// over is how many of the acknowledged runs are known to have ended.
func (a *asked) over() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.endings
}

func (a *asked) stepsOf(run string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.steps[run]
}

func (a *asked) open(app string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.opened[app])
}

// some, someOpen and someEnded choose a run; empty where there is none.
func (a *asked) some(random *rand.Rand) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return choose(a.recent, random)
}

func (a *asked) someOpen(app string, random *rand.Rand) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return choose(slices.Sorted(maps.Keys(a.opened[app])), random)
}

func (a *asked) someEnded(random *rand.Rand) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return choose(a.endedRuns, random)
}

func choose(list []string, random *rand.Rand) string {
	if len(list) == 0 {
		return ""
	}
	return list[random.IntN(len(list))]
}

func lastOf(list []string) []string { return list[max(0, len(list)-recentMax):] }

// planOf is the plan of a run: its payload, or what a webhook brought.
func planOf(run apitype.Run) (p plan.Plan) {
	var hook struct {
		plan.Plan
		JSON *plan.Plan `json:"json"`
	}
	if json.Unmarshal(run.Payload, &hook) != nil {
		return p // a run of another kind has no steps
	}
	if hook.JSON != nil {
		return *hook.JSON
	}
	return hook.Plan
}

func namesOf(run apitype.Run) (names []string) {
	for _, s := range planOf(run).Steps {
		names = append(names, s.Name)
	}
	return names
}
