// Command follow-feed has a loop that never has to end: each round begins again in the run's place, with a history of its own.
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

var (
	port  = flag.String("port", "3001", "where the app listens on this machine")
	pause = flag.Duration("pause", 10*time.Second, "how long it waits between two pages")
	pages = flag.Int("pages", 1_000_000, "the last page")
)

// Position is how far the feed was read.
type Position struct {
	Page int `json:"page"`
	Read int `json:"read"`
}

// Summary is what came of it.
type Summary struct {
	Read int `json:"read"`
}

var app = nelkap.New(nelkap.Options{App: "follow-feed"})

// FollowFeed handles a page's items, and goes on with the next page.
var FollowFeed = nelkap.NewWorkflow(app, "follow feed", func(ctx context.Context, at Position) (Summary, error) {
	items, err := step.Run(ctx, "page", func(context.Context) ([]string, error) { return fetchPage(at.Page), nil })
	if err != nil {
		return Summary{}, err
	}
	for _, item := range items {
		err := step.Do(ctx, "item "+item, func(context.Context) error {
			_, err := fmt.Printf("item %s is handled\n", item)
			return err
		})
		if err != nil {
			return Summary{}, err
		}
	}
	nelkap.Log(ctx).Info("a page is done", "page", at.Page, "items", len(items))
	if at.Page == *pages {
		return Summary{at.Read + len(items)}, nil
	}

	if err := step.Sleep(ctx, "pause", *pause); err != nil {
		return Summary{}, err
	}
	return Summary{}, step.Restart(ctx, Position{at.Page + 1, at.Read + len(items)})
})

// Three items on each page.
func fetchPage(page int) (items []string) {
	fmt.Printf("reading page %d\n", page)
	for _, letter := range "abc" {
		items = append(items, fmt.Sprintf("%d%c", page, letter))
	}
	return items
}

func main() {
	flag.Parse()
	http.Handle("/api/nelkap", app)
	fmt.Printf("process %d serves http://127.0.0.1:%s/api/nelkap\n", os.Getpid(), *port)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+*port, nil))
}
