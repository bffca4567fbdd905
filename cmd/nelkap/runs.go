package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
)

// watchEvery is how long watch waits for a run's end between looks at its steps.
const watchEvery = time.Second

func (a *app) runsCommand() *cobra.Command {
	command := &cobra.Command{Use: "runs", Short: "List, show, watch, replay and cancel runs", Args: cobra.ArbitraryArgs, RunE: group}
	command.AddCommand(a.runsLsCommand(), a.runsGetCommand(), a.runsWatchCommand(), a.runsReplayCommand(), a.runsCancelCommand(), a.runsLogsCommand())
	return command
}

func (a *app) runsLsCommand() *cobra.Command {
	var query client.RunQuery
	command := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List runs, newest first", Args: args(0, 0, "no arguments")}
	command.RunE = a.asks(func(command *cobra.Command, c *client.Client, _ []string) error {
		list, err := c.Runs(command.Context(), query)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(list, true)
		}
		var rows [][]string
		for _, run := range list.Data {
			rows = append(rows, []string{run.ID, run.App, run.Workflow, run.Status, instant(run.CreatedAt), between(run.CreatedAt, run.EndedAt)})
		}
		err = a.table([]string{"ID", "APP", "WORKFLOW", "STATUS", "CREATED", "TOOK"}, rows)
		a.nextPage(list.NextCursor)
		return err
	})
	pageFlags(command, &query.Page)
	command.Flags().StringVar(&query.Status, "status", "", "only runs of this status: queued, running, waiting, completed, failed, cancelled or skipped")
	command.Flags().StringVar(&query.Workflow, "workflow", "", "only runs of this workflow")
	command.Flags().StringVar(&query.App, "app", "", "only runs of this app")
	command.Flags().StringVar(&query.Key, "key", "", "only the runs of this key")
	return command
}

func (a *app) runsGetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "get RUN", Short: "Show a run and its steps", Args: args(1, 1, "a run's id"),
		RunE: a.asks(func(command *cobra.Command, c *client.Client, args []string) error {
			run, err := c.Run(command.Context(), args[0], 0)
			if err != nil {
				return err
			}
			steps, err := allSteps(command.Context(), c, run.ID)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(struct {
					apitype.Run
					Steps []apitype.Step `json:"steps"`
				}{run, steps}, true)
			}
			return a.showRun(&run, steps)
		}),
	}
}

// allSteps reads all pages of a run's steps.
func allSteps(ctx context.Context, c *client.Client, runID string) ([]apitype.Step, error) {
	steps := []apitype.Step{}
	page := client.Page{Limit: 100}
	for {
		list, err := c.Steps(ctx, runID, page)
		if err != nil {
			return nil, err
		}
		steps = append(steps, list.Data...)
		if list.NextCursor == nil {
			return steps, nil
		}
		page.Cursor = *list.NextCursor
	}
}

func (a *app) showRun(run *apitype.Run, steps []apitype.Step) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" && value != "-" {
			fmt.Fprintf(w, "%s\t%s\n", name, line(value))
		}
	}
	row("run", run.ID)
	row("workflow", run.Workflow)
	row("app", run.App)
	row("status", run.Status)
	if run.Closing {
		row("closing", "its code is over; it undoes and tells")
	}
	row("warning", text(run.Warning))
	if run.Restart > 0 {
		row("restarts", fmt.Sprint(run.Restart))
	}
	if run.WaitingFor != nil {
		row("waiting for", run.WaitingFor.Reason)
		row("next look", instant(run.WaitingFor.NextAt))
	}
	row("created", instant(run.CreatedAt))
	row("started", instant(run.StartedAt))
	row("ended", instant(run.EndedAt))
	row("cancel requested", instant(run.CancelRequestedAt))
	row("event", strings.TrimSpace(text(run.Event)+" "+text(run.EventID)))
	row("key", text(run.Key))
	row("replay of", text(run.ReplayOf))
	row("payload", string(run.Payload))
	if run.Status == "completed" {
		row("output", string(run.Output))
	}
	row("error", errorText(run.Error))
	if err := w.Flush(); err != nil {
		return err
	}
	if len(steps) == 0 {
		return nil
	}
	fmt.Fprintln(a.out)
	var rows [][]string
	for i := range steps {
		rows = append(rows, stepRow(&steps[i]))
	}
	return a.table([]string{"STEP", "STATUS", "ATTEMPTS", "TOOK", "RESULT"}, rows)
}

func errorText(e *apitype.Error) string {
	if e == nil {
		return ""
	}
	return e.Name + ": " + e.Message
}

// resultMax is how much of a step's result a table shows.
const resultMax = 60

// shownStep is a step's name for people: what a workflow's once claims is a step without one.
func shownStep(name string) string { return cmp.Or(name, "(once)") }

func stepRow(s *apitype.Step) []string {
	name := shownStep(s.Name)
	if s.Number > 1 {
		name = fmt.Sprintf("%s (%d)", name, s.Number)
	}
	result := string(s.Output)
	if s.Error != nil {
		result = errorText(s.Error)
	}
	if letters := []rune(result); len(letters) > resultMax {
		result = string(letters[:resultMax]) + "…"
	}
	took := "-"
	if n := len(s.Attempts); n > 0 {
		took = between(s.Attempts[n-1].StartedAt, s.Attempts[n-1].EndedAt)
	}
	return []string{name, s.Status, fmt.Sprint(len(s.Attempts)), took, result}
}

func (a *app) runsWatchCommand() *cobra.Command {
	return &cobra.Command{
		Use: "watch RUN", Short: "Show a run's steps as they are saved, until it ends", Args: args(1, 1, "a run's id"),
		Long: "Shows a run's steps as they are saved, until the run ends. Exits with 5 if it did not complete. With --json each step is a\nline, and the run at its end is the last.",
		RunE: a.asks(func(command *cobra.Command, c *client.Client, args []string) error {
			return a.watch(command.Context(), c, args[0])
		}),
	}
}

func (a *app) watch(ctx context.Context, c *client.Client, runID string) error {
	w := &watcher{app: a, client: c, runID: runID}
	var away away
	for known := false; ; known = true {
		// The run first: if it has ended, the steps that are read then are all.
		run, err := c.Run(ctx, runID, watchEvery)
		if err == nil {
			err = w.chapters(ctx, run.Restart)
		}
		if known && away.passes(a, c, err) {
			continue
		}
		if err != nil {
			return err
		}
		if !ended(&run) {
			continue
		}
		if a.json {
			err = a.printJSON(run, false)
		} else {
			_, err = fmt.Fprintf(a.out, "run %s after %s\n", line(run.Status), between(run.CreatedAt, run.EndedAt))
		}
		if err != nil {
			return err
		}
		return runError(&run)
	}
}

// watcher shows each saved step once.
type watcher struct {
	*app
	client *client.Client
	runID  string

	restart int    // the chapter that is shown
	cursor  string // of the page that may still grow
	shown   int64  // the last entry that was shown
}

// chapters shows the rest of the chapters that are closed, and what the current one has.
func (w *watcher) chapters(ctx context.Context, restart int) error {
	for {
		if err := w.steps(ctx); err != nil || w.restart >= restart {
			return err
		}
		w.restart, w.cursor, w.shown = w.restart+1, "", 0
		if !w.json {
			fmt.Fprintf(w.out, "restart %d\n", w.restart)
		}
	}
}

func (w *watcher) steps(ctx context.Context) error {
	for {
		list, err := w.client.ChapterSteps(ctx, w.runID, w.restart, client.Page{Limit: 100, Cursor: w.cursor})
		if err != nil {
			return err
		}
		for i := range list.Data {
			if err := w.step(&list.Data[i]); err != nil {
				return err
			}
		}
		if list.NextCursor == nil {
			return nil
		}
		w.cursor = *list.NextCursor
	}
}

func (w *watcher) step(s *apitype.Step) error {
	if s.Entry == nil || *s.Entry <= w.shown {
		return nil
	}
	w.shown = *s.Entry
	if w.json {
		return w.printJSON(s, false)
	}
	row := stepRow(s)
	_, err := fmt.Fprintf(w.out, "step %s  %s  %s  %s\n", line(row[0]), line(row[1]), row[3], line(row[4]))
	return err
}

func (a *app) runsLogsCommand() *cobra.Command {
	var page client.Page
	command := &cobra.Command{
		Use: "logs RUN", Short: "Show what a run's code has logged", Args: args(1, 1, "a run's id"),
	}
	command.RunE = a.asks(func(command *cobra.Command, c *client.Client, args []string) error {
		list, err := c.Logs(command.Context(), args[0], page)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(list, true)
		}
		for i := range list.Data {
			l := &list.Data[i]
			where := text(l.Step)
			if where == "" {
				where = "-"
			}
			fmt.Fprintf(a.out, "%s  %-5s  %s  %s  %s\n", instant(l.At), l.Level, line(where), line(l.Message), line(string(l.Fields)))
		}
		a.nextPage(list.NextCursor)
		return nil
	})
	pageFlags(command, &page)
	return command
}

func (a *app) runsCancelCommand() *cobra.Command {
	force := false
	command := &cobra.Command{
		Use: "cancel RUN", Short: "Cancel a run", Args: args(1, 1, "a run's id"),
		RunE: a.asks(func(command *cobra.Command, c *client.Client, args []string) error {
			run, err := c.Cancel(command.Context(), args[0], force)
			switch {
			case err != nil:
				return err
			case a.json:
				return a.printJSON(run, true)
			case run.Status == "cancelled":
				_, err = fmt.Fprintln(a.out, "cancelled")
			case ended(&run):
				_, err = fmt.Fprintf(a.out, "it had ended before: %s\n", line(run.Status))
			default:
				_, err = fmt.Fprintln(a.out, "it is ending: steps that are running may still be saved, and what is to be undone is undone")
			}
			return err
		}),
	}
	command.Flags().BoolVar(&force, "force", false, "end it at once: nothing is undone, no handler runs, and what is in flight can save nothing more")
	return command
}
