package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	nelkap "github.com/nelkap/nelkap/sdk/go"
)

// shopName names this shop, its app and its webhook. Every shop hears order.placed; each takes its own orders.
const shopName = "shop-go"

// Order is what a customer placed.
type Order struct {
	ID       string `json:"id"`
	Email    string `json:"email"`
	Name     string `json:"name"`
	Amount   int64  `json:"amount"` // in cents
	Currency string `json:"currency"`
	Shop     string `json:"shop"` // for which shop the order is; for this one unless given
}

// ReturnedOrder is an order that came back.
type ReturnedOrder struct {
	ID   string `json:"id"`
	Shop string `json:"shop"`
}

// readOrder reads an order from an event's payload, or from the JSON body of a request to the webhook.
func readOrder(payload json.RawMessage) (Order, error) {
	var arrived struct {
		Order
		Body *Order `json:"json"` // of the webhook's request
	}
	if err := json.Unmarshal(payload, &arrived); err != nil {
		return Order{}, nelkap.NonRetriable(fmt.Errorf("reading the order: %w", err))
	}
	order := arrived.Order
	if arrived.Body != nil {
		order = *arrived.Body
	}
	if order.Shop == "" {
		order.Shop = shopName
	}
	if order.Currency == "" {
		order.Currency = "eur"
	}
	if order.ID == "" || !strings.Contains(order.Email, "@") || order.Amount <= 0 {
		return Order{}, nelkap.NonRetriable(errors.New("an order needs id, email and an amount in cents"))
	}
	return order, nil
}
