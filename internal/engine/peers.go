package engine

import (
	"encoding/json/v2"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/store"
)

// The bounds of nodes that share a store. All times are of this process's monotonic clock: of another node only what it says is used, and
// when this one saw it say so.
const (
	// beatEvery is the pause between a node's heartbeats, and between its looks at the others'.
	beatEvery = time.Second
	// lostAfter is how long a node says nothing before it is lost: two heartbeat intervals of calls (C1).
	lostAfter = 2 * heartbeatMax
	// lostCallAfter is how long the holder of a call that nobody hears says nothing before the call counts as cut off. It is an interval
	// more: a process whose poll hangs on a node that stands still notices only after that.
	lostCallAfter = 3 * heartbeatMax
	// lostBeats is how often a node says at least that it is there while it finds another lost, since it has had no gap (C2).
	lostBeats = int64(lostAfter / viewMax)
	// viewMax is how old what a node knows of the others may be while it begins calls or judges others (C2).
	viewMax = 3 * time.Second
	// settleTime is how long a node that joins others takes no work: by then each of them has seen it, or begins nothing.
	settleTime = viewMax + beatEvery
	// leadAfter is how long the node that does what one alone should do says nothing before the next does it: sooner than it is lost, since
	// nothing is doubled where both do (E1).
	leadAfter = viewMax + beatEvery
	// departTime bounds the last word of a node that stops; without it the others miss its heartbeats.
	departTime = 2 * time.Second
	// turnAfter is how overdue work of another node's share is before any node does it.
	turnAfter = 500 * time.Millisecond
)

// peers is what a node knows of those that share its store: who is there, what share of the work is its own, and which calls they hear. It
// takes no lock but its own, and calls nobody. A node that is alone has all the work.
type peers struct {
	self string // never changed; empty: alone, for good

	// looking is full during a look at the others: of two at once the older might be learned last. Not a mutex: a look waits for the store.
	looking chan struct{}

	mu      sync.Mutex
	beat    int64     // this node's last heartbeat
	looks   int64     // how many looks it has begun
	learned int64     // the last that told it something
	joined  time.Time // the first look
	viewed  time.Time // when it last began to read the others' heartbeats, its own being written
	views   []view    // the last of those, the newest last
	steady  time.Time // since when it has done so without a gap (C2)
	others  map[string]*peer
	held    map[string]map[appID]int // how many calls of an app each of them holds, by the store
	absent  map[string]time.Time     // holders of calls of which there is no heartbeat, and since when
	shut    map[appID]*shut          // what this node can't use, or could not
}

// view is when a look began whose heartbeat had been written, and when this node learned what it showed.
type view struct{ began, learned time.Time }

// shut is an app that this node does not reach. Its share of that app's calls is the others' meanwhile.
type shut struct {
	since time.Time // it can't be used; zero: it can
	said  bool      // a heartbeat may have said so, and none has taken it back
	back  time.Time // when one had
}

// peer is another node.
type peer struct {
	beat  int64
	since time.Time // when its heartbeat was last seen to grow
	// at which of this node's looks that was, and the time before
	grown, before int64
	met           int64 // its heartbeat as it was when this node last wrote its own
	news          peerNews
	heard         map[string]time.Time // calls, and when it heard of them
}

// peerNews is what a node tells the others with its heartbeat.
type peerNews struct {
	// Apps are those that it knows.
	Apps []peerApp `json:"apps,omitzero"`
	// Heard are the calls of other nodes that it hears, and how many milliseconds ago; 0 while it holds a poll that names them.
	Heard map[string]int64 `json:"heard,omitzero"`
}

type peerApp struct {
	Env  string `json:"env"`
	Name string `json:"name"`
	// Version is that of the record by which it starts the app's runs.
	Version int64 `json:"version,omitzero"`
	// Shut: it has not been able to use the app for lostAfter, and leaves its share of the calls to the others.
	Shut bool `json:"shut,omitzero"`
}

func newPeers(self string) *peers {
	return &peers{self: self, looking: make(chan struct{}, 1), others: map[string]*peer{}, absent: map[string]time.Time{}, shut: map[appID]*shut{}}
}

// alone tells whether no other node can share the store.
func (p *peers) alone() bool { return p.self == "" }

// company tells whether other nodes work on the store now.
func (p *peers) company() bool {
	if p.alone() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, other := range p.others {
		if p.works(other) {
			return true
		}
	}
	return false
}

// apart tells whether this node could not write its heartbeat, or read the others', for as long as a poll is held. A poll that it holds meanwhile
// ends before the others find it lost, and a store that is only slow is not taken for one that is away.
func (p *peers) apart() bool {
	if p.alone() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.viewed) >= heartbeatMax
}

// next is this node's next heartbeat.
func (p *peers) next(news peerNews) store.Node {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beat++
	state, _ := json.Marshal(news, json.Deterministic(true)) // strings and numbers: it can't fail
	return store.Node{ID: p.self, Beat: p.beat, State: state}
}

// look is a look at all nodes. What it shows is as old as its beginning, however late it is heard of: this node may stand still meanwhile.
type look struct {
	number int64
	began  time.Time
}

// look counts a look at all nodes that begins now.
func (p *peers) look() look {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looks++
	return look{p.looks, time.Now()}
}

// learn takes over what a look has shown. beaten: this node's own heartbeat was written before it.
func (p *peers) learn(l look, rows []store.Node, counts []store.CallCount, beaten bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	there := map[string]bool{}
	for _, row := range rows {
		if row.ID == p.self {
			continue
		}
		there[row.ID] = true
		known := p.others[row.ID]
		if known != nil && known.beat == row.Beat {
			continue
		}
		news := peerNews{}
		if err := json.Unmarshal(row.State, &news); err != nil {
			return fmt.Errorf("reading what node %s says: %w", row.ID, err)
		}
		heard := &peer{beat: row.Beat, since: now, grown: l.number, news: news, heard: agesOf(news, now)}
		if known != nil {
			heard.before, heard.met = known.grown, known.met
		}
		p.others[row.ID] = heard
	}
	maps.DeleteFunc(p.others, func(id string, _ *peer) bool { return !there[id] })
	p.held = map[string]map[appID]int{}
	for _, c := range counts {
		if p.held[c.Node] == nil {
			p.held[c.Node] = map[appID]int{}
		}
		p.held[c.Node][appID{c.Env, c.App}] = int(c.Calls)
	}
	p.learned = l.number
	if beaten {
		p.meet(l.began)
	}
	return nil
}

// meet notes that this node has written its heartbeat, and then seen what the others' were at that time. mu is held.
func (p *peers) meet(at time.Time) {
	now := time.Now()
	away := now.Sub(p.viewed) > lostAfter-viewMax
	for _, o := range p.others {
		// While this node was away that one has said so much that it may have found it lost, and taken its share.
		if away && o.beat-o.met >= lostBeats {
			p.joined = at
		}
		o.met = o.beat
	}
	if p.joined.IsZero() {
		p.joined = at
		if len(p.others) == 0 {
			p.joined = at.Add(-settleTime)
		}
	}
	if now.Sub(p.viewed) > viewMax {
		p.steady = now
	}
	p.viewed = at
	p.views = append(slices.DeleteFunc(p.views, func(v view) bool { return now.Sub(v.learned) > viewMax+call.SendWithin }), view{at, now})
}

// sendBefore is until when a call may be sent that was begun at a time (C3). A node that joins takes no work for settleTime, in which all that
// the others had decided before they saw it has come about, or never does: however long the store took to keep a begin.
func (p *peers) sendBefore(begun time.Time) time.Time {
	before := begun.Add(call.SendWithin)
	if p.alone() {
		return before
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var known time.Time
	for _, v := range p.views {
		if !v.learned.After(begun) {
			known = v.began
		}
	}
	if settled := known.Add(settleTime); settled.Before(before) {
		return settled
	}
	return before
}

// agesOf turns ages into instants. They come out too late rather than too early, by as long as the heartbeat was under way: at most beatEvery,
// but for what its commit took.
func agesOf(news peerNews, now time.Time) map[string]time.Time {
	heard := make(map[string]time.Time, len(news.Heard))
	for call, age := range news.Heard {
		heard[call] = now.Add(-time.Duration(age) * time.Millisecond)
	}
	return heard
}

// share is this node's place among those that work, oldest first, and how many they are. ok is false where it takes no work: it has just
// joined, or does not know the others well enough. mu is held.
func (p *peers) share() (rank, of int, ok bool) {
	if p.alone() {
		return 0, 1, true
	}
	of = 1
	for id, other := range p.others {
		if p.works(other) {
			of++
			if id < p.self {
				rank++
			}
		}
	}
	return rank, of, time.Since(p.viewed) < viewMax && p.viewed.Sub(p.joined) >= settleTime
}

// works tells whether another node is not lost: for as long as this one could not look, its silence counts for nothing (C2). mu is held.
func (p *peers) works(o *peer) bool {
	return time.Since(o.since) < lostAfter || time.Since(p.steady) < lostAfter
}

// leads tells whether this node does what one alone should do: of several that believe so, the store lets one (E1), or what they do is
// guarded by versions.
func (p *peers) leads() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, _, ok := p.share(); !ok {
		return false
	}
	for id, other := range p.others {
		if id < p.self && time.Since(other.since) < leadAfter {
			return false
		}
	}
	return true
}

// mine tells whether a run's due work is this node's share. What others would do is left to them until it is overdue.
func (p *peers) mine(runID string, overdue time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	rank, of, ok := p.share()
	return ok && (overdue >= turnAfter || of == 1 || hashOfRun(runID)%of == rank)
}

func hashOfRun(runID string) int {
	h := fnv.New32a()
	h.Write([]byte(runID))
	return int(h.Sum32() >> 1)
}

// shuts notes whether this node can use an app, and tells whether its next heartbeat is to say that it has not for a while.
func (p *peers) shuts(id appID, usable bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shut[id]
	if s == nil {
		if usable {
			return false
		}
		s = &shut{}
		p.shut[id] = s
	}
	if usable {
		s.since = time.Time{}
		return false
	}
	s.since = or(s.since, time.Now())
	s.said = s.said || time.Since(s.since) >= lostAfter
	return s.said
}

// told notes what a heartbeat that is written has said.
func (p *peers) told(news peerNews) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range news.Apps {
		if s := p.shut[appID{a.Env, a.Name}]; s != nil && s.said && !a.Shut {
			s.said, s.back = false, time.Now()
		}
	}
}

// room is how many of the calls that an app takes at once this node may have in flight: its share, less where others hold more than theirs, as
// after one has joined, or has taken over the calls of one that is lost. Who does not reach the app has no share, and, like one that joins, takes none before the others
// have seen that it does.
func (p *peers) room(id appID, limit int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, of, ok := p.share()
	if s := p.shut[id]; !ok || of > 1 && s != nil && (s.said || p.viewed.Sub(s.back) < settleTime) {
		return 0
	}
	sharing := []string{p.self}
	for other, o := range p.others {
		if p.works(o) && !o.app(id).Shut {
			sharing = append(sharing, other)
		}
	}
	slices.Sort(sharing)
	room := limit
	for place, other := range sharing {
		if other != p.self {
			room -= max(part(limit, len(sharing), place), p.held[other][id])
		}
	}
	for other, calls := range p.held {
		if !slices.Contains(sharing, other) {
			room -= calls[id]
		}
	}
	return max(room, 0)
}

// part is the share of a place among so many: they add up to the whole.
func part(whole, of, place int) int {
	n := whole / of
	if place < whole%of {
		n++
	}
	return n
}

// app is what a node has said of an app; zero where that is nothing.
func (o *peer) app(id appID) peerApp {
	for _, a := range o.news.Apps {
		if a.Env == id.env && a.Name == id.name {
			return a
		}
	}
	return peerApp{}
}

// know tells whether every other node that works starts an app's runs by this version of its record, or a later one.
func (p *peers) know(id appID, version int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.others {
		if p.works(o) && o.app(id).Version < version {
			return false
		}
	}
	return true
}

// hears is when another node last heard of a call; zero if none has.
func (p *peers) hears(callID string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	var last time.Time
	for _, o := range p.others {
		if at := o.heard[callID]; at.After(last) {
			last = at
		}
	}
	return last
}

// steadySince is since when this node has written its heartbeats and read the others' without a gap.
func (p *peers) steadySince() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.steady
}

// looked is how many looks this node has begun, and which was the last that told it something.
func (p *peers) looked() (begun, learned int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.looks, p.learned
}

// spoken tells whether every other node, but for those that are lost, has said what it heard since so many looks were begun. A heartbeat that
// the next look did not show, and the one after it did, was written since; what it says may have been gathered before, but what the next one
// says was not, since a node gathers once its last heartbeat is written.
func (p *peers) spoken(begun int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.others {
		if p.works(o) && o.before < begun+2 {
			return false
		}
	}
	return true
}

// loss is a node that is lost, and since when it has said nothing.
type loss struct {
	node  string
	since time.Time
}

// lost lists the holders of calls that have said nothing for lostAfter. A node that has itself been cut off from the store, or stood
// still, judges nobody (C2).
func (p *peers) lost() []loss {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	var list []loss
	gone := map[string]bool{}
	for _, holder := range slices.Sorted(maps.Keys(p.held)) {
		since := p.absent[holder]
		if o := p.others[holder]; o != nil {
			since = o.since
		} else {
			gone[holder] = true
			if since.IsZero() {
				since = now
				p.absent[holder] = now
			}
		}
		if now.Sub(since) >= lostAfter && now.Sub(p.steady) >= lostAfter {
			list = append(list, loss{holder, since})
		}
	}
	maps.DeleteFunc(p.absent, func(id string, _ time.Time) bool { return !gone[id] })
	return list
}

// silent lists the nodes that hold nothing and have said nothing for so long that nobody needs their row.
func (p *peers) silent() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []string
	for id, o := range p.others {
		if time.Since(o.since) >= lostCallAfter && time.Since(p.steady) >= lostAfter && p.held[id] == nil {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

// sharedNet is how often a node looks for what others have stored, where it would hear of its own at once.
const sharedNet = time.Second

// net is the pause between looks at the store without a hint.
func (e *Engine) net(alone time.Duration) time.Duration { return e.netOf(alone, sharedNet) }

func (e *Engine) netOf(alone, shared time.Duration) time.Duration {
	if e.peers.alone() {
		return alone
	}
	return min(alone, shared)
}
