package engine

import (
	"context"
	"encoding/json/v2"
	"errors"
	"time"

	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store"
)

// The bounds of kept deliveries.
const (
	deliveriesForStd = 30 * 24 * time.Hour // as events are kept
	deliveriesMaxStd = 10_000
	// Rejected ones may come from anybody, as fast as they like: enough to find a mistake, in a tenth of the space of a small disk's
	// gigabyte.
	rejectedMax      = 1_000
	rejectedBytesMax = 64 << 20
	// trimEvery is how many deliveries are rejected between looks whether they are too many: whoever can reach the port decides how many come,
	// and a look takes longer than keeping one.
	trimEvery = 32
	// deliveriesPage: a delivery has at most half a megabyte, and no commit should wait for more than some.
	deliveriesPage = 50
	deliveryRounds = 200 // of a sweep
)

// DeliverRequest is a delivery to a configured hook that is to emit its events.
type DeliverRequest struct {
	// Delivery has no events yet, and no instant, nor, unless its client drew it, an id.
	Delivery store.Delivery
	// Events have no ids: each delivery's are new. They stand for one fact: a workflow that several of them would start is started by
	// the first of these alone.
	Events []NewEvent
	// Dedupe: a delivery to this hook with a ProviderID that came within 90 days emits nothing, and is answered with the events of
	// the first.
	Dedupe bool
	// Request is a client's Idempotency-Key; nil: none.
	Request *RequestKey
}

// Delivered is what became of a delivery. Created: it emitted its events; else Delivery is, or has the events of, one before.
type Delivered struct {
	Delivery store.Delivery
	Created  bool
	Replayed bool // it was the same request again
}

// Deliver stores a delivery, its events and the runs that they start in one transaction (E1). It is durable on return.
func (e *Engine) Deliver(ctx context.Context, r DeliverRequest) (Delivered, error) {
	if err := e.committer.refuses(); err != nil {
		return Delivered{}, err
	}
	d := r.Delivery
	d.ReceivedAt = e.now()
	if d.ID == "" {
		d.ID = id.New(id.Delivery)
	}
	var change store.Change
	var runs [][]launched
	started := map[starts]bool{}
	for _, ev := range r.Events {
		ev.ID = id.New(id.Event)
		ops, list := e.eventOpsBut(d.Env, ev, started)
		runs, change = append(runs, list), append(change, ops...)
		d.Events = append(d.Events, store.DeliveryEvent{ID: ev.ID, Event: ev.Name, Runs: len(list)})
	}
	change = append(change, store.InsertDelivery{Delivery: d})
	key := e.deliveryKey(r, d)
	if key != nil {
		change = store.Change{store.TakeKey{Key: *key, Now: d.ReceivedAt, Then: change}}
	}
	res, err := e.committer.commit(change)
	e.matching.wake() // runs may wait for these events
	switch {
	case err != nil:
		e.giveBackAll(runs)
		return e.deliveredBefore(ctx, d, err)
	case key != nil && !res.Keys[0].Taken:
		e.giveBackAll(runs)
		return e.standingDelivery(ctx, r, d, res.Keys[0].Key)
	}
	for _, list := range runs {
		e.launchAll(list)
	}
	return Delivered{Delivery: d, Created: true}, nil
}

// deliveryKey is the key that keeps a delivery from emitting twice; nil: it may.
func (e *Engine) deliveryKey(r DeliverRequest, d store.Delivery) *store.Key {
	switch {
	case r.Request != nil:
		return new(requestKey(d.Env, r.Request, d.ID, d.ReceivedAt))
	case r.Dedupe && d.ProviderID != "":
		events, _ := json.Marshal(d.Events) // texts and numbers: it can't fail
		return &store.Key{
			Env: d.Env, Kind: store.KeyDelivery, Scope: d.Hook, Key: d.ProviderID, Owner: d.ID, Hash: hashOf(d.Body), Answer: events,
			ExpiresAt: d.ReceivedAt.Add(eventKeyLife),
		}
	default:
		return nil
	}
}

// deliveredBefore answers a delivery whose client drew its id, and whose first try got through (K6).
func (e *Engine) deliveredBefore(ctx context.Context, d store.Delivery, err error) (Delivered, error) {
	if !errors.Is(err, store.ErrExists) {
		return Delivered{}, err
	}
	stored, err := e.store.Delivery(ctx, d.Env, d.ID)
	return Delivered{Delivery: stored, Created: true}, err
}

// standingDelivery answers a delivery whose key is taken: the same request again with what it made, one of the sender's again with the
// first one's events, beside which it is kept.
func (e *Engine) standingDelivery(ctx context.Context, r DeliverRequest, d store.Delivery, key store.Key) (Delivered, error) {
	if key.Kind == store.KeyRequest {
		if key.Hash != r.Request.Hash {
			return Delivered{}, ErrRequestDiffers
		}
		stored, err := e.store.Delivery(ctx, d.Env, key.Owner)
		return Delivered{Delivery: stored, Created: true, Replayed: true}, err
	}
	d.Status, d.Events = store.DeliveryDuplicate, nil
	if err := json.Unmarshal(key.Answer, &d.Events); err != nil {
		return Delivered{}, err
	}
	_, err := e.committer.commit(store.Change{store.InsertDelivery{Delivery: d}})
	return Delivered{Delivery: d}, err
}

// Reject keeps a delivery that emits nothing, apart from the others and within bounds, but for the last trimEvery: the oldest make room. While
// the server is busy it is not kept.
func (e *Engine) Reject(d store.Delivery) error {
	if err := e.committer.refuses(); err != nil {
		return err
	}
	d.ID, d.ReceivedAt, d.Status = id.New(id.Delivery), e.now(), store.DeliveryRejected
	change := store.Change{store.InsertDelivery{Delivery: d}}
	if e.rejections.Add(1)%trimEvery == 0 {
		change = append(change, store.DropDeliveries{Rejected: true, CountMax: rejectedMax, BytesMax: rejectedBytesMax, Limit: rejectedMax})
	}
	_, err := e.committer.commit(change)
	return err
}

// sweepDeliveries drops deliveries that are too old or too many, some at a time.
func (e *Engine) sweepDeliveries() error {
	before := e.now().Add(-e.options.DeliveriesFor)
	for _, op := range []store.DropDeliveries{
		{Before: before, CountMax: e.options.DeliveriesMax, Limit: deliveriesPage},
		{Rejected: true, Before: before, CountMax: rejectedMax, BytesMax: rejectedBytesMax, Limit: deliveriesPage},
	} {
		for range deliveryRounds {
			res, err := e.committer.commit(store.Change{op})
			if err != nil {
				return err
			}
			if res.Dropped < op.Limit || e.ctx.Err() != nil {
				break
			}
		}
	}
	return nil
}
