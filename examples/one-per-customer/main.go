// Command one-per-customer shows two ways to do something once for each customer: a workflow that runs once, and a run that asks
// whether it is the first.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"regexp"
	"strings"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"
)

var port = flag.String("port", "3001", "where the app listens on this machine")

// Customer is who has registered.
type Customer struct {
	ID    string `json:"id"`
	Email string `json:"email"`
}

var app = nelkap.New(nelkap.Options{App: "one-per-customer"})

// SendGift knows its key from the payload alone: the second run for a customer ends as skipped, before any of its code runs.
var SendGift = nelkap.NewWorkflow(app, "send gift", nelkap.NoResult(func(ctx context.Context, customer Customer) error {
	return step.Do(ctx, "gift", func(context.Context) error { return say("a gift for %s", customer.ID) })
}), nelkap.OnEvent("customer.registered"), nelkap.Once(func(customer Customer) string { return customer.ID }))

var tag = regexp.MustCompile(`\+.*@`)

// StartTrial finds its key out on the way, and the second run has something to do: the code decides.
var StartTrial = nelkap.NewWorkflow(app, "start trial", func(ctx context.Context, customer Customer) (string, error) {
	mailbox, err := step.Run(ctx, "mailbox", func(context.Context) (string, error) {
		return tag.ReplaceAllString(strings.ToLower(customer.Email), "@"), nil
	})
	if err != nil {
		return "", err
	}

	first, err := step.Claim(ctx, "one trial", mailbox)
	if err != nil {
		return "", err
	}
	if !first {
		return "refused", step.Do(ctx, "refusal", func(context.Context) error { return say("%s has had its trial", mailbox) })
	}
	return "started", step.Do(ctx, "trial", func(context.Context) error { return say("a trial for %s", mailbox) })
})

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
