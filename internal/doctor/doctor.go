// Package doctor says what is wrong with a server and its store, and what to do about it. It decides from what others have found out:
// it opens no database, and asks a server only what every client may ask. It changes nothing. cmd/nelkap calls it.
//
// It says of rule N6 which is the case: whether the loss of a node includes the database.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
)

// Status is how a check went.
type Status string

// The statuses.
const (
	OK   Status = "ok"
	Warn Status = "warn" // it works, and people should know
	Fail Status = "fail" // it does not work, or will lose work
)

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	Advice string `json:"advice,omitzero"` // what to do; empty where all is well
}

const (
	// clockMax is how far two clocks may be apart: a signature that is older is refused.
	clockMax = 5 * time.Minute
	// clockOdd is what no machine has whose clock is kept.
	clockOdd = 10 * time.Second
)

func ok(name, format string, values ...any) Check {
	return Check{Name: name, Status: OK, Detail: fmt.Sprintf(format, values...)}
}

func (c Check) warn(advice string) Check { c.Status, c.Advice = Warn, advice; return c }
func (c Check) fail(advice string) Check { c.Status, c.Advice = Fail, advice; return c }

// Failed counts the checks that failed.
func Failed(checks []Check) int {
	count := 0
	for _, c := range checks {
		if c.Status == Fail {
			count++
		}
	}
	return count
}

// Asker asks a server. *client.Client is one.
type Asker interface {
	Ready(ctx context.Context) (client.Readiness, error)
	Apps(ctx context.Context) (apitype.List[apitype.App], error)
}

// Server checks a server by what it answers. version is this program's.
func Server(ctx context.Context, asker Asker, url, version string) []Check {
	asked := time.Now()
	ready, err := asker.Ready(ctx)
	answered := time.Now()
	var problem *apitype.Problem
	switch {
	case errors.As(err, &problem):
		return []Check{ok("server", "%s answers %d %s: %s", url, problem.Status, problem.Code, problem.Detail).fail("see the server's log: it says what its store said; the checks of --store may tell, too")}
	case err != nil:
		return []Check{ok("server", "%v", err).fail("start the server, or say where it is with --url or NELKAP_URL")}
	}
	server := ok("server", "ready at %s, version %s", url, ready.Version)
	if ready.Version != version {
		server = server.warn("this command has version " + version + ": use the server's, so that they mean the same")
	}
	checks := []Check{server}
	if !ready.At.IsZero() {
		// Its clock is told to the second, and was read some time between question and answer.
		ahead := ready.At.Add(500 * time.Millisecond).Sub(asked.Add(answered.Sub(asked) / 2))
		checks = append(checks, clock("clock", "the server's", ahead))
	}
	if ready.Held { // its apps may be ready, and still nothing goes on
		checks = append(checks, ok("phase", "the server's store was restored from a backup, and its runs are held").warn(goOn("with its --data or --store")))
	}
	return append(checks, apps(ctx, asker)...)
}

func clock(name, whose string, ahead time.Duration) Check {
	how := "ahead of"
	if ahead < 0 {
		how = "behind"
	}
	c := ok(name, "%s clock is %v %s this machine's", whose, ahead.Abs().Round(100*time.Millisecond), how)
	const advice = "let both machines follow a time server (NTP)"
	switch {
	case ahead.Abs() > clockMax:
		return c.fail(advice + ": apps refuse calls whose time is more than 5 minutes off, and timers are due at the wrong time")
	case ahead.Abs() > clockOdd:
		return c.warn(advice + ": timers are due at the time of the node that looks")
	default:
		return c
	}
}

func apps(ctx context.Context, asker Asker) []Check {
	list, err := asker.Apps(ctx)
	var problem *apitype.Problem
	switch {
	case errors.As(err, &problem) && (problem.Status == http.StatusUnauthorized || problem.Status == http.StatusForbidden):
		return []Check{ok("key", "the server does not accept the API key").fail("set NELKAP_API_KEY to the server's")}
	case err != nil:
		return []Check{ok("apps", "%v", err).fail("see the server's log")}
	}
	checks := []Check{ok("key", "the server accepts the API key")}
	if len(list.Data) == 0 {
		return append(checks, ok("apps", "there are none").warn("make one known: nelkap apps sync URL, or nelkap serve --app URL"))
	}
	for _, app := range list.Data {
		checks = append(checks, appCheck(app))
	}
	return checks
}

func appCheck(app apitype.App) Check {
	name := app.URL
	if app.Name != nil {
		name = *app.Name + " at " + app.URL
	}
	switch {
	case app.Reason != nil:
		return ok("app", "%s can't be used: %s", name, *app.Reason).fail("its runs wait until it can: mend that; nelkap apps sync URL looks again at once")
	case len(app.Problems) > 0:
		return ok("app", "%s asks for what this server can't do: %s", name, app.Problems[0]).warn("see nelkap apps for all of it; a newer server may know it")
	default:
		return ok("app", "%s is ready, with %d workflows", name, len(app.Workflows))
	}
}
