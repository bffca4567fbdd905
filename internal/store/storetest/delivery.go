package storetest

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nelkap/nelkap/internal/store"
)

// delivery makes the n-th delivery, received n seconds after T0.
func delivery(n int, status store.DeliveryStatus) store.Delivery {
	return store.Delivery{
		Env: "default", ID: fmt.Sprintf("dlv_%d", n), Hook: "shop", Provider: "stripe", Status: status, ReceivedAt: T0.Add(time.Duration(n) * time.Second),
		Request: jsontext.Value(`{"method":"POST"}`), Body: []byte("{}"),
	}
}

func deliveries(t testing.TB, s store.Store, q store.DeliveryQuery) string {
	t.Helper()
	q.Env, q.Limit = "default", 100
	list, err := s.Deliveries(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, d := range list {
		if d.Request != nil || d.Body != nil || d.Bytes == 0 || d.Position == 0 {
			t.Errorf("a list's delivery: %+v", d)
		}
		ids = append(ids, strings.TrimPrefix(d.ID, "dlv_"))
	}
	return strings.Join(ids, " ")
}

func deliveriesAreKept(t *testing.T, s store.Store) {
	ctx := context.Background()
	d := delivery(1, store.DeliveryRejected)
	d.Reason, d.ProviderID, d.RedeliveryOf = "no \x00 secret made it", "evt_✓", "dlv_0"
	d.Events = []store.DeliveryEvent{{ID: "evt_1", Event: "stripe.charge.succeeded", Runs: 2}, {ID: "evt_2", Event: "webhook.shop"}}
	d.Body = []byte("\x00\xff\r\n ")
	must(t, s, store.InsertDelivery{Delivery: d})
	refused(t, s, store.ErrExists, store.InsertDelivery{Delivery: d})
	got, err := s.Delivery(ctx, "default", d.ID)
	if err != nil {
		t.Fatal(err)
	}
	d.Position, d.Bytes = got.Position, int64(len(d.Request)+len(d.Body))
	equal(t, got, d)
	for _, other := range [][2]string{{"other", d.ID}, {"default", "dlv_2"}} {
		if _, err := s.Delivery(ctx, other[0], other[1]); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%v: %v", other, err)
		}
	}
	key := store.Key{Env: "default", Kind: store.KeyDelivery, Scope: "shop", Key: "evt_1", Owner: "dlv_3", Answer: []byte(`[]`)}
	for n, owner := range []string{"dlv_3", "dlv_4"} { // the second finds the first's key, and is not stored
		key.Owner = owner
		again := delivery(3+n, store.DeliveryVerified)
		if res := must(t, s, store.TakeKey{Key: key, Now: T0, Then: []store.Op{store.InsertDelivery{Delivery: again}}}); res.Keys[0].Taken != (n == 0) || res.Keys[0].Key.Owner != "dlv_3" || string(res.Keys[0].Key.Answer) != `[]` {
			t.Errorf("%s: %+v", owner, res)
		}
	}
	equal(t, deliveries(t, s, store.DeliveryQuery{}), "3 1")
	empty := store.Delivery{Env: "default", ID: "dlv_2", Hook: "erp", Status: store.DeliveryVerified, ReceivedAt: T0}
	must(t, s, store.InsertDelivery{Delivery: empty})
	if got, err := s.Delivery(ctx, "default", "dlv_2"); err != nil || len(got.Body) != 0 || len(got.Events) != 0 {
		t.Errorf("an empty one: %+v, %v", got, err)
	}
}

func deliveriesAreListed(t *testing.T, s store.Store) {
	for n := range 4 {
		d := delivery(n, store.DeliveryVerified)
		if n%2 == 1 {
			d.Hook, d.Status = "erp", store.DeliveryRejected
		}
		must(t, s, store.InsertDelivery{Delivery: d})
	}
	equal(t, deliveries(t, s, store.DeliveryQuery{}), "3 2 1 0")
	equal(t, deliveries(t, s, store.DeliveryQuery{Hook: "shop"}), "2 0")
	equal(t, deliveries(t, s, store.DeliveryQuery{Status: store.DeliveryRejected}), "3 1")
	equal(t, deliveries(t, s, store.DeliveryQuery{Hook: "shop", Status: store.DeliveryRejected}), "")
	third, err := s.Delivery(context.Background(), "default", "dlv_2")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, deliveries(t, s, store.DeliveryQuery{Before: third.Position}), "1 0")
	list, err := s.Deliveries(context.Background(), store.DeliveryQuery{Env: "default", Limit: 1})
	if err != nil || len(list) != 1 || list[0].ID != "dlv_3" {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := s.Deliveries(context.Background(), store.DeliveryQuery{Env: "other", Limit: 1}); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

func deliveriesAreBounded(t *testing.T, s store.Store) {
	drop := func(op store.DropDeliveries, dropped int, left string) {
		t.Helper()
		if res := must(t, s, op); res.Dropped != dropped {
			t.Errorf("%+v: dropped %d, want %d", op, res.Dropped, dropped)
		}
		equal(t, deliveries(t, s, store.DeliveryQuery{}), left)
	}
	for n := range 8 { // even ones are verified
		d := delivery(n, store.DeliveryVerified)
		if n%2 == 1 {
			d.Status = store.DeliveryRejected
		}
		must(t, s, store.InsertDelivery{Delivery: d})
	}
	one := int64(len(`{"method":"POST"}{}`))
	drop(store.DropDeliveries{Limit: 100}, 0, "7 6 5 4 3 2 1 0")
	drop(store.DropDeliveries{CountMax: 4, BytesMax: 4 * one, Limit: 100}, 0, "7 6 5 4 3 2 1 0")
	drop(store.DropDeliveries{CountMax: 1, Limit: 1}, 1, "7 6 5 4 3 2 1")
	drop(store.DropDeliveries{Rejected: true, CountMax: 3, Limit: 100}, 1, "7 6 5 4 3 2")
	drop(store.DropDeliveries{Rejected: true, BytesMax: 2*one + 1, Limit: 100}, 1, "7 6 5 4 2")
	drop(store.DropDeliveries{Before: T0.Add(4 * time.Second), Limit: 100}, 2, "7 6 5")
	drop(store.DropDeliveries{Rejected: true, Before: T0.Add(4 * time.Second), CountMax: 9, BytesMax: 1 << 30, Limit: 100}, 0, "7 6 5")
	drop(store.DropDeliveries{Rejected: true, BytesMax: 1, Limit: 100}, 2, "6")
	drop(store.DropDeliveries{CountMax: 1, Limit: 100}, 0, "6")
	if _, err := s.Delivery(context.Background(), "default", "dlv_0"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a dropped delivery: %v", err)
	}
	before, err := s.Delivery(context.Background(), "default", "dlv_6")
	if err != nil {
		t.Fatal(err)
	}
	must(t, s, store.DropDeliveries{Before: T0.Add(time.Hour), Limit: 100})
	must(t, s, store.InsertDelivery{Delivery: delivery(9, store.DeliveryVerified)})
	if after, err := s.Delivery(context.Background(), "default", "dlv_9"); err != nil || after.Position <= before.Position {
		t.Errorf("a position came again: %d after %d, %v", after.Position, before.Position, err)
	}
}

// delivering draws an op on deliveries.
func (m *machine) delivering(r *rapid.T, now time.Time) store.Op {
	rejected := rapid.Bool().Draw(r, "rejected")
	if rapid.IntRange(0, 2).Draw(r, "drop") == 0 {
		op := store.DropDeliveries{Rejected: rejected, CountMax: rapid.IntRange(0, 3).Draw(r, "count"), BytesMax: int64(rapid.IntRange(0, 60).Draw(r, "bytes")), Limit: rapid.IntRange(1, 3).Draw(r, "limit")}
		if rapid.Bool().Draw(r, "old") {
			op.Before = now.Add(-5 * time.Second)
		}
		return op
	}
	d := delivery(rapid.IntRange(0, 5).Draw(r, "delivery"), store.DeliveryVerified)
	if rejected {
		d.Status, d.Reason = store.DeliveryRejected, "no secret made it"
	}
	d.ReceivedAt, d.Body = now, []byte(strings.Repeat("x", rapid.IntRange(0, 20).Draw(r, "size")))
	return store.InsertDelivery{Delivery: d}
}

// dumpDeliveries reads the deliveries that delivering draws, each whole.
func (c *Contents) dumpDeliveries(s store.Reader, check func(error)) {
	list, err := s.Deliveries(context.Background(), store.DeliveryQuery{Env: "default", Limit: 100})
	check(err)
	for _, d := range list {
		whole, err := s.Delivery(context.Background(), "default", d.ID)
		check(err)
		c.Deliveries = append(c.Deliveries, whole)
	}
}
