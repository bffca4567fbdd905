package store

import (
	"encoding/json/jsontext"
	"time"
)

// DeliveryStatus is what became of a delivery.
type DeliveryStatus string

// The statuses of deliveries.
const (
	// DeliveryVerified: its signature was right, and it emitted its events.
	DeliveryVerified DeliveryStatus = "verified"
	// DeliveryDuplicate: its signature was right, and one with its id had emitted its events before.
	DeliveryDuplicate DeliveryStatus = "duplicate"
	// DeliveryRejected: it emitted nothing. It is kept apart, within bounds of its own.
	DeliveryRejected DeliveryStatus = "rejected"
	// DeliveryUnverified: a rejected one that somebody had emit its events all the same.
	DeliveryUnverified DeliveryStatus = "unverified"
)

// Delivery is one request to a configured hook, as it came. It never changes.
type Delivery struct {
	Env          string
	ID           string
	Hook         string
	Provider     string
	Status       DeliveryStatus
	Reason       string // why it was rejected
	ProviderID   string // the id that its sender gave it
	RedeliveryOf string // the delivery that it is a redelivery of
	Events       []DeliveryEvent
	ReceivedAt   time.Time
	// Request is the request without its body, as JSON that the store does not look into. Lists leave it and Body out.
	Request jsontext.Value
	Body    []byte
	// Bytes is the size of Request and Body, and Position the delivery's in the order in which they were stored: set by the store.
	Bytes    int64
	Position int64
}

// DeliveryEvent is an event that a delivery emitted, or that of its first.
type DeliveryEvent struct {
	ID    string `json:"id"`
	Event string `json:"event"`
	Runs  int    `json:"runs"`
}

// DeliveryQuery selects deliveries, newest first. Empty fields select all. Before is the position of the last one seen; zero is the end.
type DeliveryQuery struct {
	Env    string
	Hook   string
	Status DeliveryStatus
	Before int64
	Limit  int
}

// InsertDelivery adds a delivery. The change fails with ErrExists when the id is taken.
type InsertDelivery struct{ Delivery Delivery }

// DropDeliveries removes, oldest first and at most Limit of them, deliveries that were received at Before or earlier, that are not
// among the newest CountMax, or that are not among the newest of at most BytesMax together; a zero is no bound. It goes for the rejected
// ones alone, or for all others.
type DropDeliveries struct {
	Rejected bool
	Before   time.Time
	CountMax int
	BytesMax int64
	Limit    int
}

func (InsertDelivery) op() {}
func (DropDeliveries) op() {}
