package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/nelkap/nelkap/internal/store"
)

func (s *Store) delivery(id string) *store.Delivery {
	for i := range s.deliveries {
		if s.deliveries[i].ID == id {
			return &s.deliveries[i]
		}
	}
	return nil
}

func (s *Store) insertDelivery(d store.Delivery) {
	s.delivered++
	d.Position, d.Bytes = s.delivered, int64(len(d.Request)+len(d.Body))
	s.deliveries = append(s.deliveries, d)
}

// dropDeliveries looks from the newest on: what is past a bound is doomed, and of that the oldest go.
func (s *Store) dropDeliveries(op store.DropDeliveries) int {
	var doomed []int64 // positions, newest first
	count, size := 0, int64(0)
	for _, d := range slices.Backward(s.deliveries) {
		if (d.Status == store.DeliveryRejected) != op.Rejected {
			continue
		}
		count, size = count+1, size+d.Bytes
		isOld := !op.Before.IsZero() && !d.ReceivedAt.After(op.Before)
		if isOld || (op.CountMax > 0 && count > op.CountMax) || (op.BytesMax > 0 && size > op.BytesMax) {
			doomed = append(doomed, d.Position)
		}
	}
	doomed = doomed[len(doomed)-min(op.Limit, len(doomed)):]
	s.deliveries = slices.DeleteFunc(s.deliveries, func(d store.Delivery) bool { return slices.Contains(doomed, d.Position) })
	return len(doomed)
}

// Delivery implements store.Reader.
func (s *Store) Delivery(_ context.Context, env, id string) (store.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.delivery(id); d != nil && d.Env == env {
		return *d, nil
	}
	return store.Delivery{}, fmt.Errorf("delivery %s: %w", id, store.ErrNotFound)
}

// Deliveries implements store.Reader.
func (s *Store) Deliveries(_ context.Context, q store.DeliveryQuery) ([]store.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []store.Delivery
	for _, d := range slices.Backward(s.deliveries) {
		if d.Env == q.Env && (q.Hook == "" || d.Hook == q.Hook) && (q.Status == "" || d.Status == q.Status) && (q.Before == 0 || d.Position < q.Before) {
			d.Request, d.Body = nil, nil
			out = append(out, d)
		}
	}
	return out[:min(q.Limit, len(out))], nil
}
