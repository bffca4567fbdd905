// Command approval lets a person decide: the run waits for an answer to a link, for three days at most.
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
	timeout = flag.Duration("timeout", 3*24*time.Hour, "how long the manager has")
)

// Expense is what is to be approved.
type Expense struct {
	By     string `json:"by"`
	Amount int    `json:"amount"`
}

// Answer is what the manager's link says.
type Answer struct {
	Decision string `json:"decision"`
}

var app = nelkap.New(nelkap.Options{App: "approval"})

// ApproveExpense ends as approved, declined or timed out.
var ApproveExpense = nelkap.NewWorkflow(app, "approve expense", func(ctx context.Context, expense Expense) (string, error) {
	// The link exists from here on, and its time runs. It is the same one in every call of the run.
	approval, err := step.NewCallback[Answer](ctx, "approval", step.Timeout(*timeout))
	if err != nil {
		return "", err
	}

	// Opened in a browser, a link shows what it says and a button. The button answers, not the look at it.
	err = step.Do(ctx, "mail", func(context.Context) error {
		yes, no := approval.URL+"?decision=approved", approval.URL+"?decision=declined"
		return sendEmail("manager@example.com", fmt.Sprintf("%s spent %d: approve %s or decline %s", expense.By, expense.Amount, yes, no))
	})
	if err != nil {
		return "", err
	}

	answer, ok, err := approval.Wait(ctx)
	if err != nil {
		return "", err
	}
	outcome := "timed out"
	if ok {
		outcome = answer.Decision
	}
	return outcome, step.Do(ctx, "outcome", func(context.Context) error {
		return sendEmail(expense.By, fmt.Sprintf("Your expense of %d: %s.", expense.Amount, outcome))
	})
})

func sendEmail(to, text string) error {
	_, err := fmt.Printf("email to %s: %s\n", to, text)
	return err
}

func main() {
	flag.Parse()
	http.Handle("/api/nelkap", app)
	fmt.Printf("process %d serves http://127.0.0.1:%s/api/nelkap\n", os.Getpid(), *port)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+*port, nil))
}
