package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/config"
)

// waitPerRequest is how long one request waits for a run's end: the API's most.
const waitPerRequest = 30 * time.Second

func (a *app) runCommand() *cobra.Command {
	var request client.StartRun
	var later later
	var keyFor time.Duration
	var payload string
	var wait bool
	command := &cobra.Command{
		Use: "run WORKFLOW", Short: "Start a run", Args: args(1, 1, "a workflow's name"),
		Long:    "Starts a run, and prints its id. With --wait it waits for the run to end, prints its output, and exits with 5 if the\nrun did not complete.",
		Example: `  nelkap run "send invoice" --payload '"o_1"' --wait`,
	}
	command.RunE = a.asks(func(command *cobra.Command, c *client.Client, args []string) error {
		var err error
		switch {
		case keyFor != 0 && request.Key == "":
			return usageError(command, "--key-for says how long a key is kept: give the key with --key")
		case keyFor < 0:
			return usageError(command, "--key-for can't be negative")
		}
		request.Workflow = args[0]
		request.KeyForMs = milliseconds(keyFor)
		if request.Payload, err = a.payload(command, payload); err != nil {
			return err
		}
		if request.At, err = later.instant(); err != nil {
			return err
		}
		request.DelayMs = later.delayMs()
		started, err := c.StartRun(command.Context(), request)
		if err != nil {
			return err
		}
		return a.startedRun(command.Context(), c, &started, wait)
	})
	flags := command.Flags()
	flags.StringVar(&payload, "payload", "", "the payload: JSON, @FILE, or - for standard input")
	flags.StringVar(&request.App, "app", "", "the app that has the workflow, where several have one of this name")
	flags.StringVar(&request.Key, "key", "", "one run for each key: a second start answers the first one's run")
	config.Duration(flags, &keyFor, "key-for", 0, "how long the key is kept, such as 24h; without it for ever")
	later.bind(flags, "start the run")
	flags.BoolVar(&wait, "wait", false, "wait for the run to end")
	return command
}

// later is when something is to happen.
type later struct {
	at    string
	delay time.Duration
}

func (l *later) bind(flags *pflag.FlagSet, what string) {
	flags.StringVar(&l.at, "at", "", what+" at this time, such as 2027-01-01T09:00:00Z")
	config.Duration(flags, &l.delay, "delay", 0, what+" so long from now, such as 90m")
}

// delayMs is zero where no delay is given. A server adds it to its own clock, so that this machine's may be wrong; never early.
func (l *later) delayMs() int64 { return milliseconds(l.delay) }

// milliseconds rounds up: the API takes 0 for no duration at all.
func milliseconds(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// instant is nil where it is to happen at once, or after the delay.
func (l *later) instant() (*time.Time, error) {
	switch {
	case l.at != "" && l.delay != 0:
		return nil, &codeError{exitUsage, errors.New("--at and --delay say the same thing: give one of them")}
	case l.delay < 0:
		return nil, &codeError{exitUsage, errors.New("--delay can't be negative")}
	case l.at == "":
		return nil, nil
	}
	at, err := timeOf("at", l.at)
	if err != nil {
		return nil, err
	}
	return &at, nil
}

// timeOf reads the value of a flag that is a time; zero where it is not given.
func timeOf(flag, value string) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return at, &codeError{exitUsage, fmt.Errorf("--%s must be a time such as 2027-01-01T09:00:00Z, with its offset from UTC, not %q", flag, value)}
	}
	return at, nil
}

// startedRun shows a run that was started, and waits for it if that is wished.
func (a *app) startedRun(ctx context.Context, c *client.Client, started *apitype.StartedRun, wait bool) error {
	switch {
	case started.Status == apitype.StatusGone:
		fmt.Fprintln(a.errOut, "The key has had a run, which has ended and is not kept any more (--runs-for): nothing is started.")
	case !started.Created:
		fmt.Fprintln(a.errOut, "The key has a run already; this is it.")
	}
	if started.PayloadDiffers {
		fmt.Fprintln(a.errOut, "It was started with another payload.")
	}
	switch {
	case wait && started.Status != apitype.StatusGone:
		return a.waitFor(ctx, c, started.ID)
	case a.json:
		return a.printJSON(started, true)
	default:
		fmt.Fprintln(a.out, line(started.ID))
		return nil
	}
}

// waitFor waits for a run's end and shows it.
func (a *app) waitFor(ctx context.Context, c *client.Client, runID string) error {
	if !a.json {
		fmt.Fprintln(a.errOut, line(runID))
	}
	var away away
	for {
		run, err := c.Run(ctx, runID, waitPerRequest)
		if away.passes(a, c, err) {
			continue
		}
		if err != nil {
			return err
		}
		if !ended(&run) {
			continue
		}
		if a.json {
			err = a.printJSON(run, true)
		} else if run.Status == "completed" && run.Output != nil {
			err = a.printJSON(run.Output, true)
		}
		if err != nil {
			return err
		}
		return runError(&run)
	}
}

// awayMax is how long a command that waits for a run goes on asking while no server answers: a restart takes seconds, a failover half a
// minute. The run goes on meanwhile.
const awayMax = time.Minute

// away is since when no server has answered a command that waits; the zero value: one does.
type away struct{ since time.Time }

// passes tells whether err is that no server answers, for less than awayMax: then the command asks again. The client pauses by itself.
func (w *away) passes(a *app, c *client.Client, err error) bool {
	var problem *apitype.Problem
	busy := errors.As(err, &problem) && problem.Status == http.StatusServiceUnavailable // its database is away, or it stops
	if !busy && !errors.Is(err, client.ErrUnreachable) {
		w.since = time.Time{}
		return false
	}
	if w.since.IsZero() {
		w.since = time.Now()
		fmt.Fprintf(a.errOut, "No server answers at %s any more. The run goes on without this command, which waits for the server.\n", line(c.Shown()))
	}
	return time.Since(w.since) < awayMax
}

func ended(run *apitype.Run) bool {
	return run.Status == "completed" || run.Status == "failed" || run.Status == "cancelled" || run.Status == "skipped"
}

// runError is the error of a run that did not complete.
func runError(run *apitype.Run) error {
	if run.Status == "completed" {
		return nil
	}
	text := fmt.Sprintf("the run was %s: see nelkap runs get %s", run.Status, run.ID)
	if run.Error != nil {
		text = fmt.Sprintf("the run %s with %s: %s. See nelkap runs get %s", run.Status, run.Error.Name, strings.TrimSuffix(run.Error.Message, "."), run.ID)
	}
	return &codeError{exitRunFailed, fmt.Errorf("%s", text)}
}

func (a *app) emitCommand() *cobra.Command {
	var event client.Event
	var later later
	var payload string
	command := &cobra.Command{
		Use: "emit EVENT", Short: "Emit an event", Args: args(1, 1, "an event's name"),
		Example: `  nelkap emit order.paid --payload @order.json --id o_1`,
	}
	command.RunE = a.asks(func(command *cobra.Command, c *client.Client, args []string) error {
		var err error
		event.Event = args[0]
		if event.Payload, err = a.payload(command, payload); err != nil {
			return err
		}
		if event.At, err = later.instant(); err != nil {
			return err
		}
		if later.delay > 0 { // the API takes no delay of an event
			at := time.Now().Add(later.delay).UTC()
			event.At = &at
		}
		emitted, err := c.Emit(command.Context(), event)
		if err != nil {
			return err
		}
		if !emitted.Created {
			fmt.Fprintln(a.errOut, "The id has an event already; this is it.")
		}
		if emitted.PayloadDiffers {
			fmt.Fprintln(a.errOut, "It was emitted with another payload.")
		}
		if a.json {
			return a.printJSON(emitted, true)
		}
		if event.At != nil && event.At.After(time.Now()) {
			_, err = fmt.Fprintf(a.out, "%s will be emitted at %s\n", line(emitted.ID), event.At.Format(time.RFC3339))
			return err
		}
		_, err = fmt.Fprintf(a.out, "%s started %s\n", line(emitted.ID), count(emitted.Runs, "run"))
		return err
	})
	command.Flags().StringVar(&payload, "payload", "", "the payload: JSON, @FILE, or - for standard input")
	command.Flags().StringVar(&event.ID, "id", "", "any text: emitted again under the same name it is the same event")
	later.bind(command.Flags(), "emit the event")
	return command
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
