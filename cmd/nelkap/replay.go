package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
)

const (
	// rateMax bounds --rate: a command replays one run after the other.
	rateMax = 1000
	// replayPage is how many runs are listed at once. A run has a payload and an output of up to 4 MiB each, and what the client reads of an
	// answer has 256 MiB at most.
	replayPage = 20
)

// replay is what the command line says of one replay, or of many.
type replay struct {
	*app
	client  *client.Client
	options client.ReplayOptions
	plan    bool
	wait    bool
	many    many
	refused int // how many of the runs can't be replayed
}

// many selects the runs that are replayed at once.
type many struct {
	query         client.RunQuery
	before, after string
	rate          int
}

func (a *app) runsReplayCommand() *cobra.Command {
	r := &replay{app: a}
	var payload string
	var keepKeys, newEvents bool
	command := &cobra.Command{
		Use: "replay [RUN]", Short: "Start a new run with the workflow and the payload of another, or of many",
		Args: args(0, 1, "a run's id, or --status and others in its place"),
		Long: `Starts a new run with the workflow and the payload of another. Every step runs again, or, with --from, those from a step on.
With --plan it only says which would.

Without RUN it replays all runs that --status and the other filters select, newest first, --rate in a second, and prints each
run with its replay. A run that can't be replayed so, such as one without the step of --from, is named and passed over, and the
exit code is 1 in the end. A command that was broken off is given again with the --before that it printed: for a day no run is
replayed twice by it.`,
		Example: `  nelkap runs replay run_01k5c2j5zt7m9q4w8x6v3b1n0d --from "send email"
  nelkap runs replay --status failed --workflow "send invoice" --after 2027-01-01T09:00:00Z --plan`,
	}
	command.RunE = a.asks(func(command *cobra.Command, c *client.Client, args []string) error {
		r.client = c
		var err error
		if r.options.Payload, err = a.payload(command, payload); err != nil {
			return err
		}
		if command.Flags().Changed("keep-keys") {
			r.options.KeepKeys = &keepKeys
		}
		if newEvents {
			r.options.Events = "new"
		}
		if len(args) == 0 {
			return r.all(command)
		}
		for _, filter := range []string{"status", "workflow", "app", "before", "after", "rate"} {
			if command.Flags().Changed(filter) {
				return usageError(command, "--"+filter+" selects many runs, and a run's id selects one: give one of them")
			}
		}
		return r.one(command.Context(), args[0])
	})
	flags := command.Flags()
	flags.StringVar(&r.options.From, "from", "", "a step's name: what was saved before it is kept")
	flags.StringVar(&payload, "payload", "", "another payload: JSON, @FILE, or - for standard input")
	flags.BoolVar(&keepKeys, "keep-keys", false, "give the steps the original's idempotency keys; so it is by default with --from")
	flags.BoolVar(&newEvents, "new-events", false, "wait for events that come after the replay began, not for the original's")
	flags.BoolVar(&r.plan, "plan", false, "only say which steps would be kept, and which would act again")
	flags.BoolVar(&r.wait, "wait", false, "wait for the run to end")
	flags.StringVar(&r.many.query.Status, "status", "", "replay the runs of this status: completed, failed, cancelled or skipped")
	flags.StringVar(&r.many.query.Workflow, "workflow", "", "only runs of this workflow")
	flags.StringVar(&r.many.query.App, "app", "", "only runs of this app")
	flags.StringVar(&r.many.before, "before", "", "only runs created before this time; without it all that are there now")
	flags.StringVar(&r.many.after, "after", "", "only runs created at this time or after it, such as 2027-01-01T09:00:00Z")
	flags.IntVar(&r.many.rate, "rate", 10, fmt.Sprintf("how many runs in a second, 1 to %d", rateMax))
	return command
}

func (r *replay) one(ctx context.Context, runID string) error {
	if r.plan {
		plan, err := r.client.PlanReplay(ctx, runID, r.options.From)
		if err != nil {
			return err
		}
		if r.json {
			return r.printJSON(plan, true)
		}
		var rows [][]string
		for _, s := range planned(&plan) {
			rows = append(rows, []string{shownStep(s.Name), fmt.Sprint(s.Number), s.Kind, s.would})
		}
		return r.table([]string{"STEP", "NUMBER", "KIND", "WOULD"}, rows)
	}
	started, err := r.client.Replay(ctx, runID, r.options)
	if err != nil {
		return err
	}
	return r.startedRun(ctx, r.client, &started, r.wait)
}

// plannedStep is a step of a plan, with what would become of it.
type plannedStep struct {
	apitype.PlannedStep
	would string
}

func planned(plan *apitype.ReplayPlan) (steps []plannedStep) {
	for _, s := range plan.Keeps {
		steps = append(steps, plannedStep{s, "be kept"})
	}
	for _, s := range plan.Acts {
		steps = append(steps, plannedStep{s, "act again"})
	}
	return steps
}

// all replays the runs that the filters select.
func (r *replay) all(command *cobra.Command) error {
	m := &r.many
	switch {
	case !slices.Contains([]string{"completed", "failed", "cancelled", "skipped"}, m.query.Status):
		return usageError(command, "Give a run's id, or select ended runs by --status: completed, failed, cancelled or skipped")
	case m.rate < 1 || m.rate > rateMax:
		return usageError(command, fmt.Sprintf("--rate is 1 to %d runs in a second, not %d", rateMax, m.rate))
	case r.wait:
		return usageError(command, "--wait waits for one run: give its id")
	}
	before, err := timeOf("before", m.before)
	if err != nil {
		return err
	}
	after, err := timeOf("after", m.after)
	if err != nil {
		return err
	}
	passed := time.Now()
	if before.IsZero() {
		if before, passed, err = r.now(command.Context()); err != nil {
			return err
		}
	}
	if r.plan {
		return r.planAll(command.Context(), before, after)
	}
	pace := time.NewTicker(time.Second / time.Duration(m.rate))
	defer pace.Stop()
	replayed := 0
	err = r.each(command.Context(), before, after, func(run *apitype.Run) error {
		if replayed+r.refused == 0 {
			if err := sleepUntil(command.Context(), passed); err != nil {
				return err
			}
			r.options.Once = before.UTC().Format(time.RFC3339Nano)
			fmt.Fprintf(r.errOut, "Replaying runs that were created before %s. Should this be broken off, go on with --before %[1]s.\n", r.options.Once)
		} else {
			select {
			case <-pace.C:
			case <-command.Context().Done():
				return command.Context().Err()
			}
		}
		started, err := r.client.Replay(command.Context(), run.ID, r.options)
		if err != nil {
			return r.passOver(run, err)
		}
		replayed++
		if r.json {
			return r.printJSON(started, false)
		}
		_, err = fmt.Fprintln(r.out, line(run.ID), line(started.ID))
		return err
	})
	fmt.Fprintf(r.errOut, "Replayed %d runs.\n", replayed)
	return cmp.Or(err, r.refusals())
}

// passOver says of a run that it can't be replayed, so that the others are: given again, the command would end at the same run. An error that
// is not about this one run ends the command.
func (r *replay) passOver(run *apitype.Run, err error) error {
	var problem *apitype.Problem
	if !errors.As(err, &problem) || !slices.Contains([]string{"not_found", "step_unknown", "workflow_unknown", "workflow_ambiguous"}, problem.Code) {
		return fmt.Errorf("run %s: %w", run.ID, err)
	}
	r.refused++
	fmt.Fprintf(r.errOut, "run %s: %s\n", line(run.ID), line(hint(err).Error()))
	return nil
}

// refusals is the error of a command that has passed runs over.
func (r *replay) refusals() error {
	if r.refused == 0 {
		return nil
	}
	return fmt.Errorf("runs that can't be replayed like this: %d; each is named above, with why", r.refused)
}

// planAll says how many runs would keep each step, and in how many it would act again.
func (r *replay) planAll(ctx context.Context, before, after time.Time) error {
	runs, counts := 0, map[[3]string]int{}
	err := r.each(ctx, before, after, func(run *apitype.Run) error {
		plan, err := r.client.PlanReplay(ctx, run.ID, r.options.From)
		if err != nil {
			return r.passOver(run, err)
		}
		runs++
		steps := map[[3]string]bool{}
		for _, s := range planned(&plan) {
			steps[[3]string{s.Name, s.Kind, s.would}] = true
		}
		for s := range steps {
			counts[s]++
		}
		return nil
	})
	if err != nil {
		return err
	}
	list := make([]countedStep, 0, len(counts))
	for s, runs := range counts {
		list = append(list, countedStep{s[0], s[1], s[2], runs})
	}
	slices.SortFunc(list, func(a, b countedStep) int {
		return cmp.Or(-cmp.Compare(a.Would, b.Would), -cmp.Compare(a.Runs, b.Runs), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	if r.json {
		err := r.printJSON(struct {
			Runs  int           `json:"runs"`
			Steps []countedStep `json:"steps"`
		}{runs, list}, true)
		return cmp.Or(err, r.refusals())
	}
	var rows [][]string
	for _, s := range list {
		rows = append(rows, []string{shownStep(s.Name), s.Kind, s.Would, fmt.Sprint(s.Runs)})
	}
	err = r.table([]string{"STEP", "KIND", "WOULD", "RUNS"}, rows)
	fmt.Fprintf(r.errOut, "%d runs would be replayed.\n", runs)
	return cmp.Or(err, r.refusals())
}

// countedStep is a step of many plans.
type countedStep struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Would string `json:"would"`
	Runs  int    `json:"runs"`
}

// now is a time that no run has been created at yet, by the server's clock, which tells whole seconds; and when it has passed here. It is
// between two milliseconds, which is as fine as runs are dated: so the time is this command's own, and given again without it, the
// command replays them again. Runs don't tell it: they are listed by their ids, which clients draw by their own clocks.
func (r *replay) now(ctx context.Context) (at, passed time.Time, err error) {
	ready, err := r.client.Ready(ctx)
	if err != nil {
		return at, passed, err
	}
	passed = time.Now().Add(time.Second + time.Millisecond)
	if at = ready.At; at.IsZero() {
		at = passed.Add(-time.Second).UTC().Truncate(time.Second)
	}
	return at.Add(time.Second + 1 + rand.N(time.Millisecond-1)), passed, nil
}

func sleepUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// each calls do with the runs that are selected, in the order of their ids, the newest first: those that were created before one time, so that
// no replay is replayed, and not before another.
func (r *replay) each(ctx context.Context, before, after time.Time, do func(run *apitype.Run) error) error {
	query := r.many.query
	query.Limit = replayPage
	for {
		list, err := r.client.Runs(ctx, query)
		if err != nil {
			return err
		}
		for i := range list.Data {
			run := &list.Data[i]
			if created := run.CreatedAt.Time; !created.Before(before) || created.Before(after) {
				continue
			}
			if err := do(run); err != nil {
				return err
			}
		}
		if list.NextCursor == nil {
			return nil
		}
		query.Cursor = *list.NextCursor
	}
}
