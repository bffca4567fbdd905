package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	standin "github.com/nelkap/nelkap/examples/order-fulfillment/stripe-stand-in"
	"github.com/stripe/stripe-go/v82"
)

func openDatabase(t *testing.T) *Database {
	t.Helper()
	database, err := OpenDatabase(t.Context(), filepath.Join(t.TempDir(), "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { database.Close() })
	return database
}

// startOutside runs the stand-in for what is outside the shop.
func startOutside(t *testing.T) (*standin.Server, string) {
	t.Helper()
	outside := standin.New(&bytes.Buffer{}, nil)
	server := httptest.NewServer(outside)
	t.Cleanup(server.Close)
	return outside, server.URL
}

var placed = Order{ID: "o_1", Email: "ada@example.com", Name: "Ada", Amount: 1999, Currency: "eur", Shop: shopName}

func TestTheFirstRunOwnsAnOrderAndGoesOnOwningIt(t *testing.T) {
	database := openDatabase(t)
	for _, claim := range []struct{ order, run, owner string }{
		{"o_1", "run_a", "run_a"},
		{"o_1", "run_b", "run_a"},
		{"o_1", "run_a", "run_a"},
		{"o_2", "run_b", "run_b"},
	} {
		owner, err := database.ClaimOrder(t.Context(), claim.order, claim.run)
		if err != nil || owner != claim.owner {
			t.Errorf("%s claims %s: owner %s, %v; want %s", claim.run, claim.order, owner, err, claim.owner)
		}
	}
}

func TestOfManyRunsAtOnceOneOwnsTheOrder(t *testing.T) {
	database := openDatabase(t)
	owners := make([]string, 20)
	var all sync.WaitGroup
	for n := range owners {
		all.Go(func() {
			owner, err := database.ClaimOrder(context.Background(), "o_1", fmt.Sprintf("run_%d", n))
			if err != nil {
				t.Error(err)
			}
			owners[n] = owner
		})
	}
	all.Wait()
	for _, owner := range owners {
		if owner == "" || owner != owners[0] {
			t.Fatalf("the runs disagree about the owner: %v", owners)
		}
	}
}

func TestRowsWrittenTwiceAreOneRow(t *testing.T) {
	database := openDatabase(t)
	invoice := Invoice{ID: "i_1", OrderID: "o_1", Email: "ada@example.com", Amount: 1999, Currency: "eur", PaymentIntent: "pi_1"}
	for _, name := range []string{"Ada", "Ada Lovelace"} {
		if err := database.SaveContact(t.Context(), "ada@example.com", name); err != nil {
			t.Fatal(err)
		}
		if err := database.CreateInvoice(t.Context(), invoice); err != nil {
			t.Fatal(err)
		}
	}
	contacts, err := database.Contacts(t.Context())
	if err != nil || len(contacts) != 1 || contacts[0].Name != "Ada Lovelace" {
		t.Errorf("contacts %v, %v; want one with the newer name", contacts, err)
	}
	invoices, err := database.Invoices(t.Context())
	if err != nil || len(invoices) != 1 || invoices[0] != invoice {
		t.Errorf("invoices %v, %v; want one", invoices, err)
	}
	found, err := database.FindInvoice(t.Context(), "o_1")
	if err != nil || found != invoice {
		t.Errorf("found %+v, %v; want %+v", found, err, invoice)
	}
}

func TestChargingAndRefundingTwiceIsOnce(t *testing.T) {
	outside, url := startOutside(t)
	client := connectStripe(url)
	var intents, refunds [2]string
	for n := range intents {
		var err error
		if intents[n], err = charge(t.Context(), client, placed); err != nil {
			t.Fatal(err)
		}
	}
	for n := range refunds {
		var err error
		if refunds[n], err = refund(t.Context(), client, placed.ID, intents[0]); err != nil {
			t.Fatal(err)
		}
	}
	if intents[0] != intents[1] || refunds[0] != refunds[1] {
		t.Errorf("payments %v, refunds %v: want the first one again", intents, refunds)
	}
	if got := outside.Counts(); got.Charges != 1 || got.Refunds != 1 {
		t.Errorf("counts: %+v", got)
	}
}

func TestOneKeyForAnotherAmountIsRefused(t *testing.T) {
	_, url := startOutside(t)
	client := connectStripe(url)
	if _, err := charge(t.Context(), client, placed); err != nil {
		t.Fatal(err)
	}
	other := placed
	other.Amount = 2999
	_, err := charge(t.Context(), client, other)
	var refusal *stripe.Error
	if !errors.As(err, &refusal) || refusal.Type != stripe.ErrorTypeIdempotency || refusal.HTTPStatusCode != http.StatusBadRequest {
		t.Errorf("error %v, want an idempotency error", err)
	}
}

func TestEmailsAndTicketsAskedForTwiceAreOne(t *testing.T) {
	outside, url := startOutside(t)
	desk := connectDesk(url)
	var emails [2]string
	var tickets [2]Ticket
	for n := range emails {
		var err error
		email := Email{To: placed.Email, Subject: "Thank you", Order: placed.ID, Template: "confirmation"}
		if emails[n], err = desk.SendEmail(t.Context(), email, "confirmation_o_1"); err != nil {
			t.Fatal(err)
		}
		if tickets[n], err = desk.FindOrCreateTicket(t.Context(), placed.ID); err != nil {
			t.Fatal(err)
		}
	}
	if emails[0] != emails[1] || tickets[0] != tickets[1] {
		t.Errorf("emails %v, tickets %v: want the first one again", emails, tickets)
	}
	if got := outside.Counts(); got.Emails != 1 || got.Tickets != 1 {
		t.Errorf("counts: %+v", got)
	}
	if _, err := desk.FindOrCreateTicket(t.Context(), ""); err == nil || !strings.Contains(fmt.Sprint(err), "a ticket needs an order") {
		t.Errorf("error %v, want what the desk said", err)
	}
}

func TestAnOrderArrivesByEventOrByWebhook(t *testing.T) {
	for name, payload := range map[string]string{
		"event":   `{"id":"o_1","email":"ada@example.com","name":"Ada","amount":1999}`,
		"webhook": `{"webhook":"shop-go","method":"POST","query":{},"headers":{},"body":"…","json":{"id":"o_1","email":"ada@example.com","name":"Ada","amount":1999}}`,
	} {
		order, err := readOrder(json.RawMessage(payload))
		if err != nil || order != placed {
			t.Errorf("%s: %+v, %v; want %+v", name, order, err, placed)
		}
	}
	for _, payload := range []string{`{"id":"o_1"}`, `{"json":{"id":"o_1"}}`, `"o_1"`} {
		if order, err := readOrder(json.RawMessage(payload)); err == nil {
			t.Errorf("%s was read as %+v", payload, order)
		}
	}
}
