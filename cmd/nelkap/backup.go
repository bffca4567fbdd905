package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nelkap/nelkap/internal/config"
	"github.com/nelkap/nelkap/internal/store"
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
	var data string
	var goesOn bool
	command := &cobra.Command{
		Use: "restore FILE", Short: "Make a data directory of a backup", Args: args(0, 1, "a backup's name, or --go-on alone"),
		Long: "Makes a data directory of a backup, which is checked first. What was done since the backup is not known there: steps would\n" +
			"run again. So its runs are held. A server on it answers reads and cancels, and does nothing else, until you stop it and\n" +
			"say that the runs go on.",
		Example: "  nelkap restore ./backup.db --data ./restored\n  nelkap restore --go-on --data ./restored",
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		if err := config.CheckDirectory("data", data); err != nil {
			return usageError(command, err.Error())
		}
		switch {
		case data == "":
			return usageError(command, "say which directory, with --data")
		case goesOn == (len(args) == 1):
			return usageError(command, "give a backup's name, or --go-on for a directory that was restored")
		case goesOn:
			return a.goOn(command, data)
		}
		runs, err := sqlite.Restore(command.Context(), args[0], data)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(restored{Data: data, Runs: runs, Held: true}, true)
		}
		_, err = fmt.Fprintf(a.out, "restored %s. Runs that have not ended: %d. They are held until nelkap restore --go-on --data %s\n", line(data), runs, line(data))
		return err
	}
	flags := command.Flags()
	flags.StringVar(&data, "data", "", "the data directory; a new or an empty one to restore to")
	flags.BoolVar(&goesOn, "go-on", false, "let the runs of a restored directory go on, when its server is started next")
	return command
}

// restored is what --json tells of a directory that was restored.
type restored struct {
	Data string `json:"data"`
	Runs int64  `json:"runs"` // that have not ended
	Held bool   `json:"held"` // until they are told to go on
}

func (a *app) goOn(command *cobra.Command, data string) error {
	runs, err := sqlite.GoOn(command.Context(), data)
	if errors.Is(err, store.ErrLocked) {
		return fmt.Errorf("a server uses %s: stop it, and start it again after this command: %w", data, err)
	}
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(restored{Data: data, Runs: runs}, true)
	}
	_, err = fmt.Fprintf(a.out, "runs of %s that go on when its server is started: %d\n", line(data), runs)
	return err
}
