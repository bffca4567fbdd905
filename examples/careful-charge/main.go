// Command careful-charge shows three ways to make a step safe that may be cut off after it has acted and before its result is saved.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"
)

var port = flag.String("port", "3001", "where the app listens on this machine")

// Order is what a customer has ordered.
type Order struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
}

// Fulfilled is what there is of an order afterwards.
type Fulfilled struct {
	Charge string `json:"charge"`
	Parcel string `json:"parcel"`
}

var app = nelkap.New(nelkap.Options{App: "careful-charge"})

// Fulfil charges, sends and prints.
var Fulfil = nelkap.NewWorkflow(app, "fulfil", func(ctx context.Context, order Order) (done Fulfilled, err error) {
	// 1. The service takes a key. The step's own is the same in every attempt: the second request is the first one again.
	done.Charge, err = step.Run(ctx, "charge", func(ctx context.Context) (string, error) {
		return charge(ctx, order.Amount, step.IdempotencyKey(ctx))
	})
	if err != nil {
		return done, err
	}

	// 2. It takes no key, but can be asked. The check runs before every attempt but the first; what it finds is the result.
	done.Parcel, err = step.RunWithCheck(ctx, "parcel",
		func(context.Context) (string, bool, error) { return findParcel(order.ID) },
		func(ctx context.Context) (string, error) { return sendParcel(ctx, order.ID) })
	if err != nil {
		return done, err
	}

	// 3. Neither. Then rather never than twice: a step that was cut off fails, and someone has to look.
	err = step.Do(ctx, "card", func(ctx context.Context) error { return printCard(ctx, order.ID) }, step.AtMostOnce())
	if errors.Is(err, nelkap.ErrStepInterrupted) {
		err = step.Do(ctx, "look", func(context.Context) error {
			_, err := fmt.Printf("please look whether there is a card for order %s\n", order.ID)
			return err
		})
	}
	return done, err
})

func main() {
	flag.Parse()
	http.Handle("/api/nelkap", app)
	fmt.Printf("process %d serves http://127.0.0.1:%s/api/nelkap; see %s\n", os.Getpid(), *port, *outside)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+*port, nil))
}
