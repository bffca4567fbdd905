package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
)

func (a *app) schedulesCommand() *cobra.Command {
	command := &cobra.Command{Use: "schedules", Short: "List, make, pause and remove schedules", Args: cobra.ArbitraryArgs}
	list := a.schedulesLsCommand()
	command.RunE = listOr(list.RunE)
	command.AddCommand(list, a.schedulesPutCommand(), a.schedulesPauseCommand("pause", "Pause a schedule", true),
		a.schedulesPauseCommand("resume", "Let a paused schedule go on, from now", false), a.schedulesRmCommand())
	return command
}

func (a *app) schedulesLsCommand() *cobra.Command {
	var page client.Page
	command := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List schedules", Args: args(0, 0, "no arguments")}
	command.RunE = a.asks(func(command *cobra.Command, c *client.Client, _ []string) error {
		list, err := c.Schedules(command.Context(), page)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(list, true)
		}
		var rows [][]string
		for i := range list.Data {
			rows = append(rows, scheduleRow(&list.Data[i]))
		}
		err = a.table([]string{"ID", "APP", "WORKFLOW", "SCHEDULE", "TIMEZONE", "NEXT"}, rows)
		a.nextPage(list.NextCursor)
		return err
	})
	pageFlags(command, &page)
	return command
}

func scheduleRow(s *apitype.Schedule) []string {
	next := "paused"
	if !s.Paused {
		next = instant(s.NextAt)
	}
	return []string{s.ID, s.App, s.Workflow, s.Schedule, s.Timezone, next}
}

func (a *app) schedulesPutCommand() *cobra.Command {
	var put client.PutSchedule
	var payload string
	command := &cobra.Command{
		Use: "put ID WORKFLOW SCHEDULE", Short: "Make a schedule, or change it", Args: args(3, 3, "an id, a workflow's name and a schedule"),
		Example: `  nelkap schedules put weekly-u1 report '0 9 * * 1' --timezone Europe/Berlin --payload '{"user":"u1"}'`,
	}
	command.RunE = a.asks(func(command *cobra.Command, c *client.Client, args []string) error {
		var err error
		put.Workflow, put.Schedule = args[1], args[2]
		if put.Payload, err = a.payload(command, payload); err != nil {
			return err
		}
		schedule, err := c.PutSchedule(command.Context(), args[0], put)
		return a.showSchedule(&schedule, err)
	})
	flags := command.Flags()
	flags.StringVar(&put.App, "app", "", "the app that has the workflow, where several have one of this name")
	flags.StringVar(&put.Timezone, "timezone", "", "an IANA name such as Europe/Berlin; UTC without it")
	flags.StringVar(&put.CatchUp, "catch-up", "", "what becomes of ticks that passed while no server ran: none, last or all")
	flags.StringVar(&payload, "payload", "", "stands beside the tick in its runs' payload: JSON, @FILE, or - for standard input")
	flags.BoolVar(&put.Paused, "paused", false, "make it, and let it wait for resume")
	return command
}

func (a *app) schedulesPauseCommand(use, short string, paused bool) *cobra.Command {
	return &cobra.Command{
		Use: use + " ID", Short: short, Args: args(1, 1, "a schedule's id"),
		RunE: a.asks(func(command *cobra.Command, c *client.Client, args []string) error {
			schedule, err := c.PauseSchedule(command.Context(), args[0], paused)
			return a.showSchedule(&schedule, err)
		}),
	}
}

func (a *app) schedulesRmCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm ID", Aliases: []string{"delete"}, Short: "Remove a schedule", Args: args(1, 1, "a schedule's id"),
		RunE: a.asks(func(command *cobra.Command, c *client.Client, args []string) error {
			return c.DeleteSchedule(command.Context(), args[0])
		}),
	}
}

// showSchedule shows what became of a schedule.
func (a *app) showSchedule(s *apitype.Schedule, err error) error {
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printJSON(s, true)
	case s.Paused:
		_, err = fmt.Fprintln(a.out, "paused")
	default:
		_, err = fmt.Fprintf(a.out, "next at %s\n", instant(s.NextAt))
	}
	return err
}
