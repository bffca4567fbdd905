package engine

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"math"
	"time"
	"unicode/utf8"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// The matcher's bounds.
const (
	matchNet = 5 * time.Second // between looks at the store without a hint
	// matchNetShared is the same where other nodes store what is to be matched.
	matchNetShared = 200 * time.Millisecond
	matchPage      = 500     // events, or waits, read at once
	matchBytes     = 1 << 20 // of the events, but for one: as many runs as are told at once may each look back
	matchCursor    = "events matched"
	cursorEvery    = 1_000 // events after which the cursor is stored where nothing was matched: a restart goes through so many again
)

// hint wakes a loop; one that is not taken is not lost.
type hint chan struct{}

func newHint() hint { return make(hint, 1) }

func (h hint) wake() {
	select {
	case h <- struct{}{}:
	default:
	}
}

// matcher brings waits and what they wait for together: events (E1), children, callbacks. Each is committed before it is looked at, so
// that neither misses the other; what it does is guarded by the run's version and can be done twice. One goroutine runs it, and has runs told
// side by side.
//
// What can't be told to one run holds up no other: it is logged, and tried again by the next pass.
type matcher struct {
	e       *Engine
	started bool  // the cursor is this node's
	cursor  int64 // events up to here have been matched with the waits that looked back before them
	stored  int64 // the cursor as the store has it
	awaited map[starter]awaited
	// troubled are the runs that this pass could not tell something.
	troubled map[string]error
	// owed are the runs that an event could not be given to, and the first such event's position. Their waits look back once more, and take
	// nothing meanwhile: an earlier event comes first (E2).
	owed map[string]int64
}

// passRequest is who waits for a pass of the matcher, for the sake of a run.
type passRequest struct {
	runID string
	done  chan<- error
}

// awaited is what is waited for under an event's name. It is known for one pass through the events: what is opened meanwhile has not looked
// back, and finds them itself.
type awaited struct {
	paths []string // that waits match by
	any   bool     // there are waits at all
}

func (e *Engine) runMatching() {
	m := &matcher{e: e, owed: map[string]int64{}}
	net := time.NewTicker(e.netOf(matchNet, matchNetShared))
	defer net.Stop()
	var asked []passRequest
	for e.ctx.Err() == nil {
		err := m.pass()
		for _, r := range asked {
			r.done <- errors.Join(err, m.troubled[r.runID])
		}
		asked = nil
		select {
		case <-e.ctx.Done():
			return
		case <-e.matching:
		case <-net.C:
		case r := <-e.passRequests:
			asked = append(asked, r)
		}
		for more := true; more; { // whoever else waits shares the pass
			select {
			case <-e.matching:
			case <-net.C:
			case r := <-e.passRequests:
				asked = append(asked, r)
			default:
				more = false
			}
		}
	}
}

// matched waits until everything that is committed now has been matched with what waits for it. It fails if that failed as a whole, or for
// this run. errElsewhere.
func (e *Engine) matched(runID string) error {
	done := make(chan error, 1)
	select {
	case e.passRequests <- passRequest{runID, done}:
	case <-e.ctx.Done():
		return ErrStopping
	}
	select {
	case err := <-done:
		return err
	case <-e.ctx.Done():
		return ErrStopping
	}
}

// errElsewhere: another node matches. What waits for that is left to it.
var errElsewhere = errors.New("another node matches events with waits")

// start makes the cursor this node's, and reads how far those before it came: what they looked at and what they passed over agrees with it,
// since nothing of what they do by it counts from here on.
func (m *matcher) start() error {
	if m.started {
		return nil
	}
	if !m.e.peers.alone() {
		if _, err := m.e.committer.commit(store.Change{store.TakeCursor{Cursor: matchCursor, Owner: m.e.peers.self}}); err != nil {
			return err
		}
	}
	position, err := m.e.store.Position(m.e.ctx, matchCursor)
	m.started = err == nil
	m.cursor, m.stored = position, position
	clear(m.owed) // the stored cursor is before what was owed
	return err
}

// pass does all that is to be done now, where this node is the one that does it. What fails is tried again by the next.
func (m *matcher) pass() error {
	m.troubled = map[string]error{}
	if !m.e.peers.leads() {
		m.started = false
		return errElsewhere
	}
	if err := m.start(); err != nil {
		return m.failed("reading how far events are matched", err)
	}
	err := errors.Join(
		m.failed("matching events", m.events()),
		m.failed("matching waits", m.unlooked()),
		m.failed("telling parents and children", m.kin()),
		m.failed("telling of callbacks", m.fulfilled()),
	)
	m.started = !errors.Is(err, errElsewhere)
	return err
}

// advance stores how far this node has come. Where another has taken the cursor, that one has the word.
func (m *matcher) advance(position int64) error {
	return m.commit(store.Advance{Cursor: matchCursor, Owner: m.e.peers.self, Position: position})
}

// reached is how far a restart need not go back: to before what a run is owed, which would be lost to it (E1).
func (m *matcher) reached() int64 {
	position := m.cursor
	for _, first := range m.owed {
		position = min(position, first-1)
	}
	return position
}

// lookedBack notes that a wait has looked back as far as the cursor.
func (m *matcher) lookedBack(w *store.Wait) error {
	return m.commit(store.LookedBack{RunID: w.RunID, StepID: w.StepID, Order: w.Order, Cursor: matchCursor, Owner: m.e.peers.self})
}

func (m *matcher) commit(op store.Op) error {
	_, err := m.e.committer.commit(store.Change{op})
	return heldBy(err)
}

// heldBy is err, or errElsewhere where it says that another has the cursor.
func heldBy(err error) error {
	if errors.Is(err, store.ErrCursor) {
		return errElsewhere
	}
	return err
}

func (m *matcher) failed(what string, err error) error {
	if err != nil && m.e.ctx.Err() == nil && !errors.Is(err, ErrStopping) && !errors.Is(err, errElsewhere) {
		m.e.log.Error(what, "error", err)
	}
	return err
}

// skip notes that a run could not be told something, and has the pass go on to the others. It gives the error back if they would fail too.
func (m *matcher) skip(what, runID string, err error) error {
	if err == nil || m.e.ctx.Err() != nil || ofTheStore(err) {
		return err
	}
	m.troubled[runID] = err
	m.e.log.Error(what+"; the others go on", "run", runID, "error", err)
	return nil
}

// ofTheStore tells whether an error lies in the store or in this node, not in what was to be read or written.
func ofTheStore(err error) bool {
	for _, whole := range []error{store.ErrUnavailable, store.ErrUnknown, ErrUnstored, ErrStopping, errElsewhere} {
		if errors.Is(err, whole) {
			return true
		}
	}
	return false
}

// events matches what came after the cursor with the waits that are there.
func (m *matcher) events() error {
	m.awaited = map[starter]awaited{}
	for {
		page, err := m.e.store.Events(m.e.ctx, store.EventQuery{Forward: true, After: m.cursor, Limit: matchPage, BytesMax: matchBytes})
		if err != nil || len(page) == 0 {
			return err
		}
		matched, err := m.page(page)
		if err != nil {
			return err
		}
		m.cursor = page[len(page)-1].Position
		if reached := m.reached(); reached-m.stored >= cursorEvery || (matched && reached > m.stored) {
			if err := m.advance(reached); err != nil {
				return err
			}
			m.stored = reached
		}
	}
}

// await says what is waited for under an event's name.
func (m *matcher) await(ev *store.Event) (awaited, error) {
	name := starter{ev.Env, ev.Name}
	if known, ok := m.awaited[name]; ok {
		return known, nil
	}
	paths, err := m.e.store.MatchPaths(m.e.ctx, ev.Env, ev.Name)
	if err != nil {
		return awaited{}, err
	}
	known := awaited{paths: paths, any: len(paths) > 0}
	if !known.any {
		q := store.WaitQuery{Set: store.WaitsForEvent, Env: ev.Env, Event: ev.Name, Position: math.MaxInt64, Limit: 1}
		waits, err := m.e.store.Waits(m.e.ctx, q)
		if err != nil {
			return awaited{}, err
		}
		known.any = len(waits) > 0
	}
	m.awaited[name] = known
	return known, nil
}

// unlooked has new waits look back at the events that were matched before they came; later ones find them (E1, E2).
func (m *matcher) unlooked() error {
	if err := m.settle(); err != nil {
		return err
	}
	return m.inPages(store.WaitQuery{Set: store.WaitsUnlooked}, func(waits []store.Wait) error {
		return m.eachRun("matching a wait with earlier events", waits, m.lookBack)
	})
}

// sideBySide does something for each of some runs, so many at once that they share commits, and skips those for which it fails.
func (m *matcher) sideBySide(what string, runs []string, do func(i int) error) error {
	errs := make([]error, len(runs))
	err := sideBySide(len(runs), timerSide, func(i int) error {
		if errs[i] = do(i); ofTheStore(errs[i]) {
			return errs[i]
		}
		return nil
	})
	for i := range runs {
		if err == nil {
			err = m.skip(what, runs[i], errs[i])
		}
	}
	return err
}

// eachRun does something for each of some waits: those of a run one after the other, until it fails, those of several runs side by side. A run
// that this pass could not tell something is left out: its waits take events in their order.
func (m *matcher) eachRun(what string, waits []store.Wait, do func(w *store.Wait) error) error {
	of := map[string][]*store.Wait{}
	var runs []string
	for i := range waits {
		w := &waits[i]
		if m.troubled[w.RunID] != nil {
			continue
		}
		if of[w.RunID] == nil {
			runs = append(runs, w.RunID)
		}
		of[w.RunID] = append(of[w.RunID], w)
	}
	return m.sideBySide(what, runs, func(i int) error {
		for _, w := range of[runs[i]] {
			if err := do(w); err != nil {
				return err
			}
		}
		return nil
	})
}

// inPages goes through the waits of a query, in their order.
func (m *matcher) inPages(q store.WaitQuery, do func(waits []store.Wait) error) error {
	q.Limit = matchPage
	for {
		waits, err := m.e.store.Waits(m.e.ctx, q)
		if err != nil {
			return err
		}
		if err := do(waits); err != nil || len(waits) < matchPage {
			return err
		}
		q.After = waits[len(waits)-1].Order
	}
}

// settle has the waits of runs that are owed an event look back.
func (m *matcher) settle() error {
	for runID := range m.owed {
		if m.troubled[runID] != nil {
			continue
		}
		if err := m.skip("matching waits with the events that their run is owed", runID, m.lookBackAll(runID)); err != nil {
			return err
		}
		if m.troubled[runID] == nil {
			delete(m.owed, runID)
		}
	}
	return nil
}

func (m *matcher) lookBackAll(runID string) error {
	waits, err := m.e.store.Waits(m.e.ctx, store.WaitQuery{Set: store.WaitsOfRun, RunID: runID})
	if err != nil {
		return err
	}
	for i := range waits {
		if waits[i].Event == nil {
			continue
		}
		if err := m.lookBack(&waits[i]); err != nil {
			return err
		}
	}
	return nil
}

func (m *matcher) lookBack(w *store.Wait) error {
	var first *store.Event
	for _, name := range w.Event.Names {
		ev, err := m.earliest(w, name)
		if err != nil {
			return err
		}
		if ev != nil && (first == nil || ev.Position < first.Position) {
			first = ev
		}
	}
	if first != nil {
		_, err := m.give(w, first)
		return err
	}
	return m.lookedBack(w)
}

// earliest is the first event of that name which fits a wait, among those that were matched before; nil if there is none.
func (m *matcher) earliest(w *store.Wait, name string) (*store.Event, error) {
	if m.cursor == 0 {
		return nil, nil
	}
	q := store.EventQuery{Forward: true, Env: w.Env, Name: name, After: w.After, UpTo: m.cursor, UnusedBy: w.RunID, Limit: matchPage, BytesMax: matchBytes}
	for {
		page, err := m.e.store.Events(m.e.ctx, q)
		if err != nil || len(page) == 0 {
			return nil, err
		}
		for i := range page {
			q.After = page[i].Position
			c := candidateOf(&page[i])
			if !m.matches(w, c) {
				continue
			}
			fits, err := m.fits(w, c)
			if err != nil {
				return nil, err
			}
			if fits {
				return &page[i], nil
			}
		}
	}
}

// matches tells whether an event holds what a wait's match asks for.
func (m *matcher) matches(w *store.Wait, c *candidate) bool {
	if w.Event.Paths == "" {
		return true
	}
	key, ok := c.key(w.Event.Paths)
	return ok && key == w.Event.Key
}

// fits tells whether an event passes a wait's filter. A filter's error is no match (E3); that the run can't be read is none of the
// filter's: the event would be lost to the wait for ever (E1).
func (m *matcher) fits(w *store.Wait, c *candidate) (bool, error) {
	if w.Event.If == "" {
		return true, nil
	}
	run, err := m.e.store.Record(m.e.ctx, w.Env, w.RunID)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ok, err := m.e.filters.matchFor(&run, w.Event.If, c)
	if err != nil {
		m.e.log.Info("a wait's filter failed on an event: no match", "run", w.RunID, "step", w.Name, "event", c.Name, "eventId", c.ID, "error", err)
	}
	return ok, nil
}

// give ends a wait with an event, which its run has used then (W7); false if the wait was over.
func (m *matcher) give(w *store.Wait, ev *store.Event) (given bool, err error) {
	if w.Kind == workflow.KindCancel {
		return false, m.cancel(w)
	}
	output, err := wire.Encode(wire.Event{ID: ev.ID, Event: ev.Name, Payload: ev.Payload, CreatedAt: wire.At(ev.CreatedAt)})
	if err != nil {
		return false, err
	}
	err = m.e.tell(m.e.ctx, w.RunID, func(open []store.Wait) ([]workflow.Step, []store.Op) {
		given = false
		for _, o := range open {
			if o.Order == w.Order {
				given = true
				return []workflow.Step{o.With(output, m.e.now())}, []store.Op{store.UseEvent{RunID: w.RunID, Position: ev.Position, Cursor: matchCursor, Owner: m.e.peers.self}}
			}
		}
		return nil, nil
	})
	return given && err == nil, heldBy(err)
}

// cancel ends a run whose workflow's cancelOn has come true.
func (m *matcher) cancel(w *store.Wait) error {
	_, err := m.e.apply(m.e.ctx, w.RunID, func(_ workflow.Run, h store.History) (workflow.Input, error) {
		return workflow.Cancel{Entries: h.Entries, Grace: m.e.options.Grace}, nil
	})
	if err != nil || w.Looked {
		return err
	}
	return m.lookedBack(w)
}

// fulfilled tells runs of callbacks that were posted to.
func (m *matcher) fulfilled() error {
	return m.inPages(store.WaitQuery{Set: store.WaitsFulfilled}, func(waits []store.Wait) error {
		return m.eachRun("telling a run of its callback", waits, m.posted)
	})
}

func (m *matcher) posted(w *store.Wait) error {
	callback, err := m.e.store.Callback(m.e.ctx, store.CallbackQuery{RunID: w.RunID, StepID: workflow.StepID{Name: w.Name, Number: w.Of}})
	if errors.Is(err, store.ErrNotFound) || err == nil && callback.EndedAt.IsZero() {
		return nil // the run has begun again, and the wait is gone
	}
	if err != nil {
		return err
	}
	payload := callback.Payload
	if !utf8.Valid(payload) { // it is of a time when that was not asked for
		payload = bytes.ToValidUTF8(payload, []byte("\uFFFD"))
	}
	output, err := wire.Encode(struct {
		Payload jsontext.Value `json:"payload,omitzero"`
	}{payload})
	if err != nil {
		return err
	}
	return m.e.tell(m.e.ctx, w.RunID, func(open []store.Wait) ([]workflow.Step, []store.Op) {
		for _, o := range open {
			if o.Order == w.Order {
				return []workflow.Step{o.With(output, m.e.now())}, nil
			}
		}
		return nil, nil
	})
}
