package main

import (
	"context"
	"fmt"

	"github.com/stripe/stripe-go/v82"
)

// connectStripe makes Stripe's own client. In production it is stripe.NewClient(secret); here it talks to the stand-in.
func connectStripe(outside string) *stripe.Client {
	backends := stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL:           stripe.String(outside),
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelError},
	})
	return stripe.NewClient("sk_test_shop", stripe.WithBackends(backends))
}

// charge charges an order. The key is made from the order alone, so every attempt, in whatever process, sends the same one,
// and Stripe answers a second attempt with the first one's payment.
func charge(ctx context.Context, client *stripe.Client, order Order) (paymentIntent string, err error) {
	params := &stripe.PaymentIntentCreateParams{
		Amount:        stripe.Int64(order.Amount),
		Currency:      stripe.String(order.Currency),
		PaymentMethod: stripe.String("pm_card_visa"),
		AutomaticPaymentMethods: &stripe.PaymentIntentCreateAutomaticPaymentMethodsParams{
			Enabled:        stripe.Bool(true),
			AllowRedirects: stripe.String("never"),
		},
		Confirm:  stripe.Bool(true),
		Metadata: map[string]string{"order": order.ID},
	}
	params.SetIdempotencyKey("charge_" + order.ID)
	payment, err := client.V1PaymentIntents.Create(ctx, params)
	if err != nil {
		return "", fmt.Errorf("charging order %s: %w", order.ID, err)
	}
	return payment.ID, nil
}

func refund(ctx context.Context, client *stripe.Client, orderID, paymentIntent string) (refundID string, err error) {
	params := &stripe.RefundCreateParams{PaymentIntent: stripe.String(paymentIntent)}
	params.SetIdempotencyKey("refund_" + orderID)
	made, err := client.V1Refunds.Create(ctx, params)
	if err != nil {
		return "", fmt.Errorf("refunding order %s: %w", orderID, err)
	}
	return made.ID, nil
}
