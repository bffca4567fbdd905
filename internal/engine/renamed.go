package engine

import (
	"errors"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
)

// renamed is told that an address answers as an app. What it was before serves nothing there any more: else an event would start the workflow
// under both names, and the same code would play both runs (W7).
func (e *Engine) renamed(s *source, to appID, o describeOptions) error {
	for _, record := range e.apps.vacated(s, to, o) {
		_, err := e.storeRecord(&record, false)
		if errors.Is(err, errOutdated) {
			continue // the next look sees what became of it
		}
		if err != nil {
			return err
		}
		e.log.Info("an app has lost its address, which answers as another", "app", record.Name, "url", ShownURL(s.url), "as", to.name)
	}
	return nil
}

// vacated takes their workflows from the apps whose address answers as another, as from apps that lack them (D1), and gives the records that
// are to be stored. Their runs that live are still played there.
func (r *registry) vacated(s *source, to appID, o describeOptions) (list []store.App) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, a := range r.apps {
		if id == to || a.source != r.sources[s.url] || a.written > o.writes {
			continue
		}
		if len(a.manifest.Workflows) > 0 {
			a.merge(&wire.Manifest{App: id.name, Protocol: a.manifest.Protocol, SDK: a.manifest.SDK}, o)
			a.problems = r.problems(a.manifest)
		}
		if !same(a.stored, a.record) {
			record := a.record
			record.Version = a.stored.Version
			list = append(list, record)
		}
	}
	if len(list) > 0 {
		r.rebuild()
	}
	return list
}

// at are the apps of an address, with the versions of their records: the one that answers there, and those that did before it.
func (r *registry) at(url string) (list []peerApp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, a := range r.apps {
		if a.source == r.sources[url] {
			list = append(list, peerApp{Env: id.env, Name: id.name, Version: a.stored.Version})
		}
	}
	return list
}
