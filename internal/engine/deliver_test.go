package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
)

func deliverRequest(providerID string) engine.DeliverRequest {
	return engine.DeliverRequest{
		Delivery: store.Delivery{Env: engine.DefaultEnv, Hook: "pay", Provider: "stripe", Status: store.DeliveryVerified, ProviderID: providerID, Request: jsontext.Value(`{}`), Body: []byte("{}")},
		Events:   []engine.NewEvent{{Name: "stripe.paid", Payload: jsontext.Value(`1`)}, {Name: "webhook.pay", Payload: jsontext.Value(`1`)}},
	}
}

func allDeliveries(t testing.TB, s store.Reader, status store.DeliveryStatus) []store.Delivery {
	t.Helper()
	list, err := s.Deliveries(context.Background(), store.DeliveryQuery{Env: engine.DefaultEnv, Status: status, Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// stepping is a clock that can be set forward, and lets a sweep go by after it: days of timers would take long to play.
func stepping() (clock func() time.Time, pass func(time.Duration)) {
	var ahead atomic.Int64
	return func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }, func(d time.Duration) {
		ahead.Add(int64(d))
		time.Sleep(11 * time.Minute)
		synctest.Wait()
	}
}

// Rule E1, W7: a delivery, its events and their runs are there together or not at all, and a workflow that listens to several of the
// events is started once.
func TestADeliveryIsStoredWithWhatItStarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		on := func(name string, events ...string) wire.Workflow {
			w := wire.Workflow{Name: name}
			for _, e := range events {
				w.Triggers = append(w.Triggers, wire.Trigger{Event: e})
			}
			return w
		}
		a := newApp(on("both", "webhook.pay", "stripe.paid"), on("hook", "webhook.pay"), on("filtered", "stripe.paid", "webhook.pay"))
		a.manifest.Workflows[2].Triggers[0].If = "payload == 2"
		n, s := startFaulty(t, a)
		s.set(func(changes []store.Change) error {
			return fmt.Errorf("a value that the database refuses: %w", store.ErrBadChange)
		})
		if _, err := n.Deliver(context.Background(), deliverRequest("evt_1")); !errors.Is(err, store.ErrBadChange) {
			t.Fatal(err)
		}
		s.set(nil)
		if list := allDeliveries(t, s, ""); len(list) != 0 {
			t.Fatalf("%+v", list)
		}
		a.none(t, time.Minute)
		d, err := n.Deliver(context.Background(), deliverRequest("evt_1"))
		if err != nil || !d.Created || d.Delivery.Events[0].Runs != 1 || d.Delivery.Events[1].Runs != 2 {
			t.Fatalf("%+v, %v", d, err)
		}
		started := map[string]string{}
		for range 3 {
			c := a.next(t, time.Second)
			started[c.Run.Workflow] = c.Run.Event.Event
		}
		want(t, "started", started, map[string]string{"both": "stripe.paid", "hook": "webhook.pay", "filtered": "webhook.pay"})
		a.none(t, time.Minute)
	})
}

// Rule K3: a delivery's id is known for ninety days, longer than the delivery itself is kept.
func TestADeliveriesIDIsKnownForNinetyDays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		clock, pass := stepping()
		n, s := startApp(t, newApp(), engine.Options{Clock: clock})
		deliver := func() engine.Delivered {
			t.Helper()
			r := deliverRequest("evt_1")
			r.Dedupe = true
			d, err := n.Deliver(context.Background(), r)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		first := deliver()
		pass(31 * 24 * time.Hour)
		if list := allDeliveries(t, s, ""); len(list) != 0 {
			t.Fatalf("it is kept still: %+v", list)
		}
		again := deliver()
		if again.Created || again.Delivery.Status != store.DeliveryDuplicate || again.Delivery.Events[0] != first.Delivery.Events[0] {
			t.Fatalf("%+v, then %+v", first, again)
		}
		pass(60 * 24 * time.Hour)
		if d := deliver(); !d.Created || d.Delivery.Events[0].ID == first.Delivery.Events[0].ID {
			t.Fatalf("after ninety days: %+v", d)
		}
	})
}

// Rule W8: of deliveries with one id that come at once, one emits.
func TestOfOneDeliveryThatComesManyTimesAtOnceOneEmits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, s := startApp(t, newApp(), engine.Options{})
		var wait sync.WaitGroup
		var emitted atomic.Int32
		for range 50 {
			wait.Go(func() {
				r := deliverRequest("evt_1")
				r.Dedupe = true
				d, err := n.Deliver(context.Background(), r)
				if err != nil || len(d.Delivery.Events) != 2 {
					t.Errorf("%+v, %v", d, err)
				}
				if d.Created {
					emitted.Add(1)
				}
			})
		}
		wait.Wait()
		want(t, "emitted", emitted.Load(), int32(1))
		want(t, "duplicates", len(allDeliveries(t, s, store.DeliveryDuplicate)), 49)
	})
}

func TestDeliveriesAreSweptByAgeAndNumber(t *testing.T) {
	bubble(t, func(t *testing.T) {
		clock, pass := stepping()
		n, s := startApp(t, newApp(), engine.Options{DeliveriesFor: 24 * time.Hour, DeliveriesMax: 120, Clock: clock})
		for i := range 400 {
			if _, err := n.Deliver(context.Background(), deliverRequest(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		for range 1_100 {
			if err := n.Reject(store.Delivery{Env: engine.DefaultEnv, Hook: "pay", Request: jsontext.Value(`{}`), Body: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
		}
		if kept := len(allDeliveries(t, s, store.DeliveryRejected)); kept < 1_000 || kept > 1_031 {
			t.Errorf("%d rejected deliveries are kept", kept)
		}
		pass(0)
		want(t, "rejected", len(allDeliveries(t, s, store.DeliveryRejected)), 1_000)
		kept := allDeliveries(t, s, store.DeliveryVerified)
		want(t, "kept", len(kept), 120)
		want(t, "the newest", kept[0].ProviderID, "399")
		pass(24 * time.Hour)
		want(t, "after a day", len(allDeliveries(t, s, "")), 0)
	})
}
