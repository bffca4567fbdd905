package contact

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

const (
	// flightsMax is how many requests of a batcher are in flight at once, and company how many messages must wait before there is
	// another one: while the server commits one batch, the code of the others goes on.
	flightsMax = 4
	company    = 16
	// besideMax is how many big messages are in flight beside the batches at once: enough to fill a line, few enough to hold
	// little memory twice.
	besideMax = 4
	// roomBytesMax is the largest text that leaves its room to the next one: a request of a thousand small results has less.
	roomBytesMax = 1 << 20
)

// message is one call's part of a request.
type message interface {
	Size() int
	AppendJSON(b []byte) []byte
}

// entry is a message that waits for its outcome.
type entry[M message, O any] struct {
	message  M
	manifest string // stands once in the request; empty: not at all
	done     func(*O)
}

// batcher sends messages of one kind: each request takes everything that arrived during the one before. Big messages go beside,
// so that they hold up no other run; items of one call keep their order because a call has one message under way at a time.
type batcher[M message, O any] struct {
	d           *Destination
	path, field string

	mu      sync.Mutex
	queue   []entry[M, O]
	flights int // goroutines that send batches
	big     []entry[M, O]
	beside  int // goroutines that send big messages
}

func (b *batcher[M, O]) add(e entry[M, O]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.message.Size() > wire.BesideBytes {
		b.big = append(b.big, e)
		if b.beside < besideMax {
			b.beside++
			go b.sendBig()
		}
		return
	}
	b.queue = append(b.queue, e)
	if b.flights == 0 || b.flights < flightsMax && len(b.queue) >= company {
		b.flights++
		go b.sendAll()
	}
}

// flight is what a goroutine that sends uses again from one request to the next, up to roomBytesMax.
type flight[M message, O any] struct {
	batch    []entry[M, O]
	text     []byte
	answer   bytes.Buffer
	outcomes []O
}

func (b *batcher[M, O]) sendAll() {
	var f flight[M, O]
	for b.take(&f) {
		b.send(&f, f.batch)
		if cap(f.text) > roomBytesMax || f.answer.Cap() > roomBytesMax {
			f = flight[M, O]{}
		}
		// The outcomes have just woken code that will save again: let it, so that the next request carries more.
		runtime.Gosched()
	}
}

// take fills f with the next batch: messages with one manifest, up to the size of a request. After false this goroutine is done.
func (b *batcher[M, O]) take(f *flight[M, O]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.flights--
		return false
	}
	manifest, size := b.queue[0].manifest, 0
	clear(f.batch) // what was sent may go, though fewer come now
	f.batch = f.batch[:0]
	rest := b.queue[:0]
	for _, e := range b.queue {
		size += e.message.Size()
		if e.manifest == manifest && size < wire.RequestBytesMax/2 {
			f.batch = append(f.batch, e)
		} else {
			rest = append(rest, e)
		}
	}
	clear(b.queue[len(rest):])
	b.queue = rest
	return true
}

func (b *batcher[M, O]) sendBig() {
	for {
		b.mu.Lock()
		if len(b.big) == 0 {
			b.beside--
			b.mu.Unlock()
			return
		}
		e := b.big[0]
		b.big = b.big[1:]
		b.mu.Unlock()
		b.send(&flight[M, O]{}, []entry[M, O]{e})
	}
}

// send sends one request and hands out its outcomes. A request refused for its framing is sent again one by one, so that a
// message that can't be sent does not hold up the others.
func (b *batcher[M, O]) send(f *flight[M, O], batch []entry[M, O]) {
	sentAt := time.Now()
	outcomes, err := b.request(f, batch)
	b.d.note(sentAt, err)
	var refused *StatusError
	framing := errors.As(err, &refused) &&
		(refused.Status == http.StatusBadRequest || refused.Status == http.StatusRequestEntityTooLarge)
	if framing && len(batch) > 1 {
		for i := range batch {
			b.send(f, batch[i:i+1])
		}
		return
	}
	for i, e := range batch {
		if err != nil {
			e.done(nil)
		} else {
			e.done(&outcomes[i])
		}
	}
}

func (b *batcher[M, O]) request(f *flight[M, O], batch []entry[M, O]) ([]O, error) {
	text := f.text[:0]
	text = append(append(append(text, `{"process":"`...), b.d.process...), '"')
	if batch[0].manifest != "" {
		text = wire.AppendString(append(text, `,"manifest":`...), batch[0].manifest)
	}
	text = append(append(append(text, `,"`...), b.field...), `":[`...)
	for i, e := range batch {
		if i > 0 {
			text = append(text, ',')
		}
		text = e.message.AppendJSON(text)
	}
	text = append(text, "]}"...)
	f.text = text
	body := bytes.Clone(text) // which a transport may read even after the answer
	ctx, cancel := context.WithTimeout(context.Background(), b.d.requestTime()+time.Duration(len(body)/bytesPerSecond)*time.Second)
	defer cancel()
	var answer struct {
		Time  time.Time `json:"time"`
		Saves []O       `json:"saves"`
		Ends  []O       `json:"ends"`
	}
	answer.Saves = f.outcomes[:0]
	clear(f.outcomes[:cap(f.outcomes)]) // or what is decoded would be laid over what is there
	if err := b.d.post(ctx, b.path, body, &f.answer, &answer); err != nil {
		return nil, err
	}
	outcomes := answer.Saves
	outcomes = append(outcomes, answer.Ends...) // one of them is empty
	f.outcomes = outcomes
	if len(outcomes) != len(batch) {
		return nil, errors.New("the server's answer has another number of outcomes than there were messages")
	}
	b.d.learnTime(answer.Time)
	return outcomes, nil
}
