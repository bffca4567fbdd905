package engine

import (
	"cmp"
	"encoding/json/v2"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nelkap/nelkap/internal/backoff"
	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
)

// registry knows the apps: where they are, what they serve, and whether they can be used now. The store holds where and what;
// whether is found out by calling. It takes no lock but its own, and calls nobody.
type registry struct {
	mu       sync.Mutex
	sources  map[string]*source // by URL
	apps     map[appID]*app
	starters map[starter][]target // made anew whenever an app changes
	writes   int64                // how often an app's record was stored, by this node or by another as far as it is known
	pauseMax time.Duration        // between looks at an app that can't be used; never changed
	filters  *filters
}

// source is an address at which an app is, or is expected.
type source struct {
	env      string
	url      string
	private  bool
	answered bool  // it has answered since this process started
	told     bool  // another node has stored since then that its app is there
	app      appID // once it has answered, or as the store has it
	failures int   // in a row
	reason   string
	lostAt   time.Time // since when looks find nobody there; zero: they do
	nextLook time.Time
	looking  bool
}

// app is one app as the registry knows it.
type app struct {
	record   store.App
	stored   store.App // record as the store is known to have it: until then nobody is told that the app is ready (W6)
	written  int64     // the registry's writes when the record was last stored: what the app said before counts no more
	declared bool      // the store has had its schedules as its record has them since this process started
	source   *source
	manifest wire.Manifest // with the workflows that are gone, but not yet forgotten
	unknown  map[string]int
	problems []string
}

// starter is what starts a workflow: an event's name, in its environment.
type starter struct{ env, event string }

// target is a workflow that starts.
type target struct {
	app      appID
	workflow wire.Workflow
	filters  []string // where an event starts it: one for each trigger; empty passes every event
}

func newRegistry(pauseMax time.Duration, f *filters) *registry {
	return &registry{pauseMax: pauseMax, filters: f, sources: map[string]*source{}, apps: map[appID]*app{}, starters: map[starter][]target{}}
}

// add expects an app at an address. private is the operator's word. Adding an address again changes nothing, but for the word.
func (r *registry) add(env, url string, private bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sources[url]; s != nil {
		s.private = s.private || private
		return
	}
	r.sources[url] = &source{env: env, url: url, private: private}
}

// load takes over an app as the store has it at the start.
func (r *registry) load(record store.App) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.adopt(record)
}

// hear takes over what another node has stored. What this node is about to store of it itself stands.
func (r *registry) hear(record store.App) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.apps[appID{record.Env, record.Name}]; a != nil && (a.stored.Version >= record.Version || !same(a.stored, a.record)) {
		return nil
	}
	return r.adoptTold(record)
}

// reload takes over an app as the store has it, whatever this node was about to store of it.
func (r *registry) reload(record store.App) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.apps[appID{record.Env, record.Name}]; a != nil && a.stored.Version > record.Version {
		return nil // it was read before what is known here
	}
	return r.adoptTold(record)
}

// adoptTold takes over what another node has stored, whose word for the app's address counts until it is found to be wrong. mu is held.
func (r *registry) adoptTold(record store.App) error {
	err := r.adopt(record)
	if err == nil {
		r.apps[appID{record.Env, record.Name}].source.told = true
	}
	return err
}

// adopt takes over an app's record. mu is held.
func (r *registry) adopt(record store.App) error {
	manifest, err := manifestOf(&record)
	if err != nil {
		return err
	}
	id := appID{record.Env, record.Name}
	a := r.apps[id]
	s := r.sources[record.URL]
	if record.URL == "" {
		s = removedSource(record.Env)
	} else if s == nil {
		s = &source{env: record.Env, url: record.URL, private: record.Private}
		r.sources[record.URL] = s
	}
	s.app = id
	if a == nil {
		a = &app{unknown: map[string]int{}}
	}
	r.stores(a, record)
	a.record, a.source, a.manifest = record, s, manifest
	r.apps[id] = a
	if !record.Private { // where an operator's address has taken over, the one before may come back
		r.leave(id)
	}
	r.rebuild()
	return nil
}

// stores notes how the store has an app's record. mu is held.
func (r *registry) stores(a *app, record store.App) {
	if a.stored.Version != record.Version {
		r.writes++
		a.written = r.writes
	}
	a.stored = record
}

// manifestOf reads a record's manifest; a record without one has an empty one.
func manifestOf(record *store.App) (m wire.Manifest, err error) {
	if len(record.Manifest) > 0 {
		if err := json.Unmarshal(record.Manifest, &m); err != nil {
			return m, fmt.Errorf("the stored manifest of app %q: %w", record.Name, err)
		}
	}
	return m, nil
}

// left forgets the addresses at which an app was before a sync.
func (r *registry) left(id appID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leave(id)
}

// leave forgets the addresses of an app that are to spare: each deployment may have brought one of its own. mu is held.
func (r *registry) leave(id appID) {
	maps.DeleteFunc(r.sources, func(_ string, s *source) bool { return s.app == id && r.spare(s) })
}

// spare tells whether an address may be forgotten: an app that was there is at another, and no operator has named it. mu is held.
func (r *registry) spare(s *source) bool {
	if s.private || s.app == (appID{}) {
		return false
	}
	for _, a := range r.apps {
		if a.source == s {
			return false
		}
	}
	return true
}

// lost notes that a look found nobody at an address. One that is to spare is forgotten after a while, where its app answers at another.
func (r *registry) lost(s *source, now time.Time, forgetAfter time.Duration) (forgotten bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.lostAt = or(s.lostAt, now)
	a := r.apps[s.app]
	if r.sources[s.url] != s || !r.spare(s) || a == nil || !a.source.answers() || now.Sub(s.lostAt) < forgetAfter {
		return false
	}
	delete(r.sources, s.url)
	return true
}

func (s *source) answers() bool { return s.answered && s.reason == "" && s.lostAt.IsZero() }

// ids lists the known apps.
func (r *registry) ids() []appID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Keys(r.apps), appID.compare)
}

// versions are the known apps with the versions of their records, in their order.
func (r *registry) versions() (list []peerApp) {
	for _, id := range r.ids() {
		list = append(list, peerApp{Env: id.env, Name: id.name, Version: r.version(id)})
	}
	return list
}

// version is that of an app's record as the store is known to have it; zero: it has none.
func (r *registry) version(id appID) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.apps[id]; a != nil {
		return a.stored.Version
	}
	return 0
}

// capacity is how many calls an app takes at once, and whether it can be called now.
func (r *registry) capacity(id appID, std int) (limit int, usable bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.apps[id]
	if a == nil {
		return 0, false
	}
	return or(a.record.Concurrency, std), a.source.reason == ""
}

// target is where an app is called.
func (r *registry) target(id appID) (call.Target, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.apps[id]
	if a == nil || a.source.removed() {
		return call.Target{}, fmt.Errorf("no app %q is known", id.name)
	}
	return call.Target{URL: a.source.url, Private: a.source.private}, nil
}

// answered ends an app's pauses: it was heard of. It tells whether there was one.
func (r *registry) answered(id appID) (paused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.apps[id]
	if a == nil || a.source.reason == "" || a.source.removed() {
		return false
	}
	a.source.reason, a.source.failures = "", 0
	return true
}

// played notes that the app has the workflow: it has just played it.
func (r *registry) played(id appID, workflow string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.apps[id]; a != nil {
		delete(a.unknown, workflow)
	}
}

// unknownTries counts the answers in a row that said that the app has no such workflow.
func (r *registry) unknownTries(id appID, workflow string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.apps[id]; a != nil {
		a.unknown[workflow]++
		return a.unknown[workflow]
	}
	return 1
}

// heard takes in a word of the app beside its answers to calls. A pause of its grows no longer (C14): a process that is heard of may
// be the one that is about to go, so the address is looked at each second, and not taken for mended. Another manifest is looked at (D1).
func (r *registry) heard(id appID, hash string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.apps[id]
	if a == nil {
		return
	}
	if a.source.reason != "" {
		a.source.failures = 0
		if soon := now.Add(time.Second); soon.Before(a.source.nextLook) {
			a.source.nextLook = soon
		}
		return
	}
	if hash != "" && hash != a.record.Hash && len(a.record.Gone) == 0 {
		a.source.nextLook = time.Time{}
	}
}

// failed notes that an address can't be used, and when it is looked at again: each second until the app first answers (D1), then
// with growing pauses up to a minute (C14). Calls that were under way together fail together: what fails during a pause is part of
// what began it, and does not make it longer. It tells whether the reason is news.
func (r *registry) failed(s *source, reason string, now time.Time, jitter float64) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.removed() || s.answered && s.reason != "" && now.Before(s.nextLook) {
		return false
	}
	news = s.reason != reason
	s.reason = reason
	s.failures++
	pause := time.Second
	if s.answered {
		pause = backoff.Grow(s.failures, time.Second, r.pauseMax, jitter)
	}
	s.nextLook = now.Add(min(pause, r.pauseMax))
	return news
}

// isPrivate tells whether an operator has named an address: it may be of a private network then.
func (r *registry) isPrivate(url string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sources[url]
	return s != nil && s.private
}

// sourceOf finds an app's address.
func (r *registry) sourceOf(id appID) *source {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.apps[id]; a != nil {
		return a.source
	}
	return nil
}

// asking is where an address is described, and how often apps were stored before it is.
func (r *registry) asking(s *source) (t call.Target, writes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return call.Target{URL: s.url, Private: s.private}, r.writes
}

// lookAgain has an address looked at once more, at once.
func (r *registry) lookAgain(s *source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.nextLook = time.Time{}
}

// due takes the addresses that are to be looked at now, and says how long there is nothing to do.
func (r *registry) due(now time.Time) (list []*source, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait = time.Second
	for _, s := range r.sources {
		switch {
		case s.looking:
		case !s.nextLook.After(now):
			s.looking = true
			list = append(list, s)
		default:
			wait = min(wait, s.nextLook.Sub(now))
		}
	}
	return list, wait
}

// stored is told that the store has an app's record, and its schedules.
func (r *registry) stored(record store.App) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.apps[appID{record.Env, record.Name}]; a != nil && a.stored.Version <= record.Version {
		r.stores(a, record)
		a.declared = true
	}
}

// why says why an app can't be used, or relied upon, now; empty if it can.
func (a *app) why() string {
	if a.source.reason == "" && !same(a.stored, a.record) {
		return "what it has just said of itself is not stored yet"
	}
	return a.source.reason
}

// rebuild makes the starters anew. mu is held.
func (r *registry) rebuild() {
	r.starters = map[starter][]target{}
	for id, a := range r.apps {
		for _, w := range a.manifest.Workflows {
			filters := map[string][]string{} // by event
			for _, t := range w.Triggers {
				event := t.Event
				if t.Webhook != "" {
					event = webhookEvent(t.Webhook)
				}
				if event != "" && r.broken(t) == "" {
					filters[event] = append(filters[event], t.If)
				}
			}
			for event, list := range filters {
				key := starter{id.env, event}
				r.starters[key] = append(r.starters[key], target{id, w, list})
			}
		}
	}
	for _, list := range r.starters {
		slices.SortFunc(list, func(a, b target) int {
			return cmp.Or(cmp.Compare(a.app.name, b.app.name), cmp.Compare(a.workflow.Name, b.workflow.Name))
		})
	}
}

func webhookEvent(name string) string { return "webhook." + name }

// startedBy lists the workflows that an event starts.
func (r *registry) startedBy(env, event string) []target {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.starters[starter{env, event}]
}

// find finds a workflow by its name, in one app or in all.
func (r *registry) find(env, appName, workflow string) ([]target, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.apps[appID{env, appName}]; appName != "" && (a == nil || a.source.removed()) {
		return nil, fmt.Errorf("no app %q is known here: %w", appName, ErrUnknownWorkflow)
	}
	var list []target
	for id, a := range r.apps {
		if id.env != env || (appName != "" && id.name != appName) {
			continue
		}
		for _, w := range a.manifest.Workflows {
			if w.Name == workflow {
				list = append(list, target{app: id, workflow: w})
			}
		}
	}
	slices.SortFunc(list, func(a, b target) int { return cmp.Compare(a.app.name, b.app.name) })
	return list, nil
}
