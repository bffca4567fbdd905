package main

import (
	"context"

	"github.com/nelkap/nelkap/sdk/go/step"
)

// Refund is how a run of "refund order" ended.
type Refund struct {
	Outcome  string `json:"outcome"`
	RefundID string `json:"refundId,omitempty"`
}

// refund pays an order back. However many runs there are for one order, Stripe sees one key.
func (s *Shop) refund(ctx context.Context, order ReturnedOrder) (Refund, error) {
	if order.Shop != "" && order.Shop != shopName {
		return Refund{Outcome: "for another shop"}, nil
	}
	invoice, err := step.Run(ctx, "find invoice", func(ctx context.Context) (Invoice, error) {
		s.marks.Add(ctx, "find invoice", order.ID)
		return s.database.FindInvoice(ctx, order.ID)
	})
	if err != nil {
		return Refund{}, err
	}
	id, err := step.Run(ctx, "refund", func(ctx context.Context) (string, error) {
		s.marks.Add(ctx, "refund", order.ID)
		return refund(ctx, s.stripe, order.ID, invoice.PaymentIntent)
	})
	return Refund{Outcome: "refunded", RefundID: id}, err
}
