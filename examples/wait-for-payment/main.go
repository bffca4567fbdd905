// Command wait-for-payment has an order wait for its own payment, or for its cancellation; one event ends all that wait.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// -timeout 30s is for trying it out.
var (
	port    = flag.String("port", "3001", "where the app listens on this machine")
	timeout = flag.Duration("timeout", 7*24*time.Hour, "how long an order waits for its payment")
)

// Order is what was placed.
type Order struct {
	ID string `json:"id"`
}

var app = nelkap.New(nelkap.Options{App: "wait-for-payment"})

// ShipOrder is cancelled by sale.stopped, as every run of it that has not ended: the event stops the sale, not an order.
var ShipOrder = nelkap.NewWorkflow(app, "ship order", shipOrder, nelkap.OnEvent("order.placed"), nelkap.CancelOn("sale.stopped"))

func shipOrder(ctx context.Context, order Order) (string, error) {
	news, err := step.WaitForAny(ctx, "payment", []string{"payment.updated", "order.cancelled"},
		// Which order: a value, so it belongs in Match. What about it: a condition that is the same for all, so If.
		step.Match("payload.orderId", order.ID),
		step.If("event.event == 'order.cancelled' || payload.status == 'paid'"),
		step.Timeout(*timeout))
	if err != nil {
		return "", err
	}

	if news != nil && news.Name == "payment.updated" {
		return "shipped", step.Do(ctx, "ship", func(context.Context) error { return say("order %s is shipped", order.ID) })
	}
	why := "cancelled"
	if news == nil {
		why = "nobody paid"
	}
	return why, step.Do(ctx, "release", func(context.Context) error { return say("order %s is released: %s", order.ID, why) })
}

func say(format string, values ...any) error {
	_, err := fmt.Printf(format+"\n", values...)
	return err
}

func main() {
	flag.Parse()
	http.Handle("/api/nelkap", app)
	fmt.Printf("process %d serves http://127.0.0.1:%s/api/nelkap\n", os.Getpid(), *port)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+*port, nil))
}
