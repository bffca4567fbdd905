package engine

import "github.com/nelkap/nelkap/internal/store"

// offers are waits that may take events, by their runs: to a run they are made one after the other, to several side by side, so that they
// share commits.
type offers struct {
	m       *matcher
	runs    []string // in the order of their first offers
	of      map[string][]offer
	count   int
	given   map[string]int64 // by run: the position of the last event that it took
	matched bool             // an event has fitted a wait
}

// offer is an event that a wait may take.
type offer struct {
	wait  *store.Wait
	event *candidate
}

// page matches a page of events with the waits that are there.
func (m *matcher) page(page []store.Event) (matched bool, err error) {
	o := &offers{m: m, of: map[string][]offer{}, given: map[string]int64{}}
	for i := range page {
		if err := m.event(&page[i], o); err != nil {
			return false, err
		}
	}
	err = o.make()
	return o.matched, err
}

// event has an event offered to the waits that are open for it, the earliest of each run first (E2).
func (m *matcher) event(ev *store.Event, o *offers) error {
	known, err := m.await(ev)
	if err != nil || !known.any {
		return err
	}
	c := candidateOf(ev)
	q := store.WaitQuery{Set: store.WaitsForEvent, Env: ev.Env, Event: ev.Name, Position: ev.Position}
	for _, p := range known.paths {
		if key, ok := c.key(p); ok {
			q.Pairs = append(q.Pairs, [2]string{p, key})
		}
	}
	return m.inPages(q, func(waits []store.Wait) error {
		for i := range waits {
			o.add(offer{&waits[i], c})
		}
		if o.count < timerSide {
			return nil
		}
		return o.make()
	})
}

func (o *offers) add(made offer) {
	runID := made.wait.RunID
	if _, owed := o.m.owed[runID]; owed {
		return
	}
	if o.of[runID] == nil {
		o.runs = append(o.runs, runID)
	}
	o.of[runID] = append(o.of[runID], made)
	o.count++
}

// make makes the offers that were added.
func (o *offers) make() error {
	runs, of := o.runs, o.of
	o.runs, o.of, o.count = nil, map[string][]offer{}, 0
	ends := make([]offered, len(runs))
	err := o.m.sideBySide("matching an event with a wait", runs, func(i int) (err error) {
		ends[i], err = o.m.offer(of[runs[i]], o.given[runs[i]])
		return err
	})
	for i, end := range ends {
		o.matched = o.matched || end.fits
		o.given[runs[i]] = end.given
		if o.m.troubled[runs[i]] != nil {
			o.m.owed[runs[i]] = end.position
		}
	}
	return err
}

// offered is what came of a run's offers.
type offered struct {
	fits     bool
	given    int64 // the position of the last event that it took
	position int64 // that of the last event that it was offered
}

// offer gives a run the events that fit its waits: each to one of them (W7).
func (m *matcher) offer(list []offer, given int64) (offered, error) {
	end := offered{given: given}
	for _, made := range list {
		if made.event.Position == end.given {
			continue
		}
		end.position = made.event.Position
		fits, err := m.fits(made.wait, made.event)
		if err != nil {
			return end, err
		}
		if !fits {
			continue
		}
		end.fits = true
		// A wait that is over meanwhile leaves the event to its run's next one.
		given, err := m.give(made.wait, made.event.Event)
		if err != nil {
			return end, err
		}
		if given {
			end.given = made.event.Position
		}
	}
	return end, nil
}
