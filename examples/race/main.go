// Command race has the first of two providers win, and stay the winner after every crash.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// The pause is there to kill the app in.
var (
	port  = flag.String("port", "3001", "where the app listens on this machine")
	pause = flag.Duration("pause", 20*time.Second, "how long the customer thinks")
)

// Quote is a provider's answer.
type Quote struct {
	Provider string `json:"provider"`
	Price    int    `json:"price"`
}

var app = nelkap.New(nelkap.Options{App: "race"})

// BookRide books with whoever answers first.
var BookRide = nelkap.NewWorkflow(app, "book ride", func(ctx context.Context, to string) (Quote, error) {
	asked := func(provider string) func(context.Context) (Quote, error) {
		return func(ctx context.Context) (Quote, error) {
			return step.Run(ctx, "ask "+provider, func(ctx context.Context) (Quote, error) { return ask(ctx, provider, to) })
		}
	}
	// Which answer is saved first decides. When the code is played again, it comes first again.
	_, quote, err := step.Race(ctx, asked("north"), asked("south"))
	if err != nil {
		return Quote{}, err
	}

	if err := step.Sleep(ctx, "time to think", *pause); err != nil {
		return Quote{}, err
	}

	return quote, step.Do(ctx, "booking", func(context.Context) error {
		_, err := fmt.Printf("booked with %s for %d\n", quote.Provider, quote.Price)
		return err
	})
})

// Nobody knows who is the quicker one today.
func ask(ctx context.Context, provider, to string) (Quote, error) {
	fmt.Printf("asking %s for a ride to %s\n", provider, to)
	select {
	case <-time.After(200*time.Millisecond + rand.N(800*time.Millisecond)):
		return Quote{Provider: provider, Price: 20 + rand.IntN(10)}, nil
	case <-ctx.Done():
		return Quote{}, context.Cause(ctx)
	}
}

func main() {
	flag.Parse()
	http.Handle("/api/nelkap", app)
	fmt.Printf("process %d serves http://127.0.0.1:%s/api/nelkap\n", os.Getpid(), *port)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+*port, nil))
}
