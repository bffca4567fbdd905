package engine

import (
	"strings"
	"sync"

	"github.com/nelkap/nelkap/internal/filter"
	"github.com/nelkap/nelkap/internal/store"
)

// filtersMax bounds the filters that are kept compiled: a few kilobytes each.
const filtersMax = 4_096

// filters keeps filters compiled: the same few texts come with every event.
type filters struct {
	mu       sync.Mutex
	compiled map[string]*filter.Filter
}

func newFilters() *filters { return &filters{compiled: map[string]*filter.Filter{}} }

// get compiles a filter, or finds it.
func (f *filters) get(text string) (*filter.Filter, error) {
	f.mu.Lock()
	known := f.compiled[text]
	f.mu.Unlock()
	if known != nil {
		return known, nil
	}
	compiled, err := filter.Compile(text)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.compiled) >= filtersMax {
		f.compiled = map[string]*filter.Filter{}
	}
	f.compiled[text] = compiled
	return compiled, nil
}

// candidate is an event as filters see it: read once, and only if one looks.
type candidate struct {
	*store.Event
	once sync.Once
	seen filter.Event
	err  error // it can't be read: it matches nothing
}

func candidateOf(ev *store.Event) *candidate { return &candidate{Event: ev} }

func (c *candidate) event() (filter.Event, error) {
	c.once.Do(func() { c.seen, c.err = filter.NewEvent(c.ID, c.Name, c.CreatedAt, c.Payload) })
	return c.seen, c.err
}

// match tells whether an event passes a trigger's filter. With an error it does not (E3).
func (f *filters) match(text string, c *candidate) (bool, error) {
	seen, err := c.event()
	if err != nil {
		return false, err
	}
	return f.matchSeen(text, seen)
}

// matchFor is match for the filter of a run: it sees the run too.
func (f *filters) matchFor(run *store.RunRecord, text string, c *candidate) (bool, error) {
	seen, err := c.event()
	if err == nil {
		seen, err = seen.For(run.ID, run.Key, run.Payload)
	}
	if err != nil {
		return false, err
	}
	return f.matchSeen(text, seen)
}

func (f *filters) matchSeen(text string, seen filter.Event) (bool, error) {
	compiled, err := f.get(text)
	if err != nil {
		return false, err
	}
	return compiled.Match(seen)
}

// key is the index key of an event for stored paths; not ok if it has none.
func (c *candidate) key(paths string) (string, bool) {
	seen, err := c.event()
	if err != nil {
		return "", false
	}
	return filter.Paths(strings.Split(paths, pathsEnd)).Key(seen)
}

// pathsEnd parts stored paths: no name of a member that a path has can hold it unescaped, and two that do are told apart by their keys.
const pathsEnd = "\n"
