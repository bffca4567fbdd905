package standin

import (
	"sync"
	"time"
)

// keyLife is how long Stripe promises to remember a key at least. The stand-in remembers none longer, so that nobody comes
// to rely on more.
const keyLife = 24 * time.Hour

// keys remembers the first answer to each idempotency key, as Stripe documents it:
//
//   - the same key with the same request gets the first answer again, whether that was a success or an error of any status;
//   - the same key with another request is refused;
//   - a key whose first request still runs is refused, and may be sent again later;
//   - nothing is kept where the request never began: it failed validation, or was refused as above.
type keys struct {
	now   func() time.Time
	mu    sync.Mutex
	known map[string]*keyed // by scope and key
}

// keyed is one key's first request.
type keyed struct {
	request string // what was asked, in a form that can be compared
	since   time.Time
	answer  *answer // nil while the request runs
}

func newKeys(now func() time.Time) *keys {
	return &keys{now: now, known: map[string]*keyed{}}
}

// verdict says what a key means for a request.
type verdict int

const (
	first   verdict = iota // carry it out, then keep or forget
	again                  // give the kept answer
	differs                // refuse: the key belongs to another request
	inUse                  // refuse: the first request still runs
)

// begin looks a key up and takes it where it is new: then the caller must call keep or forget.
func (k *keys) begin(key, request string) (verdict, answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	entry := k.known[key]
	switch {
	case entry == nil || entry.answer != nil && k.now().Sub(entry.since) >= keyLife:
		k.known[key] = &keyed{request: request, since: k.now()}
		return first, answer{}
	case entry.answer == nil:
		return inUse, answer{}
	case entry.request != request:
		return differs, answer{}
	default:
		return again, *entry.answer
	}
}

// keep ends the first request of a key with its answer.
func (k *keys) keep(key string, a answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known[key].answer = &a
}

// forget ends the first request of a key that never began.
func (k *keys) forget(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.known, key)
}
