package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/nelkap/nelkap/internal/store"
)

// Errors of removing an app.
var (
	// ErrUnknownApp: there is no such app.
	ErrUnknownApp = errors.New("there is no such app")
	// ErrAppUsed: the app is still used; the error says by what.
	ErrAppUsed = errors.New("the app is still used")
)

// removedReason is why a removed app can't be used.
const removedReason = "it was removed: sync it to have it back, or cancel its runs"

// RemoveApp has nothing start an app's workflows any more, and forgets its address. Its runs that live wait: they go on once it is synced, or
// answers at an address that an operator has named. It is durable on return, and every other node that works knows it. ErrUnknownApp; ErrAppUsed
// where the app answers at such an address, or has schedules that were made at run time. ErrBusy.
func (e *Engine) RemoveApp(ctx context.Context, env, name string) error {
	app := appID{env, name}
	for range applyTries {
		if err := e.reloadApp(app); err != nil {
			return err
		}
		record, err := e.apps.removing(app)
		if err != nil {
			return err
		}
		if err := e.unscheduled(ctx, app); err != nil {
			return err
		}
		_, err = e.storeRecord(&record, false)
		if errors.Is(err, errOutdated) {
			continue
		}
		if err != nil {
			return err
		}
		if err := e.apps.reload(record); err != nil {
			return err
		}
		e.log.Info("an app was removed", "app", name)
		return e.known(ctx, []peerApp{{Env: env, Name: name, Version: record.Version}})
	}
	return fmt.Errorf("removing app %q: %w", name, ErrBusy)
}

// removing is an app's record as it is to be once it is removed.
func (r *registry) removing(id appID) (store.App, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.apps[id]
	if a == nil || a.source.removed() {
		return store.App{}, fmt.Errorf("%w: %q", ErrUnknownApp, id.name)
	}
	for _, s := range r.sources {
		if s.app == id && s.private && s.answers() { // it would be taken up again at once
			return store.App{}, fmt.Errorf("%w: it answers at %s, where the server was told to look: stop it first", ErrAppUsed, ShownURL(s.url))
		}
	}
	return store.App{Env: id.env, Name: id.name, Concurrency: a.record.Concurrency, SeenAt: a.record.SeenAt, Version: a.stored.Version}, nil
}

// removedSource stands for the address of a removed app: none, at which nobody looks.
func removedSource(env string) *source { return &source{env: env, reason: removedReason} }

func (s *source) removed() bool { return s.url == "" }

// unscheduled is ErrAppUsed where a schedule that was made at run time starts workflows of an app.
func (e *Engine) unscheduled(ctx context.Context, app appID) error {
	return e.eachSchedule(ctx, store.ScheduleQuery{Env: app.env, App: app.name}, func(s *store.Schedule) error {
		if s.Declared {
			return nil
		}
		return fmt.Errorf("%w: the schedule %q, made at run time, starts its workflows: remove such schedules first", ErrAppUsed, s.ID)
	})
}
