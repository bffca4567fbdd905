package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
)

func (a *app) deliveriesCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "deliveries", Short: "List, show and redeliver what came to configured webhooks", Args: cobra.ArbitraryArgs, RunE: group,
		Long: "Deliveries are what came to the webhooks that the server checks (--hook of nelkap serve and nelkap dev). Rejected ones, whose\nsignature was wrong, emitted nothing, and are kept apart.",
	}
	command.AddCommand(a.deliveriesLsCommand(), a.deliveriesGetCommand(), a.redeliverCommand())
	return command
}

func (a *app) deliveriesLsCommand() *cobra.Command {
	var query client.DeliveryQuery
	command := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List deliveries, newest first", Args: args(0, 0, "no arguments")}
	command.RunE = a.asks(func(command *cobra.Command, c *client.Client, _ []string) error {
		list, err := c.Deliveries(command.Context(), query)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(list, true)
		}
		var rows [][]string
		for i := range list.Data {
			d := &list.Data[i]
			name, runs := eventsText(d)
			rows = append(rows, []string{d.ID, d.Hook, d.Status, name, fmt.Sprint(runs), instant(d.ReceivedAt)})
		}
		err = a.table([]string{"ID", "HOOK", "STATUS", "EVENT", "RUNS", "RECEIVED"}, rows)
		a.nextPage(list.NextCursor)
		return err
	})
	pageFlags(command, &query.Page)
	command.Flags().StringVar(&query.Hook, "hook", "", "only deliveries to this hook")
	command.Flags().StringVar(&query.Status, "status", "", "only deliveries of this status: verified, duplicate, rejected or unverified")
	return command
}

// eventsText is the first of a delivery's events, which is the provider's where there is one, and how many runs all of them started.
func eventsText(d *apitype.Delivery) (name string, runs int) {
	name = "-"
	for i, e := range d.Events {
		if i == 0 {
			name = e.Event
		}
		runs += e.Runs
	}
	return name, runs
}

func (a *app) deliveriesGetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "get DELIVERY", Short: "Show a delivery, with its headers and its body", Args: args(1, 1, "a delivery's id"),
		RunE: a.asks(func(command *cobra.Command, c *client.Client, args []string) error {
			d, err := c.Delivery(command.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(d, true)
			}
			return a.showDelivery(&d)
		}),
	}
}

func (a *app) showDelivery(d *apitype.Delivery) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" && value != "-" {
			fmt.Fprintf(w, "%s\t%s\n", name, line(value))
		}
	}
	row("delivery", d.ID)
	row("hook", d.Hook)
	row("provider", d.Provider)
	row("status", d.Status)
	row("reason", text(d.Reason))
	row("provider's id", text(d.ProviderID))
	row("redelivery of", text(d.RedeliveryOf))
	row("received", instant(d.ReceivedAt))
	for _, e := range d.Events {
		row("event", e.Event+" "+e.ID+" started "+count(e.Runs, "run"))
	}
	if err := w.Flush(); err != nil || d.Request == nil {
		return err
	}
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(d.Request.Headers)) {
		rows = append(rows, []string{name, d.Request.Headers[name]})
	}
	fmt.Fprintln(a.out)
	if err := a.table([]string{"HEADER", "VALUE"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.out, "\n%s\n", printable(strings.TrimRight(string(d.Request.Body), "\n")))
	return err
}

func (a *app) redeliverCommand() *cobra.Command {
	var unverified bool
	command := &cobra.Command{
		Use: "redeliver DELIVERY", Short: "Emit a delivery's events again, as new ones", Args: args(1, 1, "a delivery's id"),
		RunE: a.asks(func(command *cobra.Command, c *client.Client, args []string) error {
			d, err := c.Redeliver(command.Context(), args[0], unverified)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(d, true)
			}
			name, runs := eventsText(&d)
			_, err = fmt.Fprintf(a.out, "%s emitted %s and started %s\n", line(d.ID), line(name), count(runs, "run"))
			return err
		}),
	}
	command.Flags().BoolVar(&unverified, "unverified", false, "also a delivery that was rejected: only if you know who sent it")
	return command
}
