package nelkaptest

import (
	"encoding/json"
	"slices"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// ref is a step of a run.
type ref = wire.StepRef

// run is a run as the world keeps it. The world's mu guards it.
type run struct {
	id, workflow, app, key string
	payload                json.RawMessage
	event                  *wire.Event
	due                    time.Time // when it is called next; zero: when something comes
	parent                 *run
	parentWait             ref

	played    bool // calls of it can be played here
	status    nelkap.Status
	output    json.RawMessage
	failure   *wire.Error
	owner     string // of a skipped run: who owns its key
	createdAt time.Time
	endedAt   time.Time
	timeoutAt time.Time
	ending    *wire.Ending
	endingAt  time.Time
	closing   *closing // once it closes
	restarts  int
	lines     []line
	said      map[string]bool // what those are known by
	since     int             // events of lower numbers came before it
	attempt   int
	cuts      int
	calls     int
	entries   []entry
	retries   []*retry
	waits     []*wait
	starts    map[ref]*process
	used      map[int]bool // the events that its waits took
	callbacks []*callback
	process   *process    // the call that is current
	trees     []wire.Wait // for what it waits, since its last call was suspended
	done      chan struct{}
	waiters   []*process // whose requests wait for its end
}

// entry is an entry of the history; by is the process whose save made it, nil where the world did.
type entry struct {
	wire.Entry
	by *process
}

type retry struct {
	ref
	attempt int
	due     time.Time
}

type callback struct {
	ref
	url, token string
	due        time.Time // zero: none
	posted     bool
	payload    json.RawMessage
}

// wait is a wait that is open.
type wait struct {
	item  item
	since int
	due   time.Time // zero: none
	child *run
}

func (r *run) hasEnded() bool { return !r.endedAt.IsZero() }

// letGo has p wait for the run's end no more, unless it does not already. The world's mu is held.
func (r *run) letGo(p *process) {
	if i := slices.Index(r.waiters, p); i >= 0 {
		r.waiters = slices.Delete(r.waiters, i, i+1)
		p.held--
	}
}

func (r *run) entryOf(s ref) *entry {
	for i := range r.entries {
		if r.entries[i].Name == s.Name && r.entries[i].Number == s.Number {
			return &r.entries[i]
		}
	}
	return nil
}

// append appends an entry. Progress: the tries of the code, and cuts in a row, count anew.
func (r *run) append(e wire.Entry, by *process) int64 {
	e.Entry = int64(len(r.entries) + 1)
	r.entries = append(r.entries, entry{e, by})
	r.retries = slices.DeleteFunc(r.retries, func(t *retry) bool { return t.Name == e.Name && t.Number == e.Number })
	r.waits = slices.DeleteFunc(r.waits, func(t *wait) bool { return t.item.Name == e.Name && t.item.Number == e.Number })
	r.attempt, r.cuts = 1, 0
	return e.Entry
}

// wireEntries are the entries after a number, but for those that not made.
func (r *run) wireEntries(not *process, after int64) []wire.Entry {
	entries := []wire.Entry{}
	for _, e := range r.entries {
		if e.Entry.Entry > after && (not == nil || e.by != not) {
			entries = append(entries, e.Entry)
		}
	}
	return entries
}

// awake is true where something that it waits for has come.
func (r *run) awake(now time.Time) bool {
	return slices.ContainsFunc(r.trees, func(t wire.Wait) bool { return r.stands(&t, now) != open })
}

// standing is where a tree of what a run waits for stands (H4).
type standing int

const (
	open standing = iota
	done
	threw
	due // a step's next attempt, which calls the run also from inside a combination
)

func (r *run) stands(t *wire.Wait, now time.Time) standing {
	switch {
	case t.Wait != nil:
		switch e := r.entryOf(*t.Wait); {
		case e == nil:
			return open
		case e.Status == wire.OpFailed:
			return threw
		}
		return done
	case t.Retry != nil:
		if s := r.retryOf(*t.Retry); s != nil && s.due.After(now) {
			return open
		}
		return due
	}
	at := done
	if t.Race != nil {
		at = open
	}
	for _, branches := range [][]wire.Wait{t.All, t.Race} {
		for i := range branches {
			switch inner := r.stands(&branches[i], now); {
			case inner == due || inner == threw || t.Race != nil && inner == done:
				return inner
			case inner == open:
				at = open
			}
		}
	}
	return at
}

func (r *run) retryOf(s ref) *retry {
	if i := slices.IndexFunc(r.retries, func(t *retry) bool { return t.ref == s }); i >= 0 {
		return r.retries[i]
	}
	return nil
}

// retriesIn are the steps that threw for which trees wait.
func (r *run) retriesIn(trees []wire.Wait) (list []*retry) {
	for _, t := range trees {
		if t.Retry != nil {
			if s := r.retryOf(*t.Retry); s != nil {
				list = append(list, s)
			}
		}
		list = append(list, r.retriesIn(t.All)...)
		list = append(list, r.retriesIn(t.Race)...)
	}
	return list
}

// record is the run as the API shows it.
func (r *run) record() map[string]any {
	record := map[string]any{
		"id": r.id, "workflow": r.workflow, "app": r.app, "status": r.status, "payload": r.payload, "output": r.output,
		"error": r.failure, "key": r.key, "attempt": r.attempt, "createdAt": r.createdAt.UTC(),
	}
	if r.event != nil {
		record["event"], record["eventId"] = r.event.Event, r.event.ID
	}
	if r.hasEnded() {
		record["endedAt"] = r.endedAt.UTC()
	}
	return record
}
