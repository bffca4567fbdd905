package postgres

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"math"
	"time"

	"github.com/nelkap/nelkap/internal/store"
)

// Waits implements store.Reader.
func (s *Store) Waits(ctx context.Context, q store.WaitQuery) ([]store.Wait, error) {
	limit := int64(q.Limit)
	if limit == 0 {
		limit = math.MaxInt64
	}
	statement, p := "", &params{}
	switch q.Set {
	case store.WaitsOfRun:
		statement = sqlWaitsOfRun
		p.text(q.RunID).int(q.After).int(limit)
	case store.WaitsUnlooked:
		statement = sqlWaitsUnlooked
		p.int(q.After).int(limit)
	case store.WaitsOfKin:
		statement = sqlWaitsOfKin
		p.int(q.After).int(limit)
	case store.WaitsFulfilled:
		statement = sqlWaitsFulfilled
		p.int(q.After).int(limit)
	case store.WaitsForEvent:
		return s.waitsForEvent(ctx, q, limit)
	default:
		return nil, fmt.Errorf("postgres: no such set of waits: %q", q.Set)
	}
	var out []store.Wait
	err := s.read(ctx, func(b *batch) {
		out = nil
		b.add(statement, p, takeWait(&out))
	})
	return out, err
}

// waitsForEvent lists as many waits as the limit says, if there are as many. What names the event is read in pages of that size, and some of a
// page may have used it, or not looked back yet: then another follows.
func (s *Store) waitsForEvent(ctx context.Context, q store.WaitQuery, limit int64) ([]store.Wait, error) {
	pairs := &rowset{}
	for _, pair := range append([][2]string{{"", ""}}, q.Pairs...) {
		t := pairs.row()
		t.text(pair[0])
		t.text(pair[1])
	}
	var out []store.Wait
	for after := q.After; ; {
		p, columns := (&params{}).text(q.Env).text(q.Event), pairs.params()
		p.values, p.oids = append(p.values, columns.values...), append(p.oids, columns.oids...)
		ids, err := list(ctx, s, sqlWaitsNaming, p.int(after).int(limit), (*scanner).int)
		if err != nil || len(ids) == 0 {
			return out, err
		}
		page := &rowset{}
		for _, id := range ids {
			page.row().int(id)
		}
		var waits []store.Wait
		err = s.read(ctx, func(b *batch) {
			waits = nil
			b.add(sqlWaitsForEvent, page.params().int(q.Position), takeWait(&waits))
		})
		if err != nil {
			return nil, err
		}
		out = append(out, waits...)
		if int64(len(ids)) < limit || int64(len(out)) >= limit {
			return out[:min(int64(len(out)), limit)], nil
		}
		after = ids[len(ids)-1]
	}
}

func takeWait(out *[]store.Wait) func(*scanner) error {
	return func(r *scanner) error {
		w, err := scanWait(r)
		*out = append(*out, w)
		return err
	}
}

// MatchPaths implements store.Reader.
func (s *Store) MatchPaths(ctx context.Context, env, event string) ([]string, error) {
	return list(ctx, s, sqlSelectMatchPaths, (&params{}).text(env).text(event), (*scanner).text)
}

// Callback implements store.Reader.
func (s *Store) Callback(ctx context.Context, q store.CallbackQuery) (store.Callback, error) {
	statement, p := sqlSelectCallback, (&params{}).text(q.TokenHash)
	if q.TokenHash == "" {
		statement, p = sqlSelectCallbackOfStep, (&params{}).text(q.RunID).text(q.Name).int(int64(q.Number))
	}
	var c store.Callback
	err := s.query(ctx, statement, p, func(r *scanner) error { c = scanCallback(r); return nil })
	return c, found(err, c.RunID != "", "callback")
}

// Position implements store.Reader.
func (s *Store) Position(ctx context.Context, cursor string) (position int64, err error) {
	err = s.query(ctx, sqlSelectPosition, (&params{}).text(cursor), func(r *scanner) error { position = r.int(); return nil })
	return position, err
}

// Schedules implements store.Reader.
func (s *Store) Schedules(ctx context.Context, q store.ScheduleQuery) ([]store.Schedule, error) {
	p := (&params{}).text(q.Env).text(q.ID).text(q.App).text(q.After).time(q.DueBy).int(int64(q.Limit)).int(int64(q.BytesMax))
	return list(ctx, s, sqlSchedules, p, func(r *scanner) store.Schedule {
		return store.Schedule{
			Env: r.text(), ID: r.text(), App: r.text(), Workflow: r.text(), Expression: r.text(), Timezone: r.text(), CatchUp: r.text(), Payload: r.blob(),
			Declared: r.bool(), Paused: r.bool(), Version: r.int(), Cursor: r.time(), NextAt: r.time(), CreatedAt: r.time(),
		}
	})
}

// LaterEvents implements store.Reader.
func (s *Store) LaterEvents(ctx context.Context, q store.LaterQuery) ([]store.LaterEvent, error) {
	return list(ctx, s, sqlLaterDue, (&params{}).time(q.DueBy).int(int64(q.Limit)).int(int64(q.BytesMax)), func(r *scanner) store.LaterEvent {
		return store.LaterEvent{Env: r.text(), ID: r.text(), Name: r.text(), Payload: r.blob(), DueAt: r.time()}
	})
}

// NextDue implements store.Reader.
func (s *Store) NextDue(ctx context.Context) (next time.Time, err error) {
	err = s.query(ctx, sqlNextDue, nil, func(r *scanner) error { next = r.time(); return nil })
	return next, err
}

func scanDelivery(r *scanner) (store.Delivery, error) {
	d := store.Delivery{
		ID: r.text(), Env: r.text(), Hook: r.text(), Provider: r.text(), Status: store.DeliveryStatus(r.text()), Reason: r.text(),
		ProviderID: r.text(), RedeliveryOf: r.text(),
	}
	if err := json.Unmarshal(r.blob(), &d.Events); err != nil {
		return d, fmt.Errorf("reading the events of delivery %s: %w", d.ID, err)
	}
	d.ReceivedAt, d.Bytes, d.Position = r.time(), r.int(), r.int()
	return d, nil
}

// Delivery implements store.Reader.
func (s *Store) Delivery(ctx context.Context, env, id string) (store.Delivery, error) {
	var d store.Delivery
	err := s.query(ctx, sqlSelectDelivery, (&params{}).text(id).text(env), func(r *scanner) (err error) {
		if d, err = scanDelivery(r); err == nil {
			d.Request, d.Body = r.blob(), r.blob()
		}
		return err
	})
	return d, found(err, d.ID != "", "delivery "+id)
}

// Deliveries implements store.Reader.
func (s *Store) Deliveries(ctx context.Context, q store.DeliveryQuery) ([]store.Delivery, error) {
	p := (&params{}).text(q.Env).text(q.Hook).list(string(q.Status)).int(q.Before).int(int64(q.Limit))
	var out []store.Delivery
	err := s.read(ctx, func(b *batch) {
		out = nil
		b.add(sqlSelectDeliveries, p, func(r *scanner) error {
			d, err := scanDelivery(r)
			out = append(out, d)
			return err
		})
	})
	return out, err
}
