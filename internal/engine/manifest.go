package engine

import (
	"cmp"
	"encoding/json/v2"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nelkap/nelkap/internal/schedule"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
)

// described takes over what an app said of itself; sync forgets at once what the app no longer has (D1). It gives the record as it is to be,
// at the version that the store is known to have, or nil if nothing is to be stored. The store may have the record so already: then it is its
// schedules that are to be compared. errOutdated; another error says which two apps have one name.
func (r *registry) described(s *source, m *wire.Manifest, o describeOptions) (record *store.App, isStored bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.sources[s.url]; known != nil {
		s = known
	} else if o.sync {
		r.sources[s.url] = s
	} else {
		return nil, false, nil // it was forgotten meanwhile
	}
	s.looking, s.failures, s.lostAt = false, 0, time.Time{}
	id := appID{s.env, m.App}
	a := r.apps[id]
	if a == nil {
		a = &app{source: s, unknown: map[string]int{}, record: store.App{Env: s.env, Name: m.App, Concurrency: o.concurrency}}
		r.apps[id] = a
	}
	if a.written > o.writes {
		return nil, false, errOutdated
	}
	if err := a.conflict(s, m, o); err != nil {
		return nil, false, err
	}
	s.answered, s.app, s.reason, s.nextLook = true, id, "", o.now.Add(o.every)
	if !o.sync && a.source != s && a.settled() {
		return nil, false, nil // another address of the same app: the one in use stays
	}
	a.source = s
	a.merge(m, o)
	a.problems = r.problems(a.manifest)
	a.record.URL, a.record.Private, a.record.SeenAt = s.url, s.private, o.now
	if o.concurrency > 0 {
		a.record.Concurrency = o.concurrency
	}
	r.rebuild()
	isStored = same(a.stored, a.record)
	if isStored && a.declared {
		return nil, true, nil
	}
	copied := a.record
	copied.Version = a.stored.Version
	return &copied, isStored, nil
}

// describeOptions say how a look at an app is taken.
type describeOptions struct {
	writes      int64 // the registry's before the app was asked
	now         time.Time
	every       time.Duration
	forgetAfter time.Duration
	sync        bool // somebody asked for it: what is gone is gone, and the address is the one that counts
	concurrency int
}

// settled tells whether an app answers at its address, as far as is known. Another app that does counts for nothing.
func (a *app) settled() bool {
	return (a.source.answered || a.source.told) && a.source.reason == "" && a.source.app == appID{a.record.Env, a.record.Name}
}

// isRival tells whether an app answers at an address that another app has the name of. mu is held.
func (r *registry) isRival(s *source) bool {
	a := r.apps[s.app]
	return a != nil && a.source != s && !a.source.removed() && s.reason != "" && s.lostAt.IsZero()
}

// conflict tells whether another address serves another manifest under the same name.
func (a *app) conflict(s *source, m *wire.Manifest, o describeOptions) error {
	if o.sync || a.source == s || !a.settled() || a.record.Hash == m.Hash || a.record.Hash == "" {
		return nil
	}
	return fmt.Errorf("two apps are named %q: %s and %s serve different workflows; give one of them another name", m.App, ShownURL(a.source.url), ShownURL(s.url))
}

// merge replaces the manifest, and keeps workflows that it lacks for a while: old and new replicas may answer in turn (D1).
func (a *app) merge(m *wire.Manifest, o describeOptions) {
	gone := map[string]time.Time{}
	merged := *m
	merged.Workflows = slices.Clone(m.Workflows)
	for _, old := range a.manifest.Workflows {
		if slices.ContainsFunc(m.Workflows, func(w wire.Workflow) bool { return w.Name == old.Name }) {
			continue
		}
		if since, kept := a.keeps(old.Name, o); kept {
			gone[old.Name] = since
			merged.Workflows = append(merged.Workflows, old)
		}
	}
	a.keepTriggers(merged.Workflows, gone, o)
	for _, w := range m.Workflows {
		if !slices.ContainsFunc(a.manifest.Workflows, func(old wire.Workflow) bool { return w.Name == old.Name }) {
			delete(a.unknown, w.Name)
		}
	}
	a.manifest, a.record.Gone, a.record.Hash = merged, gone, m.Hash
	a.record.Manifest, _ = json.Marshal(merged, json.Deterministic(true)) // strings and numbers: it can't fail
}

// keeps tells whether what a manifest lacks stays for a while, and since when it is lacking.
func (a *app) keeps(name string, o describeOptions) (since time.Time, kept bool) {
	since = or(a.record.Gone[name], o.now)
	return since, !o.sync && o.now.Sub(since) < o.forgetAfter
}

// keepTriggers adds to workflows the triggers that they had before, for as long as such are kept.
func (a *app) keepTriggers(workflows []wire.Workflow, gone map[string]time.Time, o describeOptions) {
	for i := range workflows {
		w := &workflows[i]
		old := slices.IndexFunc(a.manifest.Workflows, func(old wire.Workflow) bool { return old.Name == w.Name })
		if _, lacking := gone[w.Name]; lacking || old < 0 {
			continue
		}
		for _, t := range a.manifest.Workflows[old].Triggers {
			there := func(now wire.Trigger) bool {
				now.CatchUp = t.CatchUp // a schedule that catches up otherwise is the same one
				return now == t
			}
			if slices.ContainsFunc(w.Triggers, there) {
				continue
			}
			name := w.Name + "\x00" + cmp.Or(t.Event, t.Webhook, t.Schedule) + "\x00" + t.Timezone + t.If
			if since, kept := a.keeps(name, o); kept {
				gone[name] = since
				w.Triggers = append(slices.Clip(w.Triggers), t)
			}
		}
	}
}

func same(a, b store.App) bool {
	return a.URL == b.URL && a.Private == b.Private && a.Hash == b.Hash && a.Concurrency == b.Concurrency &&
		string(a.Manifest) == string(b.Manifest) && maps.Equal(a.Gone, b.Gone)
}

// problems lists what a manifest asks for and this server can't do: it is refused, never passed over in silence.
func (r *registry) problems(m wire.Manifest) []string {
	var list []string
	for _, w := range m.Workflows {
		for _, t := range w.Triggers {
			if p := r.broken(t); p != "" {
				list = append(list, fmt.Sprintf("workflow %q: %s", w.Name, p))
			}
		}
		for _, t := range w.CancelOn {
			if p := r.broken(t); p != "" {
				list = append(list, fmt.Sprintf("workflow %q: cancelOn: %s", w.Name, p))
			}
		}
	}
	return list
}

// broken says why a trigger starts nothing; empty if it does.
func (r *registry) broken(t wire.Trigger) string {
	if t.If != "" {
		if _, err := r.filters.get(t.If); err != nil {
			return "the filter of its trigger starts nothing: " + err.Error()
		}
	}
	if t.Schedule == "" {
		return ""
	}
	if _, err := schedule.Parse(t.Schedule, t.Timezone); err != nil {
		return "its schedule starts nothing: " + err.Error()
	}
	if _, err := schedule.ParseCatchUp(t.CatchUp); err != nil {
		return "its schedule starts nothing: " + err.Error()
	}
	return ""
}
