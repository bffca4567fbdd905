package contact

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

const (
	// pollAge is the age from which a call is worth a poll: shorter ones end before anybody asks (C7).
	pollAge = 500 * time.Millisecond
	// replaceEvery is how often a list that grew may replace the open poll.
	replaceEvery = 500 * time.Millisecond
	// waitMax is how long the server may hold a poll.
	waitMax = 5 * time.Second
	// pollPauseMin is the first pause after a failed poll, and what keeps a server that always has news from a busy loop.
	pollPauseMin = 100 * time.Millisecond
	// quickMax is how many polls in a row may be answered at once before there are pauses between them.
	quickMax = 3
)

// Call is a call that this process plays. Its exported fields don't change.
type Call struct {
	ID, Token, Nonce string
	Heartbeat        time.Duration
	// News is called on a goroutine that holds no lock of a playing.
	News func(*wire.News)

	seen   atomic.Int64
	joined time.Time
	urgent bool // its connection closed or its saves fail: name it at once (C1)
	named  bool // it stands in the poll that is open
	kept   int  // bytes of its results that the server has not accepted
}

// Saw says that c has taken in the history up to the entry of that number: the polls from now on say so.
func (c *Call) Saw(entry int64) { c.seen.Store(entry) }

// poll is the state of a destination's long poll.
type poll struct {
	running bool               // its goroutine exists
	cancel  context.CancelFunc // of the open request; nil: none is open
	opened  time.Time
	left    chan struct{} // closed when no call is left, so that no pause outlives them; nil: closed already
	timer   *time.Timer   // looks at the calls again; nil: not set
}

// Join adds c to the calls that are played. It may be called again.
func (d *Destination) Join(c *Call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.joined = time.Now()
	d.calls[c] = struct{}{}
	if d.poll.timer == nil {
		d.look()
	}
}

// Leave takes c out. It may be called twice.
func (d *Destination) Leave(c *Call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.calls, c)
	d.keeping.set(c, 0)
	if len(d.calls) > 0 {
		return
	}
	d.silent.Store(nil) // nothing is tried any more
	if d.poll.cancel != nil {
		d.poll.cancel()
	}
	if d.poll.left != nil {
		close(d.poll.left)
		d.poll.left = nil
	}
	if d.poll.timer != nil {
		d.poll.timer.Stop()
		d.poll.timer = nil
	}
}

// Urge says whether c must be named at once, whatever its age.
func (d *Destination) Urge(c *Call, urgent bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.urgent == urgent {
		return
	}
	c.urgent = urgent
	if urgent {
		d.look()
	}
}

// look starts or replaces the poll where a call wants it, and otherwise comes back when one will. d.mu is held.
func (d *Destination) look() {
	now := time.Now()
	wanted, grown := false, false
	var next time.Time
	for c := range d.calls {
		due := c.joined.Add(pollAge)
		if c.urgent || !now.Before(due) {
			wanted = true
			grown = grown || !c.named
		} else if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	if wanted && !d.poll.running {
		d.poll.running = true
		go d.pollLoop()
	} else if grown && d.poll.cancel != nil {
		if again := d.poll.opened.Add(replaceEvery); now.Before(again) {
			next = again
		} else {
			d.poll.cancel()
		}
	}
	d.lookAt(now, next)
}

// lookAt sets the timer. d.mu is held.
func (d *Destination) lookAt(now, at time.Time) {
	if d.poll.timer != nil {
		d.poll.timer.Stop()
		d.poll.timer = nil
	}
	if at.IsZero() {
		return
	}
	d.poll.timer = time.AfterFunc(at.Sub(now), func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.poll.timer = nil
		d.look()
	})
}

// pollLoop polls until no call wants it.
func (d *Destination) pollLoop() {
	var pause time.Duration
	quick := 0
	for {
		ctx, calls, wait, left := d.openPoll()
		if calls == nil {
			return
		}
		started := time.Now()
		err := d.ask(ctx, calls, wait)
		replaced := ctx.Err() == context.Canceled
		d.closePoll()
		took := time.Since(started)
		switch {
		case replaced:
			pause = max(0, replaceEvery-took)
			quick = 0
		case err != nil:
			d.note(started, err)
			pause = min(max(pollPauseMin, 2*pause), wait/2)
		case took < pollPauseMin && quick < quickMax:
			quick++
			pause = 0
		case took < pollPauseMin:
			pause = replaceEvery
		default:
			quick, pause = 0, 0
		}
		rest(pause, left)
	}
}

// rest waits for pause, unless left is closed before.
func rest(pause time.Duration, left <-chan struct{}) {
	if pause <= 0 {
		return
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-left:
	}
}

// openPoll is the next poll; calls is nil when none is wanted, and then the loop is not running any more.
func (d *Destination) openPoll() (ctx context.Context, calls []*Call, wait time.Duration, left <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	wanted := false
	wait = waitMax
	for c := range d.calls {
		wanted = wanted || c.urgent || !now.Before(c.joined.Add(pollAge))
		wait = min(wait, max(pollPauseMin, c.Heartbeat))
	}
	if !wanted {
		d.poll.running = false
		d.look()
		return nil, nil, 0, nil
	}
	for c := range d.calls {
		c.named = true
		calls = append(calls, c)
	}
	// In one order, so that the same happenings make the same requests.
	slices.SortFunc(calls, func(a, b *Call) int { return cmp.Or(a.joined.Compare(b.joined), cmp.Compare(a.ID, b.ID)) })
	if d.poll.left == nil {
		d.poll.left = make(chan struct{})
	}
	ctx, d.poll.cancel = context.WithCancel(context.Background())
	d.poll.opened = now
	return ctx, calls, wait, d.poll.left
}

func (d *Destination) closePoll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.poll.cancel()
	d.poll.cancel = nil
	for c := range d.calls {
		c.named = false
	}
}

type heartbeat struct {
	Process string      `json:"process"`
	Calls   []namedCall `json:"calls"`
	WaitMs  int64       `json:"waitMs"`
}

type namedCall struct {
	Call  string `json:"call"`
	Token string `json:"token"`
	Nonce string `json:"nonce"`
	Seen  int64  `json:"seen"`
}

// ask is one poll: it names calls, and gives them the news.
func (d *Destination) ask(ctx context.Context, calls []*Call, wait time.Duration) error {
	message := heartbeat{Process: d.process, WaitMs: wait.Milliseconds(), Calls: make([]namedCall, len(calls))}
	byNonce := make(map[string]*Call, len(calls))
	for i, c := range calls {
		message.Calls[i] = namedCall{c.ID, c.Token, c.Nonce, c.seen.Load()}
		byNonce[c.Nonce] = c
	}
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wait+d.requestTime())
	defer cancel()
	var answer struct {
		Time  time.Time   `json:"time"`
		Calls []wire.News `json:"calls"`
	}
	if err := d.post(ctx, "/v1/heartbeats", body, &bytes.Buffer{}, &answer); err != nil {
		return err
	}
	d.note(time.Time{}, nil)
	d.learnTime(answer.Time)
	tell(byNonce, answer.Calls)
	return nil
}

// tell gives each playing its news.
func tell(byNonce map[string]*Call, news []wire.News) {
	for i := range news {
		if c := byNonce[news[i].Nonce]; c != nil {
			c.News(&news[i])
		}
	}
}
