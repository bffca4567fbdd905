package sqlite

import (
	"context"
	"encoding/json/v2"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/nelkap/nelkap/internal/store"
)

func (s *Store) checkDelivery(id string) (refusal, err error) {
	err = query(s.writer, sqlSelectDeliveryExists, func(b *binder) { b.text(id) }, func(*scanner) error {
		refusal = fmt.Errorf("delivery %s: %w", id, store.ErrExists)
		return nil
	})
	return refusal, err
}

func (s *Store) insertDelivery(d store.Delivery) error {
	events, err := json.Marshal(d.Events)
	if err != nil {
		return fmt.Errorf("encoding the events of delivery %s: %w", d.ID, err)
	}
	err = exec(s.writer, sqlInsertDelivery, func(b *binder) {
		for _, text := range []string{d.ID, d.Env, d.Hook, d.Provider, string(d.Status), d.Reason, d.ProviderID, d.RedeliveryOf, string(events)} {
			b.text(text)
		}
		b.time(d.ReceivedAt)
		b.int(int64(len(d.Request) + len(d.Body)))
	})
	if err != nil {
		return err
	}
	position := s.writer.LastInsertRowID()
	return exec(s.writer, sqlInsertDeliveryValues, func(b *binder) { b.int(position); b.blob(d.Request); b.blob(d.Body) })
}

func (s *Store) dropDeliveries(op store.DropDeliveries, res *store.Result) error {
	err := exec(s.writer, sqlDropDeliveries, func(b *binder) {
		b.bool(op.Rejected)
		b.time(op.Before)
		b.int(int64(op.CountMax))
		b.int(op.BytesMax)
		b.int(int64(op.Limit))
	})
	res.Dropped += s.writer.Changes()
	return err
}

func scanDelivery(r *scanner) (store.Delivery, error) {
	d := store.Delivery{
		ID: r.text(), Env: r.text(), Hook: r.text(), Provider: r.text(), Status: store.DeliveryStatus(r.text()), Reason: r.text(),
		ProviderID: r.text(), RedeliveryOf: r.text(),
	}
	if err := json.Unmarshal([]byte(r.text()), &d.Events); err != nil {
		return d, fmt.Errorf("reading the events of delivery %s: %w", d.ID, err)
	}
	d.ReceivedAt, d.Bytes, d.Position = r.time(), r.int(), r.int()
	return d, nil
}

// Delivery implements store.Reader.
func (s *Store) Delivery(ctx context.Context, env, id string) (store.Delivery, error) {
	var d store.Delivery
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		err := query(conn, sqlSelectDelivery, func(b *binder) { b.text(id); b.text(env) }, func(r *scanner) (err error) {
			if d, err = scanDelivery(r); err == nil {
				d.Request, d.Body = r.blob(), r.blob()
			}
			return err
		})
		if err != nil || d.ID == "" {
			return orNotFound(err, "delivery "+id)
		}
		return nil
	})
	return d, err
}

// Deliveries implements store.Reader.
func (s *Store) Deliveries(ctx context.Context, q store.DeliveryQuery) ([]store.Delivery, error) {
	var out []store.Delivery
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		return query(conn, sqlSelectDeliveries, func(b *binder) {
			b.text(q.Env)
			b.text(q.Hook)
			b.text(string(q.Status))
			b.int(q.Before)
			b.int(int64(q.Limit))
		}, func(r *scanner) error {
			d, err := scanDelivery(r)
			out = append(out, d)
			return err
		})
	})
	return out, err
}
