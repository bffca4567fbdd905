package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nelkap/nelkap/internal/config"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/postgres"
	"github.com/nelkap/nelkap/internal/store/sqlite"
)

func (a *app) backupCommand() *cobra.Command {
	var data string
	command := &cobra.Command{
		Use: "backup FILE", Short: "Back up a data directory", Args: args(1, 1, "a new file's name"),
		Long: "Writes the store in a data directory to a new file, as it is at one moment; the server may go on meanwhile. The file is\n" +
			"there only once it is whole and on disk. A Postgres database is backed up with Postgres's own programs.",
		Example: "  nelkap backup ./backup.db --data ./data",
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		if data == "" {
			return usageError(command, "say which directory to back up, with --data")
		}
		if err := config.CheckDirectory("data", data); err != nil {
			return usageError(command, err.Error())
		}
		if err := sqlite.Backup(command.Context(), data, args[0]); err != nil {
			return err
		}
		if a.json {
			return a.printJSON(struct {
				Data string `json:"data"`
				File string `json:"file"`
			}{data, args[0]}, true)
		}
		_, err := fmt.Fprintf(a.out, "backed up %s to %s\n", line(data), line(args[0]))
		return err
	}
	command.Flags().StringVar(&data, "data", "", "the data directory")
	return command
}

func (a *app) restoreCommand() *cobra.Command {
	var r restoring
	command := &cobra.Command{
		Use: "restore FILE", Short: "Make a data directory of a backup, and hold or release runs", Args: args(0, 1, "a backup's name, or --go-on or --hold alone"),
		Long: "Makes a data directory of a backup, which is checked first. What was done since the backup is not known there: steps would\n" +
			"run again. So its runs are held. A server on it answers reads and cancels, and does nothing else, until you stop it and\n" +
			"say that the runs go on.\n\n" +
			"A Postgres database is restored with Postgres's own programs, and a server that is started on it finds that out. Nothing tells\n" +
			"it where the database server's files were copied back: hold the runs there with --hold, before you start one. A password is\n" +
			"best left to PGPASSWORD or a password file: flags can be read by others on the machine.",
		Example: "  nelkap restore ./backup.db --data ./restored\n  nelkap restore --go-on --data ./restored\n" +
			"  nelkap restore --hold --store postgres://nelkap@db.example.com/nelkap",
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		if err := r.check(args); err != nil {
			return usageError(command, err.Error())
		}
		return a.restore(command.Context(), r, args)
	}
	flags := command.Flags()
	flags.StringVar(&r.data, "data", "", "the data directory; a new or an empty one to restore to")
	flags.StringVar(&r.database, "store", "", "the URL of a Postgres database, with --go-on or --hold")
	flags.BoolVar(&r.goesOn, "go-on", false, "let the runs of what was restored go on, when its server is started next")
	flags.BoolVar(&r.holds, "hold", false, "hold the runs of a database that was restored, until --go-on")
	return command
}

// restoring is what nelkap restore is asked for.
type restoring struct {
	data, database string
	goesOn, holds  bool
}

// check says what is wrong with the question; nil: nothing is.
func (r restoring) check(args []string) error {
	if err := config.CheckDirectory("data", r.data); err != nil {
		return err
	}
	switch {
	case r.database != "" && !strings.HasPrefix(r.database, "postgres://") && !strings.HasPrefix(r.database, "postgresql://"):
		return errors.New("--store takes the URL of a Postgres database: postgres://…; a directory is --data")
	case r.data == "" && r.database == "":
		return errors.New("say which directory, with --data, or which database, with --store")
	case r.data != "" && r.database != "":
		return errors.New("give --data or --store, not both")
	case r.database != "" && (len(args) > 0 || r.goesOn == r.holds):
		return errors.New("with --store give --go-on or --hold alone: a database is restored with Postgres's own programs")
	case r.holds && r.data != "":
		return errors.New("--hold is for a database, with --store: a directory that was restored is held already")
	case r.database == "" && r.goesOn == (len(args) == 1):
		return errors.New("give a backup's name, or --go-on for a directory that was restored")
	}
	return nil
}

// restored is what --json tells of a directory or a database that was restored.
type restored struct {
	Data  string `json:"data,omitempty"`
	Store string `json:"store,omitempty"` // without a password
	Runs  int64  `json:"runs"`            // that have not ended
	Held  bool   `json:"held"`            // until they are told to go on
}

func (a *app) restore(ctx context.Context, r restoring, args []string) (err error) {
	tells, how := restored{Data: r.data, Held: !r.goesOn}, "--data "+r.data
	if r.database != "" {
		tells.Store, how = postgres.Place(r.database), "--store and its URL"
	}
	switch {
	case r.holds:
		tells.Runs, err = postgres.Hold(ctx, r.database)
	case r.goesOn && r.database != "":
		tells.Runs, err = postgres.GoOn(ctx, r.database)
	case r.goesOn:
		tells.Runs, err = sqlite.GoOn(ctx, r.data)
	default:
		tells.Runs, err = sqlite.Restore(ctx, args[0], r.data)
	}
	if errors.Is(err, store.ErrLocked) && r.goesOn {
		return fmt.Errorf("a server uses %s: stop it, and start it again after this command: %w", r.data, err)
	}
	if err != nil {
		return err
	}
	name := line(cmp.Or(tells.Store, r.data))
	switch {
	case a.json:
		return a.printJSON(tells, true)
	case r.goesOn:
		_, err = fmt.Fprintf(a.out, "runs of %s that go on when its server is started: %d\n", name, tells.Runs)
	case r.holds:
		_, err = fmt.Fprintf(a.out, "runs of %s that are held until nelkap restore --go-on %s: %d\n", name, how, tells.Runs)
	default:
		_, err = fmt.Fprintf(a.out, "restored %s. Runs that have not ended: %d. They are held until nelkap restore --go-on %s\n", name, tells.Runs, line(how))
	}
	return err
}
