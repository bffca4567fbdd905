package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// answerBytesMax is far above any answer of the mail provider and the ticket desk.
const answerBytesMax = 1 << 20

// Desk speaks to the mail provider and the ticket desk.
type Desk struct {
	url  string
	http *http.Client
}

func connectDesk(outside string) *Desk {
	return &Desk{url: outside, http: &http.Client{Timeout: time.Minute}}
}

// Email is one email. Order and Template tell the provider what it is for.
type Email struct {
	To       string `json:"to"`
	Subject  string `json:"subject"`
	Text     string `json:"text"`
	Order    string `json:"order"`
	Template string `json:"template"`
}

// SendEmail has the mail provider send one email for each key, however often it is asked.
func (d *Desk) SendEmail(ctx context.Context, email Email, idempotencyKey string) (id string, err error) {
	var sent struct {
		ID string `json:"id"`
	}
	if err := d.do(ctx, http.MethodPost, "/emails", email, idempotencyKey, &sent); err != nil {
		return "", fmt.Errorf("sending an email to %s: %w", email.To, err)
	}
	return sent.ID, nil
}

// Ticket is the ticket by which the warehouse packs an order.
type Ticket struct {
	ID    string `json:"id"`
	Order string `json:"order"`
}

// FindOrCreateTicket looks for the ticket of an attempt that was cut off before it makes one: the desk takes no key.
func (d *Desk) FindOrCreateTicket(ctx context.Context, orderID string) (Ticket, error) {
	var found struct {
		Data []Ticket `json:"data"`
	}
	if err := d.do(ctx, http.MethodGet, "/tickets?order="+url.QueryEscape(orderID), nil, "", &found); err != nil {
		return Ticket{}, fmt.Errorf("looking for the ticket of order %s: %w", orderID, err)
	}
	if len(found.Data) > 0 {
		return found.Data[0], nil
	}
	var made Ticket
	if err := d.do(ctx, http.MethodPost, "/tickets", Ticket{Order: orderID}, "", &made); err != nil {
		return Ticket{}, fmt.Errorf("creating the ticket of order %s: %w", orderID, err)
	}
	return made, nil
}

// do makes one request. An answer that is no success is an error, so that the step is tried again.
func (d *Desk) do(ctx context.Context, method, path string, body any, idempotencyKey string, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, d.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if idempotencyKey != "" {
		request.Header.Set("Idempotency-Key", idempotencyKey)
	}
	response, err := d.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, answerBytesMax))
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s %s was answered %d: %s", method, path, response.StatusCode, answer)
	}
	return json.Unmarshal(answer, into)
}
