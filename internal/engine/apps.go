package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// looksMax bounds how many apps are described at once.
const looksMax = 8

// ErrAppUnusable: the app that was asked for can't be used; the error says why.
var ErrAppUnusable = errors.New("the app can't be used")

// errOutdated: the app was stored after it was asked, by another look or another node. What it said may be older than that: it is asked again.
var errOutdated = errors.New("the app was stored meanwhile")

// AddApp expects an app at an address, as the operator's word: it may be of this machine or of a private network.
func (e *Engine) AddApp(address string) { e.apps.add(DefaultEnv, address, true) }

// readApps has every app taken over as the store has it.
func (e *Engine) readApps(ctx context.Context, takeOver func(store.App) error) error {
	records, err := e.store.Apps(ctx)
	if err != nil {
		return err
	}
	for _, record := range records {
		if err := takeOver(record); err != nil {
			return err
		}
	}
	return nil
}

// runApps looks at apps when it is time (D1).
func (e *Engine) runApps() {
	slots := make(chan struct{}, looksMax)
	for {
		list, wait := e.apps.due(e.now())
		for _, s := range list {
			slots <- struct{}{}
			e.spawn(func() {
				defer func() { <-slots }()
				e.look(s)
			})
		}
		pause(e.ctx, min(wait, e.options.DescribeEvery))
		if e.ctx.Err() != nil {
			return
		}
	}
}

// look describes the app at an address, and takes over what it says.
func (e *Engine) look(s *source) {
	t, writes := e.apps.asking(s)
	manifest, outcome := e.caller.Describe(e.ctx, t)
	if e.ctx.Err() != nil {
		return
	}
	if manifest == nil {
		e.notDescribed(s, outcome)
		return
	}
	err := e.take(s, manifest, describeOptions{writes: writes})
	if errors.Is(err, errOutdated) {
		e.apps.lookAgain(s)
	} else if err != nil && !errors.Is(err, ErrAppUnusable) { // which was said when it was news
		e.log.Error("an app can't be taken up", "url", ShownURL(s.url), "error", err)
	}
}

func (e *Engine) notDescribed(s *source, o call.Outcome) {
	if e.apps.lost(s, e.now(), e.options.ForgetAfter) {
		e.log.Info("an address is forgotten: nothing answers there, and its app is at another", "url", ShownURL(s.url))
		return
	}
	e.apps.mu.Lock()
	s.looking = false
	if o.Kind == call.Lost || o.Kind == call.Silent || o.Kind == call.Ended {
		// It may only be busy, or starting again: that ends nothing (C1).
		s.nextLook = e.now().Add(time.Second)
		e.apps.mu.Unlock()
		return
	}
	e.apps.mu.Unlock()
	if e.apps.failed(s, reasonOf(o), e.now(), e.options.Jitter()) {
		e.log.Warn("an app can't be used", "url", ShownURL(s.url), "why", reasonOf(o))
	}
}

func reasonOf(o call.Outcome) string {
	return cmp.Or(o.Reason, o.Kind.String())
}

// unusable pauses an app as a whole after a call found that it can't be used (C14).
func (e *Engine) unusable(id appID, o call.Outcome) {
	s := e.apps.sourceOf(id)
	if s == nil {
		return
	}
	if e.apps.failed(s, reasonOf(o), e.now(), e.options.Jitter()) {
		e.log.Warn("an app can't be used; its runs wait", "app", id.name, "url", ShownURL(s.url), "why", reasonOf(o))
	}
}

// contacted ends an app's pause: it was heard of (C14).
func (e *Engine) contacted(id appID) {
	if !e.apps.answered(id) {
		return
	}
	e.log.Info("the app is heard of again", "app", id.name)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue(id).wake()
}

// take takes over a manifest, durably, and lets waiting runs go on. errOutdated.
func (e *Engine) take(s *source, m *wire.Manifest, o describeOptions) error {
	o.now, o.every, o.forgetAfter = e.now(), e.options.DescribeEvery, e.options.ForgetAfter
	e.apps.mu.Lock()
	fresh, was := !s.answered, s.reason
	e.apps.mu.Unlock()
	changed, err := e.storeApp(s, m, o)
	if err != nil {
		return err
	}
	if fresh || changed || was != "" {
		e.log.Info("app ready", "app", m.App, "url", ShownURL(s.url), "workflows", len(m.Workflows), "sdk", m.SDK.Language+"/"+m.SDK.Version)
		for _, p := range e.apps.problems(*m) {
			e.log.Warn(p, "app", m.App)
		}
		e.mu.Lock()
		q := e.queue(appID{s.env, m.App})
		q.more = true
		q.wake()
		e.mu.Unlock()
	}
	return e.renamed(s, appID{s.env, m.App}, o)
}

// storeApp stores what an app said of itself and the schedules that it declares, in one transaction, and tells whether that was news. What
// another node has stored of it meanwhile is not undone: errOutdated then.
func (e *Engine) storeApp(s *source, m *wire.Manifest, o describeOptions) (changed bool, err error) {
	id := appID{s.env, m.App}
	if o.sync { // it replaces what the store has, of which this node may not know yet
		if err := e.reloadApp(id); err != nil {
			return false, err
		}
	}
	record, isStored, err := e.apps.described(s, m, o)
	switch {
	case errors.Is(err, errOutdated):
		return false, err
	case err != nil:
		if e.apps.failed(s, err.Error(), o.now, e.options.Jitter()) {
			e.log.Warn("an app can't be used", "url", ShownURL(s.url), "why", err.Error())
		}
		return false, fmt.Errorf("%w: %w", ErrAppUnusable, err)
	case record == nil:
		return false, nil
	}
	return e.storeRecord(record, isStored)
}

// storeRecord stores an app's record, unless it is stored so, with the schedules that it declares, and tells whether there was something to
// store. errOutdated.
func (e *Engine) storeRecord(record *store.App, isStored bool) (changed bool, err error) {
	schedules, err := e.declaring(record)
	if err != nil {
		return false, fmt.Errorf("reading the schedules of app %q: %w", record.Name, err)
	}
	if isStored && len(schedules) == 0 {
		e.apps.stored(*record)
		return false, nil
	}
	record.Version++
	_, err = e.committer.commit(append(store.Change{store.PutApp{App: *record}}, schedules...))
	if errors.Is(err, store.ErrStale) {
		if err := e.reloadApp(appID{record.Env, record.Name}); err != nil {
			return false, err
		}
		return false, errOutdated
	}
	if err != nil {
		return false, fmt.Errorf("storing app %q: %w", record.Name, err)
	}
	e.apps.stored(*record)
	e.dueHint.wake()
	return true, nil
}

// reloadApp takes over what the store has of an app, in the place of what this node was about to store.
func (e *Engine) reloadApp(id appID) error {
	records, err := e.store.Apps(e.ctx)
	if err != nil {
		return fmt.Errorf("reading app %q: %w", id.name, err)
	}
	for _, record := range records {
		if (appID{record.Env, record.Name}) == id {
			return e.apps.reload(record)
		}
	}
	return nil
}

// AppRequest is what PutApp takes.
type AppRequest struct {
	URL         string
	Concurrency int // zero: as it was, or the server's
}

// PutApp describes the app at an address at once, and takes it over as it is now: what it no longer has is forgotten (D1), and so are the
// addresses where it was before and that no operator has named. It returns when every other node that works knows it too. The address must
// be public unless an operator has named it. ErrAppUnusable says why the app can't be used; nothing changes then. ErrBusy.
func (e *Engine) PutApp(ctx context.Context, env string, r AppRequest, private bool) (AppInfo, error) {
	e.apps.mu.Lock()
	s := e.apps.sources[r.URL]
	if s == nil {
		s = &source{env: env, url: r.URL, private: private}
	}
	e.apps.mu.Unlock()
	name, err := e.syncApp(ctx, s, r.Concurrency)
	if err != nil {
		return AppInfo{}, err
	}
	for _, info := range e.Apps(env) {
		if info.Name == name {
			return info, nil
		}
	}
	return AppInfo{}, fmt.Errorf("%w: it changed its name meanwhile; ask again", ErrAppUnusable)
}

// syncApp asks an address and takes over what it says, until nothing is stored of the app in between.
func (e *Engine) syncApp(ctx context.Context, s *source, concurrency int) (name string, err error) {
	for range applyTries {
		t, writes := e.apps.asking(s)
		manifest, outcome := e.caller.Describe(ctx, t)
		if manifest == nil {
			return "", fmt.Errorf("%w: %s", ErrAppUnusable, reasonOf(outcome))
		}
		err = e.take(s, manifest, describeOptions{writes: writes, sync: true, concurrency: concurrency})
		if err == nil {
			e.apps.left(appID{s.env, manifest.App})
			err = e.known(ctx, e.apps.at(s.url))
		}
		if !errors.Is(err, errOutdated) {
			return manifest.App, err
		}
	}
	return "", fmt.Errorf("taking over the app at %s: %w", ShownURL(s.url), ErrBusy)
}

// ShownURL is an app's address without what is for the app alone: the name and the password that may be in it, and the values of its query,
// of which the names stay. It is for people to read: two apps may be shown the same.
func ShownURL(address string) string {
	u, err := url.Parse(address)
	if err != nil || (u.User == nil && u.RawQuery == "") {
		return address
	}
	u.User = nil
	pairs := strings.Split(u.RawQuery, "&")
	for i, pair := range pairs {
		name, _, ok := strings.Cut(pair, "=")
		switch {
		case ok:
			pairs[i] = name + "=…"
		case pair != "": // a value without a name
			pairs[i] = "…"
		}
	}
	u.RawQuery = strings.Join(pairs, "&")
	return u.String()
}

// AppInfo is an app as the API shows it. An address that has not answered yet, or that serves another app's name, has none.
type AppInfo struct {
	Name        string
	URL         string
	Reason      string    // why it can't be used now; empty if it can
	NextLookAt  time.Time // when it is looked at again
	SeenAt      time.Time // zero if it has not answered yet
	SDK         wire.SDK
	Concurrency int
	Workflows   []wire.Workflow
	Gone        map[string]time.Time
	Problems    []string
}

// Apps lists an environment's apps by name, and after them the addresses that have not answered yet or whose app another has the name of.
func (e *Engine) Apps(env string) []AppInfo {
	r := e.apps
	r.mu.Lock()
	defer r.mu.Unlock()
	list := []AppInfo{}
	for id, a := range r.apps {
		if id.env == env && !a.source.removed() {
			list = append(list, AppInfo{
				Name: id.name, URL: ShownURL(a.source.url), Reason: a.why(), NextLookAt: a.source.nextLook, SeenAt: a.record.SeenAt, SDK: a.manifest.SDK,
				Concurrency: or(a.record.Concurrency, e.options.Concurrency), Workflows: a.manifest.Workflows, Gone: a.record.Gone, Problems: a.problems,
			})
		}
	}
	for _, s := range r.sources {
		if s.env == env && (s.app == (appID{}) || r.isRival(s)) {
			list = append(list, AppInfo{URL: ShownURL(s.url), Reason: or(s.reason, "it has not answered yet"), NextLookAt: s.nextLook})
		}
	}
	slices.SortFunc(list, func(a, b AppInfo) int {
		return cmp.Or(-compareBool(a.Name != "", b.Name != ""), cmp.Compare(a.Name, b.Name), cmp.Compare(a.URL, b.URL))
	})
	return list
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// Waiting says why a run does not go on, and when something happens to it next; nil if it goes on, or has ended (W5).
type Waiting struct {
	Reason string
	NextAt time.Time
}

// stalling explains a run whose call is alive and has made no progress for half the time after which it is cut off (C12).
func (e *Engine) stalling(run workflow.Run) *Waiting {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.current(run)
	if l == nil {
		return nil
	}
	still := time.Since(l.moved)
	if still < e.options.Stall/2 {
		return nil
	}
	return &Waiting{
		Reason: fmt.Sprintf("its call has made no progress for %v; after %v it is cut off and the run is picked up", still.Round(time.Minute), e.options.Stall),
		NextAt: e.now().Add(e.options.Stall - still),
	}
}

// Waiting explains a run that is not being played, or whose call makes no progress. A paused app's reason stands on the app, not on each of its runs (C14).
func (e *Engine) Waiting(run workflow.Run) *Waiting {
	if run.Status == workflow.Waiting {
		return &Waiting{Reason: run.Reason, NextAt: run.DueAt()}
	}
	if run.Status == workflow.Running {
		return e.stalling(run)
	}
	if run.Status != workflow.Queued {
		return nil
	}
	if run.NextAt.After(e.now()) && run.StartedAt.IsZero() {
		return &Waiting{Reason: "it is to start later", NextAt: run.NextAt}
	}
	e.apps.mu.Lock()
	defer e.apps.mu.Unlock()
	a := e.apps.apps[appID{run.Env, run.App}]
	switch {
	case a == nil:
		return &Waiting{Reason: fmt.Sprintf("no app %q is known here: start it, or name it with --app URL", run.App), NextAt: e.now().Add(dispatchNet)}
	case a.source.reason != "":
		return &Waiting{Reason: fmt.Sprintf("the app %q can't be used: %s", run.App, a.source.reason), NextAt: a.source.nextLook}
	default:
		return &Waiting{Reason: fmt.Sprintf("the app %q has all the calls that it takes at once; the oldest run comes next", run.App), NextAt: e.now().Add(dispatchNet)}
	}
}
