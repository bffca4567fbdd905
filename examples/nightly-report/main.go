// Command nightly-report has a schedule that stands in the code, and one for each user that is made while the app runs.
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

var port = flag.String("port", "3001", "where the app listens on this machine")

// User is whose report it is.
type User struct {
	ID string `json:"userId"`
}

// Wish is when a user wants a report. Schedule is such as "0 7 * * 1-5": seven o'clock from Monday to Friday.
type Wish struct {
	User
	Schedule string `json:"schedule"`
	Timezone string `json:"timezone"`
}

// UserTick is a tick, and beside it what stands in the schedule's payload.
type UserTick struct {
	nelkap.Tick
	User User `json:"payload"`
}

var app = nelkap.New(nelkap.Options{App: "nightly-report"})

// NightlyReport comes at two by the clocks of Berlin, in summer and in winter. A night in which no server ran is made up for.
var NightlyReport = nelkap.NewWorkflow(app, "nightly report", nelkap.NoResult(func(ctx context.Context, tick nelkap.Tick) error {
	return step.Do(ctx, "report", func(context.Context) error { return report("the night", tick) })
}), nelkap.OnSchedule("0 2 * * *", nelkap.Timezone("Europe/Berlin"), nelkap.CatchUp(nelkap.CatchUpLast)))

// UserReport is started by the schedules that PlanReport makes.
var UserReport = nelkap.NewWorkflow(app, "user report", nelkap.NoResult(func(ctx context.Context, tick UserTick) error {
	return step.Do(ctx, "report", func(context.Context) error { return report(tick.User.ID, tick.Tick) })
}))

// PlanReport makes a user's schedule, or changes it.
var PlanReport = nelkap.NewWorkflow(app, "plan report", nelkap.NoResult(func(ctx context.Context, wish Wish) error {
	// The id says whose schedule it is: put again, by a second attempt or with a new wish, it is the same one.
	return step.Do(ctx, "schedule", func(ctx context.Context) error {
		_, err := app.Schedules().Put(ctx, "report-"+wish.ID, nelkap.Schedule{
			Workflow: UserReport.Name(), Expression: wish.Schedule, Timezone: wish.Timezone, Payload: wish.User,
		})
		return err
	})
}), nelkap.OnEvent("report.wanted"))

func report(of string, tick nelkap.Tick) error {
	_, err := fmt.Printf("the report of %s, due %s\n", of, tick.Time.Format(time.RFC3339))
	return err
}

func main() {
	flag.Parse()
	http.Handle("/api/nelkap", app)
	fmt.Printf("process %d serves http://127.0.0.1:%s/api/nelkap\n", os.Getpid(), *port)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+*port, nil))
}
