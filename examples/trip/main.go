// Command trip books a trip piece by piece. When a later piece fails, the earlier ones are given back, the last one first.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// The seconds are there to kill the app in.
var (
	port    = flag.String("port", "3001", "where the app listens on this machine")
	seconds = flag.Int("seconds", 5, "how long a booking takes, and giving it back")
)

// Trip is what a customer wants.
type Trip struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Price    int    `json:"price"`
}

var app = nelkap.New(nelkap.Options{App: "trip"})

// BookTrip books all of a trip, or nothing.
var BookTrip = nelkap.NewWorkflow(app, "book trip", func(ctx context.Context, trip Trip) (string, error) {
	// What undoes a booking is named before it: whenever the run ends from here on, the booking is given back.
	if err := step.Undo(ctx, "flight back", func(ctx context.Context) error { return giveBack(ctx, "the flight", trip.ID) }); err != nil {
		return "", err
	}
	if err := step.Do(ctx, "flight", func(ctx context.Context) error { return book(ctx, "the flight", trip.ID) }); err != nil {
		return "", err
	}

	if err := step.Undo(ctx, "hotel back", func(ctx context.Context) error { return giveBack(ctx, "the hotel", trip.ID) }); err != nil {
		return "", err
	}
	if err := step.Do(ctx, "hotel", func(ctx context.Context) error { return book(ctx, "the hotel", trip.ID) }); err != nil {
		return "", err
	}

	pays := func(context.Context) error { return pay(trip) }
	return "booked", step.Do(ctx, "payment", pays, step.Retries(0))
}, nelkap.OnFailure(func(ctx context.Context, failure nelkap.Failure[Trip]) error {
	return step.Do(ctx, "apology", func(context.Context) error {
		_, err := fmt.Printf("email to %s: no trip, %v\n", failure.Payload.Customer, failure.Err)
		return err
	})
}))

func book(ctx context.Context, what, id string) error {
	fmt.Printf("booking %s of %s\n", what, id)
	return takeTime(ctx)
}

// It may be asked for a booking that was never made, and twice for the same: it gives back what there is.
func giveBack(ctx context.Context, what, id string) error {
	fmt.Printf("giving back %s of %s\n", what, id)
	return takeTime(ctx)
}

func takeTime(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(*seconds) * time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func pay(trip Trip) error {
	if trip.Price > 1000 {
		return errors.New("the card is declined")
	}
	return nil
}

func main() {
	flag.Parse()
	http.Handle("/api/nelkap", app)
	fmt.Printf("process %d serves http://127.0.0.1:%s/api/nelkap\n", os.Getpid(), *port)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+*port, nil))
}
