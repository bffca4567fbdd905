package standin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// amountMin is the least that Stripe charges in most currencies, in their smallest unit.
const amountMin = 50

// declined is Stripe's own test card that never has money.
const declined = "pm_card_chargeDeclined"

// paymentIntent has the members of Stripe's object that shops look at.
type paymentIntent struct {
	ID                 string            `json:"id"`
	Object             string            `json:"object"`
	Amount             int64             `json:"amount"`
	AmountReceived     int64             `json:"amount_received"`
	CaptureMethod      string            `json:"capture_method"`
	ClientSecret       string            `json:"client_secret"`
	Created            int64             `json:"created"`
	Currency           string            `json:"currency"`
	Description        *string           `json:"description"`
	LatestCharge       *string           `json:"latest_charge"`
	Livemode           bool              `json:"livemode"`
	Metadata           map[string]string `json:"metadata"`
	PaymentMethod      *string           `json:"payment_method"`
	PaymentMethodTypes []string          `json:"payment_method_types"`
	Status             string            `json:"status"`

	refunded int64
}

type refund struct {
	ID            string            `json:"id"`
	Object        string            `json:"object"`
	Amount        int64             `json:"amount"`
	Charge        *string           `json:"charge"`
	Created       int64             `json:"created"`
	Currency      string            `json:"currency"`
	Metadata      map[string]string `json:"metadata"`
	PaymentIntent string            `json:"payment_intent"`
	Status        string            `json:"status"`
}

func (s *Server) checkPaymentIntent(form url.Values) *stripeError {
	amount, err := strconv.ParseInt(form.Get("amount"), 10, 64)
	method := form.Get("payment_method")
	switch {
	case form.Get("amount") == "":
		return invalid("amount", "parameter_missing", "Missing required param: amount.")
	case err != nil || amount <= 0:
		return invalid("amount", "parameter_invalid_integer", "Invalid positive integer: "+form.Get("amount"))
	case amount < amountMin:
		return invalid("amount", "amount_too_small", fmt.Sprintf("Amount must be at least %d.", amountMin))
	case form.Get("currency") == "":
		return invalid("currency", "parameter_missing", "Missing required param: currency.")
	case len(form.Get("currency")) != 3:
		return invalid("currency", "", "Invalid currency: "+form.Get("currency"))
	case form.Get("confirm") == "true" && method == "":
		return invalid("payment_method", "parameter_missing", "You cannot confirm this PaymentIntent because it's missing a payment method.")
	case method != "" && !strings.HasPrefix(method, "pm_"):
		return invalid("payment_method", "resource_missing", fmt.Sprintf("No such PaymentMethod: '%s'", method))
	}
	return nil
}

// createPaymentIntent makes the intent and, with confirm, charges it.
func (s *Server) createPaymentIntent(form url.Values) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	amount, _ := strconv.ParseInt(form.Get("amount"), 10, 64) // checked before
	id := s.id("pi")
	intent := &paymentIntent{
		ID: id, Object: "payment_intent", Amount: amount, CaptureMethod: "automatic", ClientSecret: id + "_secret",
		Created: s.now().Unix(), Currency: strings.ToLower(form.Get("currency")), Description: optional(form, "description"),
		Metadata: metadata(form), PaymentMethod: optional(form, "payment_method"), PaymentMethodTypes: []string{"card"},
		Status: "requires_payment_method",
	}
	s.intents[id] = intent
	switch {
	case form.Get("confirm") == "true" && form.Get("payment_method") == declined:
		return (&stripeError{
			status: http.StatusPaymentRequired, Type: "card_error", Code: "card_declined", DeclineCode: "generic_decline",
			Message: "Your card was declined.", Intent: intent,
		}).answer()
	case form.Get("confirm") == "true":
		charge := s.id("ch")
		intent.Status, intent.AmountReceived, intent.LatestCharge = "succeeded", amount, &charge
		s.mark(Mark{Mark: "charge", Order: intent.Metadata["order"], ID: id}, &s.counts.Charges)
	case intent.PaymentMethod != nil:
		intent.Status = "requires_confirmation"
	}
	return object(intent)
}

func (s *Server) getPaymentIntent(w http.ResponseWriter, r *http.Request) {
	if _, refusal := authenticate(r); refusal != nil {
		refusal.answer().write(w)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	intent := s.intents[r.PathValue("id")]
	if intent == nil {
		noSuchIntent(r.PathValue("id")).answer().write(w)
		return
	}
	object(intent).write(w)
}

func (s *Server) checkRefund(form url.Values) *stripeError {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := form.Get("payment_intent")
	intent := s.intents[id]
	switch {
	case id == "":
		return invalid("payment_intent", "parameter_missing", "Missing required param: payment_intent.")
	case intent == nil:
		return noSuchIntent(id)
	case intent.Status != "succeeded":
		return invalid("payment_intent", "", "This PaymentIntent ("+id+") has no successful charge to refund.")
	}
	if text := form.Get("amount"); text != "" {
		if amount, err := strconv.ParseInt(text, 10, 64); err != nil || amount <= 0 {
			return invalid("amount", "parameter_invalid_integer", "Invalid positive integer: "+text)
		}
	}
	return nil
}

// createRefund refunds what is asked for, or all that is left.
func (s *Server) createRefund(form url.Values) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	intent := s.intents[form.Get("payment_intent")]
	left := intent.AmountReceived - intent.refunded
	amount := left
	if text := form.Get("amount"); text != "" {
		amount, _ = strconv.ParseInt(text, 10, 64) // checked before
	}
	switch {
	case left == 0:
		return invalid("", "charge_already_refunded", "Charge "+*intent.LatestCharge+" has already been refunded.").answer()
	case amount > left:
		return invalid("amount", "", fmt.Sprintf("Refund amount (%d) is greater than unrefunded amount on charge (%d)", amount, left)).answer()
	}
	intent.refunded += amount
	made := refund{
		ID: s.id("re"), Object: "refund", Amount: amount, Charge: intent.LatestCharge, Created: s.now().Unix(),
		Currency: intent.Currency, Metadata: metadata(form), PaymentIntent: intent.ID, Status: "succeeded",
	}
	s.mark(Mark{Mark: "refund", Order: intent.Metadata["order"], ID: made.ID}, &s.counts.Refunds)
	return object(made)
}

func noSuchIntent(id string) *stripeError {
	e := invalid("intent", "resource_missing", fmt.Sprintf("No such payment_intent: '%s'", id))
	e.status = http.StatusNotFound
	return e
}

func optional(form url.Values, field string) *string {
	if value := form.Get(field); value != "" {
		return &value
	}
	return nil
}

func object(value any) answer {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // only the types above come here
	}
	return answer{status: http.StatusOK, body: text}
}
