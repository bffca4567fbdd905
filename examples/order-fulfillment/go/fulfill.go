package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// Fulfillment is how a run of "fulfill order" ended.
type Fulfillment struct {
	Outcome    string `json:"outcome"`
	Owner      string `json:"owner,omitempty"`
	InvoiceID  string `json:"invoiceId,omitempty"`
	Ticket     string `json:"ticket,omitempty"`
	InvoiceRun string `json:"invoiceRun,omitempty"`
}

func (s *Shop) fulfill(ctx context.Context, payload json.RawMessage) (Fulfillment, error) {
	order, err := readOrder(payload)
	if err != nil {
		return Fulfillment{}, err
	}
	if order.Shop != shopName {
		return Fulfillment{Outcome: "for another shop"}, nil
	}

	// An event that was emitted twice, or a webhook called twice, starts a second run. One of them owns the order.
	run, _ := nelkap.CurrentRun(ctx)
	owner, err := step.Run(ctx, "claim", func(ctx context.Context) (string, error) {
		s.marks.Add(ctx, "claim", order.ID)
		return s.database.ClaimOrder(ctx, order.ID, run.ID)
	})
	if err != nil {
		return Fulfillment{}, err
	}
	if owner != run.ID {
		return Fulfillment{Outcome: "claimed by another run", Owner: owner}, nil
	}

	// An idempotency key, made from the order: see payment.go.
	paymentIntent, err := step.Run(ctx, "charge", func(ctx context.Context) (string, error) {
		s.marks.Add(ctx, "charge", order.ID)
		return charge(ctx, s.stripe, order)
	})
	if err != nil {
		return Fulfillment{}, err
	}

	invoiceID, err := s.writeDown(ctx, order, paymentIntent)
	if err != nil {
		return Fulfillment{}, err
	}
	done, err := s.tellOthers(ctx, order)
	done.InvoiceID = invoiceID
	return done, err
}

// writeDown leaves one row of each kind in the shop's own database.
func (s *Shop) writeDown(ctx context.Context, order Order, paymentIntent string) (invoiceID string, err error) {
	// An upsert, by a key that says what the row is: see database.go.
	err = step.Do(ctx, "contact", func(ctx context.Context) error {
		s.marks.Add(ctx, "contact", order.ID)
		return s.database.SaveContact(ctx, order.Email, order.Name)
	})
	if err != nil {
		return "", err
	}

	// An id of our own making is drawn in a step, so that it is the same when the next one runs again.
	invoiceID, err = step.Run(ctx, "invoice id", func(ctx context.Context) (string, error) {
		s.marks.Add(ctx, "invoice id", order.ID)
		return rand.Text(), nil
	})
	if err != nil {
		return "", err
	}
	err = step.Do(ctx, "invoice", func(ctx context.Context) error {
		s.marks.Add(ctx, "invoice", order.ID)
		return s.database.CreateInvoice(ctx, Invoice{
			ID: invoiceID, OrderID: order.ID, Email: order.Email, Amount: order.Amount, Currency: order.Currency,
			PaymentIntent: paymentIntent,
		})
	})
	return invoiceID, err
}

// tellOthers leaves one ticket, one run of "send invoice", one event and one email.
func (s *Shop) tellOthers(ctx context.Context, order Order) (Fulfillment, error) {
	// The ticket desk takes no key: find what a first attempt made, or make it.
	ticket, err := step.Run(ctx, "ticket", func(ctx context.Context) (Ticket, error) {
		s.marks.Add(ctx, "ticket", order.ID)
		return s.desk.FindOrCreateTicket(ctx, order.ID)
	})
	if err != nil {
		return Fulfillment{}, err
	}

	// Code outside steps runs again on every call, so runs and events are started in steps.
	invoiceRun, err := step.Run(ctx, "invoice run", func(ctx context.Context) (*nelkap.Handle[string], error) {
		s.marks.Add(ctx, "invoice run", order.ID)
		return nelkap.Run(ctx, s.sendInvoice, order.ID)
	})
	if err != nil {
		return Fulfillment{}, err
	}
	err = step.Do(ctx, "paid event", func(ctx context.Context) error {
		s.marks.Add(ctx, "paid event", order.ID)
		_, err := s.app.Emit(ctx, nelkap.Event{Name: "order.paid", Payload: order.ID})
		return err
	})
	if err != nil {
		return Fulfillment{}, err
	}

	_, err = step.Run(ctx, "confirmation", func(ctx context.Context) (string, error) {
		s.marks.Add(ctx, "confirmation", order.ID)
		return s.desk.SendEmail(ctx, Email{
			To: order.Email, Subject: "Your order " + order.ID, Order: order.ID, Template: "confirmation",
			Text: fmt.Sprintf("Thank you, %s. Your ticket is %s.", order.Name, ticket.ID),
		}, "confirmation_"+order.ID)
	})
	return Fulfillment{Outcome: "fulfilled", Ticket: ticket.ID, InvoiceRun: invoiceRun.ID}, err
}
