package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nelkap/nelkap/internal/config"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/move"
	"github.com/nelkap/nelkap/internal/store/postgres"
	"github.com/nelkap/nelkap/internal/store/sqlite"
)

// progressEvery is how often people are told how far a large table has come.
const progressEvery = 5 * time.Second

func (a *app) migrateCommand() *cobra.Command {
	var from, to string
	var abort bool
	command := &cobra.Command{
		Use: "migrate", Short: "Move a data directory to Postgres", Args: args(0, 0, "no arguments"),
		Long: "Moves the store in a data directory to an empty Postgres database, with runs in flight. Stop the server first, with SIGTERM:\n" +
			"calls in flight keep their lease, and apps keep retrying their saves. Then start nelkap serve with --store and the database's\n" +
			"URL at the same address.\n\n" +
			"When it is interrupted, start it again: it goes on. Until it has ended, no server uses either store; --abort is the way back.\n" +
			"A password is best left to PGPASSWORD or a password file: flags can be read by others on the machine.",
		Example: "  nelkap migrate --from ./data --to postgres://nelkap@db.example.com/nelkap\n" +
			"  nelkap migrate --from ./data --abort",
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		if err := config.CheckDirectory("from", from); err != nil {
			return usageError(command, err.Error())
		}
		switch {
		case from == "":
			return usageError(command, "say which directory to move, with --from")
		case abort && to != "":
			return usageError(command, "--abort takes no --to: it is about the directory alone")
		case abort:
			return a.abortMove(command.Context(), from)
		case !strings.HasPrefix(to, "postgres://") && !strings.HasPrefix(to, "postgresql://"):
			return usageError(command, "say where to move it, with --to postgres://…")
		}
		return a.move(command.Context(), from, to)
	}
	flags := command.Flags()
	flags.StringVar(&from, "from", "", "the data directory to move")
	flags.StringVar(&to, "to", "", "the URL of an empty Postgres database")
	flags.BoolVar(&abort, "abort", false, "go back: a directory that has not moved yet may be used by servers again")
	return command
}

// moved is what --json tells of a move.
type moved struct {
	From string `json:"from"`
	To   string `json:"to,omitempty"` // without a password; empty: the way back was taken, and the store is where it was
}

func (a *app) move(ctx context.Context, from, to string) (err error) {
	source, err := openSource(ctx, from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := postgres.OpenTarget(ctx, to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	p := &progress{out: a.errOut, told: time.Now()}
	place := postgres.Place(to)
	if err := move.Run(ctx, source, target, move.Options{Place: place, Report: p.report}); err != nil {
		return untilStartedAgain(ctx, err)
	}
	if a.json {
		return a.printJSON(moved{From: from, To: place}, true)
	}
	_, err = fmt.Fprintf(a.out, "moved %s to %s.\nNow start the server there, at the same address as before: nelkap serve --store and the same postgres:// URL.\n"+
		"No server uses the directory any more; remove it once you miss nothing.\n", line(from), line(place))
	return err
}

// untilStartedAgain adds to what broke a move off how it goes on.
func untilStartedAgain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, move.ErrRefused) || errors.Is(err, move.ErrDiffers):
		return err
	case ctx.Err() != nil:
		return errors.New("interrupted: the move goes on when the same command is started again; nelkap migrate --abort is the way back")
	}
	return fmt.Errorf("the move was broken off, and goes on when the same command is started again: %w", err)
}

func (a *app) abortMove(ctx context.Context, from string) (err error) {
	source, err := openSource(ctx, from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	if err := move.Abort(ctx, source); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(moved{From: from}, true)
	}
	_, err = fmt.Fprintf(a.out, "%s stays where it is: start its server as before.\nWhat was copied can't be used; drop the database, or move to it again later.\n", line(from))
	return err
}

func openSource(ctx context.Context, dir string) (*sqlite.Source, error) {
	source, err := sqlite.OpenSource(ctx, dir)
	if errors.Is(err, store.ErrLocked) {
		return nil, fmt.Errorf("a server, or another command, uses %s: stop it with SIGTERM, and try again. Calls in flight keep their lease, and apps keep retrying their saves, until a server answers at the same address: %w", dir, err)
	}
	return source, err
}

// progress tells people how far a move has come: a line for each table that has rows, and more lines while a large one lasts.
type progress struct {
	out  io.Writer
	told time.Time
}

func (p *progress) report(at move.Progress) {
	now := time.Now()
	switch {
	case at.Ended && at.Rows > 0:
		fmt.Fprintf(p.out, "%-9s %-15s %d rows\n", at.Work, at.Table, at.Rows)
	case !at.Ended && now.Sub(p.told) >= progressEvery:
		fmt.Fprintf(p.out, "%-9s %-15s %d rows so far\n", at.Work, at.Table, at.Rows)
	default:
		return
	}
	p.told = now
}
