package main

import (
	"context"
	"errors"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/stripe/stripe-go/v82"
)

// Settings are what the environment says of a shop.
type Settings struct {
	Database string // the file of the database
	Outside  string // where Stripe, the mail provider and the ticket desk are: here, the stand-in for all three
	Marks    string // a file for Marks; empty: none
}

// Shop is what the workflows work with, and the workflows.
type Shop struct {
	app      *nelkap.App
	database *Database
	stripe   *stripe.Client
	desk     *Desk
	marks    Marks

	sendInvoice *nelkap.Workflow[string, string]
}

// OpenShop opens the shop and declares its workflows on app.
func OpenShop(ctx context.Context, app *nelkap.App, settings Settings) (*Shop, error) {
	marks, err := openMarks(settings.Marks)
	if err != nil {
		return nil, err
	}
	database, err := OpenDatabase(ctx, settings.Database)
	if err != nil {
		return nil, errors.Join(err, marks.Close())
	}
	s := &Shop{
		app: app, database: database, stripe: connectStripe(settings.Outside), desk: connectDesk(settings.Outside), marks: marks,
	}
	s.sendInvoice = nelkap.NewWorkflow(app, "send invoice", s.invoice)
	nelkap.NewWorkflow(app, "fulfill order", s.fulfill, nelkap.OnEvent("order.placed"), nelkap.OnWebhook(shopName))
	nelkap.NewWorkflow(app, "refund order", s.refund, nelkap.OnEvent("order.returned"))
	return s, nil
}

// Close ends the use of the shop's files.
func (s *Shop) Close() error { return errors.Join(s.database.Close(), s.marks.Close()) }
