// Command fan-out makes a run for each item, some of them at a time; their results end in one sum, their failures by name.
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

// The heavier a parcel, the longer its weighing takes, so that there is time to kill the app meanwhile.
var (
	port           = flag.String("port", "3001", "where the app listens on this machine")
	secondsPerKilo = flag.Int("seconds-per-kilo", 2, "how long a weighing takes")
)

// atOnce is how many parcels are on scales at the same time.
const atOnce = 2

// Parcel is one item.
type Parcel struct {
	Name  string `json:"name"`
	Grams int    `json:"grams"`
}

// Weighed is what became of one parcel, or of all.
type Weighed struct {
	Grams  int      `json:"grams"`
	Failed []string `json:"failed"`
}

var app = nelkap.New(nelkap.Options{App: "fan-out"})

// WeighParcel is the child.
var WeighParcel = nelkap.NewWorkflow(app, "weigh parcel", func(ctx context.Context, parcel Parcel) (int, error) {
	return step.Run(ctx, "scale", func(ctx context.Context) (int, error) {
		fmt.Println(parcel.Name, "is on the scale")
		if parcel.Grams == 0 {
			return 0, nelkap.NonRetriable(errors.New("the scale shows nothing"))
		}
		return parcel.Grams, pass(ctx, time.Duration(parcel.Grams**secondsPerKilo)*time.Millisecond)
	})
})

// WeighParcels is the parent.
var WeighParcels = nelkap.NewWorkflow(app, "weigh parcels", func(ctx context.Context, parcels []Parcel) (Weighed, error) {
	weighed, err := step.Map(ctx, parcels, func(ctx context.Context, parcel Parcel) (Weighed, error) {
		grams, err := step.Invoke(ctx, "weigh "+parcel.Name, WeighParcel, parcel)
		// Not caught, the first failure would be the parent's, and end the children that are left.
		if failed, ok := errors.AsType[*nelkap.StepError](err); ok {
			return Weighed{Failed: []string{failed.Step + ": " + failed.Err.Message}}, nil
		}
		return Weighed{Grams: grams}, err
	}, step.Limit(atOnce))
	if err != nil {
		return Weighed{}, err
	}

	all := Weighed{Failed: []string{}}
	for _, one := range weighed {
		all.Grams += one.Grams
		all.Failed = append(all.Failed, one.Failed...)
	}
	return all, nil
})

// pass lets time pass, unless the step is told to end.
func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func main() {
	flag.Parse()
	http.Handle("/api/nelkap", app)
	fmt.Printf("process %d serves http://127.0.0.1:%s/api/nelkap\n", os.Getpid(), *port)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+*port, nil))
}
