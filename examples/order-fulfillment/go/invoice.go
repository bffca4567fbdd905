package main

import (
	"context"
	"fmt"

	"github.com/nelkap/nelkap/sdk/go/step"
)

// invoice sends an order's invoice. "fulfill order" starts it for each order; start it by hand for an invoice that got lost.
func (s *Shop) invoice(ctx context.Context, orderID string) (invoiceID string, err error) {
	invoice, err := step.Run(ctx, "find invoice", func(ctx context.Context) (Invoice, error) {
		s.marks.Add(ctx, "find invoice", orderID)
		return s.database.FindInvoice(ctx, orderID)
	})
	if err != nil {
		return "", err
	}
	_, err = step.Run(ctx, "invoice email", func(ctx context.Context) (string, error) {
		s.marks.Add(ctx, "invoice email", orderID)
		return s.desk.SendEmail(ctx, Email{
			To: invoice.Email, Subject: "Invoice " + invoice.ID, Order: orderID, Template: "invoice",
			Text: fmt.Sprintf("Paid: %.2f %s", float64(invoice.Amount)/100, invoice.Currency),
		}, "invoice_"+invoice.ID)
	})
	return invoice.ID, err
}
