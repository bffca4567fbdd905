package engine

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// Heartbeat holds a process's poll until there is news of one of its calls, or the interval is over (C7). It waits at most 5 s.
func (e *Engine) Heartbeat(ctx context.Context, hb wire.Heartbeat) (wire.HeartbeatAnswer, error) {
	came := time.Now()
	defer e.unheld(hb.Process) // also where a process that dies meanwhile breaks the poll off
	news, err := e.nameAll(ctx, hb)
	if err != nil {
		return wire.HeartbeatAnswer{}, err
	}
	e.unnamed(hb, came)
	wait := min(time.Duration(hb.WaitMs)*time.Millisecond, heartbeatMax)
	if e.Apart() {
		wait = min(wait, beatEvery) // the next poll may be another node's
	}
	if len(news) == 0 && wait > 0 {
		e.hold(ctx, hb.Process, wait)
	}
	news = append(news, e.withEntries(ctx, e.news(hb), hb)...)
	return wire.HeartbeatAnswer{Time: wire.At(e.now()), Calls: news}, nil
}

// Apart tells whether this node shares a store that it does not reach. The others may find it lost then, and only what they hear of its calls
// keeps those from being cut off (C1).
func (e *Engine) Apart() bool { return e.peers.apart() }

// naming is what becomes of a call's name in a poll.
type naming struct {
	live   *live
	status string // wire.Accepted: the process's to play on; wire.Later: the next poll tells
}

// nameAll takes the names of a poll. What has to be read is read side by side, and what has to be stored shares commits: none may wait for so
// long that it is taken for not named. It gives the news of those that are not the process's to play on. Where something can't be read, what is
// known is named all the same.
func (e *Engine) nameAll(ctx context.Context, hb wire.Heartbeat) (news []wire.News, err error) {
	named := make([]naming, len(hb.Calls))
	var unknown []int
	for i, call := range hb.Calls {
		if l, verdict, known := e.admitLive(call.Fence); known {
			named[i] = naming{l, string(verdict)}
		} else {
			named[i].status = wire.Later
			unknown = append(unknown, i)
		}
	}
	err = sideBySide(len(unknown), messageSide, func(n int) error {
		l, verdict, err := e.admitStored(ctx, hb.Calls[unknown[n]].Fence)
		if err == nil {
			named[unknown[n]] = naming{l, string(verdict)}
		}
		return err
	})
	e.bind(ctx, hb, named)
	for i, call := range hb.Calls {
		switch status := named[i].status; status {
		case wire.Accepted:
			e.name(hb.Process, call, named[i].live)
		case wire.Later:
		default:
			news = append(news, wire.News{Call: call.Call, Nonce: call.Nonce, Status: status})
		}
	}
	return news, err
}

// bind has the first word of a playing bind it, durably, and take a queued pick-up back (C4, C5).
func (e *Engine) bind(ctx context.Context, hb wire.Heartbeat, named []naming) {
	saves := wire.Saves{Process: hb.Process}
	var first []int
	e.mu.Lock()
	for i, n := range named {
		if n.status == wire.Accepted && (n.live.run.Call.Nonce == "" || n.live.stale() || n.live.run.Status != workflow.Running) {
			first = append(first, i)
			saves.Saves = append(saves.Saves, wire.Save{Fence: hb.Calls[i].Fence})
		}
	}
	e.mu.Unlock()
	if len(first) == 0 {
		return
	}
	for n, out := range e.Save(ctx, saves).Saves {
		named[first[n]].status = out.Status
	}
}

// name takes a call's name from the process that plays it.
func (e *Engine) name(processID string, named wire.Named, l *live) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.live[named.Call] == nil && l.run.Call.Node != e.peers.self {
		l = e.track(l.run, l.history) // another node's, of which this one hears
		l.written = true
		e.peerHint.wake()
	}
	if l := e.live[named.Call]; l != nil {
		e.hear(l, processID)
		e.answered(l) // its process polls: this is the poll
		l.seen = named.Seen
		e.apps.heard(appID{l.run.Env, l.run.App}, "", e.now())
	}
}

// unnamed cuts calls that the process named before and does not name now, unless their own connection is open (C7). A list may be
// older than what has been heard of a call meanwhile: it was under way while the call's first save overtook it. So the first list that
// lacks a call raises the question, which answers the poll, and only a list that came after that answer has the last word.
func (e *Engine) unnamed(hb wire.Heartbeat, came time.Time) {
	named := map[string]bool{}
	for _, f := range hb.Calls {
		named[f.Call] = true
	}
	var gone []*live
	e.mu.Lock()
	if p := e.processes[hb.Process]; p != nil {
		for _, l := range inOrder(p.calls) {
			switch {
			case named[l.callID] || l.connected || !l.written:
			case !l.held:
				e.untrack(l) // it is not heard of here any more
			case l.missed.IsZero() || came.Before(l.missed):
				l.missed = time.Now()
				if l.question == nil {
					e.ask(l, 2*heartbeat(l.run.Lease))
				}
			default:
				gone = append(gone, l)
			}
		}
	}
	e.mu.Unlock()
	for _, l := range gone {
		e.cut(l, "its process no longer plays it")
	}
}

// hold keeps a poll open.
func (e *Engine) hold(ctx context.Context, processID string, wait time.Duration) {
	mine := &poll{woken: make(chan struct{}, 1)}
	e.mu.Lock()
	p := e.processes[processID]
	if p == nil || e.stopping || e.pendingNews(p) {
		e.mu.Unlock()
		return
	}
	p.wake()
	p.open = mine
	e.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-mine.woken:
	case <-timer.C:
	case <-ctx.Done():
	}
	e.release(p, mine)
}

// release ends a poll.
func (e *Engine) release(p *process, mine *poll) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.open != mine {
		return
	}
	p.open = nil
	for _, l := range p.calls {
		l.heard = time.Now()
	}
	e.forget(p)
}

// unheld asks for the calls of a process that hang on nothing once its poll is over, whether it was answered or its connection was
// lost: the next poll names them, unless the process is gone (C1).
func (e *Engine) unheld(processID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.processes[processID]
	if p == nil || p.open != nil || e.stopping {
		return
	}
	for _, l := range inOrder(p.calls) {
		if !l.connected && l.written && l.question == nil {
			e.ask(l, 2*heartbeat(l.run.Lease))
		}
	}
}

// pendingNews tells whether a process must hear of one of its calls. Engine.mu is held.
func (e *Engine) pendingNews(p *process) bool {
	for _, l := range p.calls {
		if l.question != nil || (l.run.Phase() == workflow.PhaseEnding && l.told != wire.Ending) || l.hasNews() {
			return true
		}
	}
	return false
}

// hasNews tells whether the history has an entry that its process must hear of. Engine.mu is held.
func (l *live) hasNews() bool { return l.seen != nil && *l.seen < l.news }

// news gathers what the process must know of its calls.
func (e *Engine) news(hb wire.Heartbeat) []wire.News {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := []wire.News{}
	for _, f := range hb.Calls {
		l := e.live[f.Call]
		switch {
		case l == nil:
		case l.run.Phase() == workflow.PhaseEnding:
			l.told = wire.Ending
			list = append(list, wire.News{Call: f.Call, Nonce: f.Nonce, Status: wire.Ending, Ending: &wire.EndingInfo{Reason: l.run.Ending.Reason}})
		case l.hasNews() && f.Seen != nil:
			list = append(list, wire.News{Call: f.Call, Nonce: f.Nonce, Status: wire.NewEntries})
		case l.question != nil:
			list = append(list, wire.News{Call: f.Call, Nonce: f.Nonce, Status: wire.NamedQ})
		}
	}
	return list
}

// Of the entries that news bring one poll's answer has so many bytes, and one page of each call that is read at once more: a process reads no
// answer of any size.
const (
	newsBytesMax = wire.CallBytesMax
	newsSide     = 8
)

// withEntries adds to the news of entries the entries: a page of each call, and of as many calls as the answer may hold. The next poll asks
// for more (H2).
func (e *Engine) withEntries(ctx context.Context, news []wire.News, hb wire.Heartbeat) []wire.News {
	named := map[string]*wire.Named{}
	for i := range hb.Calls {
		named[hb.Calls[i].Call] = &hb.Calls[i]
	}
	var bytes atomic.Int64
	_ = sideBySide(len(news), newsSide, func(i int) error { // each says itself what went wrong
		n := &news[i]
		if n.Status != wire.NewEntries || bytes.Load() >= newsBytesMax {
			return nil
		}
		call := named[n.Call]
		page, err := e.store.Entries(ctx, store.EntryQuery{
			RunID: runOf(call.Token), After: max(*call.Seen, 0), EntriesMax: wire.PageEntriesMax, BytesMax: wire.PageBytesMax,
		})
		if err != nil {
			e.log.Error("reading news", "call", n.Call, "error", err)
		}
		for _, entry := range page {
			n.Entries = append(n.Entries, entryOf(entry))
			bytes.Add(int64(len(entry.Output) + len(entry.Error)))
		}
		return nil
	})
	return slices.DeleteFunc(news, func(n wire.News) bool { return n.Status == wire.NewEntries && len(n.Entries) == 0 })
}
