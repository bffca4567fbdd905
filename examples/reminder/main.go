// Command reminder sends an email now, and a reminder three days later, unless the user has acted meanwhile.
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

// -pause 10s is for trying it out: nobody waits three days for an example.
var (
	port  = flag.String("port", "3001", "where the app listens on this machine")
	pause = flag.Duration("pause", 3*24*time.Hour, "how long the user has to act")
)

// User is whom the emails go to.
type User struct {
	ID    string `json:"id"`
	Email string `json:"email"`
}

// ProfileCompleted is what the event profile.completed says.
type ProfileCompleted struct {
	UserID string `json:"userId"`
}

var app = nelkap.New(nelkap.Options{App: "reminder"})

// WelcomeUser is a run of its own for each user.
var WelcomeUser = nelkap.NewWorkflow(app, "welcome user", func(ctx context.Context, user User) (string, error) {
	err := step.Do(ctx, "welcome", func(context.Context) error { return sendEmail(user.Email, "Welcome! Tell us who you are.") })
	if err != nil {
		return "", err
	}

	// Nothing is held meanwhile: no process, no connection. The run goes on in another call.
	if err := step.Sleep(ctx, "time to act", *pause); err != nil {
		return "", err
	}

	// Events since the run's creation count, so one that came during the sleep is found at once.
	_, completed, err := step.WaitForEvent[ProfileCompleted](ctx, "profile completed", "profile.completed",
		step.Match("payload.userId", user.ID), step.Timeout(5*time.Second))
	if err != nil {
		return "", err
	}
	if completed {
		return "has acted", nil
	}

	return "was reminded", step.Do(ctx, "reminder", func(context.Context) error { return sendEmail(user.Email, "Your profile is still empty.") })
}, nelkap.OnEvent("user.registered"))

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
