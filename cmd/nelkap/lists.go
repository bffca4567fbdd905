package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
)

func (a *app) appsCommand() *cobra.Command {
	list := a.asks(func(command *cobra.Command, c *client.Client, _ []string) error {
		list, err := c.Apps(command.Context())
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(list, true)
		}
		return a.showApps(list.Data)
	})
	command := &cobra.Command{Use: "apps", Short: "List apps", Args: cobra.ArbitraryArgs, RunE: listOr(list)}
	command.AddCommand(
		&cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List apps, and the addresses at which one is expected", Args: args(0, 0, "no arguments"), RunE: list},
		a.appsSyncCommand(), a.appsRmCommand(),
	)
	return command
}

// listOr lists where a command that has others below it is called alone.
func listOr(list func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		if len(args) > 0 {
			return group(command, args)
		}
		return list(command, args)
	}
}

func (a *app) showApps(apps []apitype.App) error {
	var rows [][]string
	for i := range apps {
		one := &apps[i]
		name, sdk := "?", "-"
		if one.Name != nil {
			name = *one.Name
		}
		if one.SDK != nil {
			sdk = one.SDK.Language + " " + one.SDK.Version
		}
		rows = append(rows, []string{name, one.URL, one.Status, fmt.Sprint(len(one.Workflows)), sdk, text(one.Reason)})
	}
	if err := a.table([]string{"APP", "URL", "STATUS", "WORKFLOWS", "SDK", "WHY"}, rows); err != nil {
		return err
	}
	for i := range apps {
		for _, problem := range apps[i].Problems {
			fmt.Fprintf(a.errOut, "%s: %s\n", line(text(apps[i].Name)), line(problem))
		}
	}
	return nil
}

func (a *app) appsSyncCommand() *cobra.Command {
	var concurrency int
	command := &cobra.Command{
		Use: "sync URL", Short: "Register the app at a URL, or read what it is again now", Args: args(1, 1, "the URL at which the app answers"),
		Example: "  nelkap apps sync https://shop.example.com/api/nelkap",
		RunE: a.asks(func(command *cobra.Command, c *client.Client, args []string) error {
			before, err := c.Apps(command.Context())
			if err != nil {
				return err
			}
			one, err := c.PutApp(command.Context(), args[0], concurrency)
			if err != nil {
				return err
			}
			a.tellOfNamesake(before.Data, &one)
			if a.json {
				return a.printJSON(one, true)
			}
			return a.showApps([]apitype.App{one})
		}),
	}
	command.Flags().IntVar(&concurrency, "concurrency", 0, "how many calls the app gets at once (default: as it is)")
	return command
}

func (a *app) appsRmCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm APP", Aliases: []string{"delete"}, Short: "Remove an app that is no longer there", Args: args(1, 1, "an app's name"),
		Long: "Nothing starts its workflows any more, and its address is forgotten. Its runs that live wait, until it is synced again.",
		RunE: a.asks(func(command *cobra.Command, c *client.Client, args []string) error {
			return c.RemoveApp(command.Context(), args[0])
		}),
	}
}

// tellOfNamesake says where a name was before a sync took it over, if that looks like another app's: it has workflows that are not here.
func (a *app) tellOfNamesake(before []apitype.App, now *apitype.App) {
	at := slices.IndexFunc(before, func(one apitype.App) bool { return text(one.Name) == text(now.Name) })
	if at < 0 || before[at].URL == now.URL {
		return
	}
	var missing []string
	for _, old := range before[at].Workflows {
		if !slices.ContainsFunc(now.Workflows, func(w apitype.Workflow) bool { return w.Name == old.Name }) {
			missing = append(missing, old.Name)
		}
	}
	if len(missing) > 0 {
		fmt.Fprintf(a.errOut, "%s was at %s before, with workflows that are not here: %s; their runs wait until they are back. If these are two apps, give one of them another name (NELKAP_APP).\n",
			line(text(now.Name)), line(before[at].URL), line(strings.Join(missing, ", ")))
	}
}

func (a *app) workflowsCommand() *cobra.Command {
	var only string
	list := a.asks(func(command *cobra.Command, c *client.Client, _ []string) error {
		list, err := c.Workflows(command.Context(), only)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(list, true)
		}
		var rows [][]string
		for i := range list.Data {
			w := &list.Data[i]
			gone := "-"
			if w.GoneSince != nil {
				gone = instant(w.GoneSince)
			}
			rows = append(rows, []string{w.App, w.Name, triggers(w.Triggers), gone})
		}
		return a.table([]string{"APP", "WORKFLOW", "STARTED BY", "GONE SINCE"}, rows)
	})
	command := &cobra.Command{Use: "workflows", Short: "List workflows", Args: cobra.ArbitraryArgs, RunE: listOr(list)}
	command.PersistentFlags().StringVar(&only, "app", "", "only those of this app")
	command.AddCommand(&cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List workflows", Args: args(0, 0, "no arguments"), RunE: list})
	return command
}

// triggers says what starts a workflow besides a run that is asked for.
func triggers(list []apitype.Trigger) string {
	var words []string
	for _, t := range list {
		switch {
		case t.Event != "":
			words = append(words, "event "+t.Event)
		case t.Webhook != "":
			words = append(words, "webhook "+t.Webhook)
		case t.Schedule != "":
			words = append(words, "schedule "+t.Schedule)
		}
	}
	if len(words) == 0 {
		return "run"
	}
	return strings.Join(words, ", ")
}

func (a *app) eventsCommand() *cobra.Command {
	var page client.Page
	var name string
	list := a.asks(func(command *cobra.Command, c *client.Client, _ []string) error {
		list, err := c.Events(command.Context(), name, page)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(list, true)
		}
		var rows [][]string
		for _, e := range list.Data {
			rows = append(rows, []string{e.ID, e.Event, fmt.Sprint(e.Runs), instant(e.CreatedAt)})
		}
		err = a.table([]string{"ID", "EVENT", "RUNS", "CREATED"}, rows)
		a.nextPage(list.NextCursor)
		return err
	})
	flags := func(command *cobra.Command) *cobra.Command {
		pageFlags(command, &page)
		command.Flags().StringVar(&name, "event", "", "only events of this name")
		return command
	}
	command := flags(&cobra.Command{Use: "events", Short: "List events, newest first", Args: cobra.ArbitraryArgs, RunE: listOr(list)})
	command.AddCommand(flags(&cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List events, newest first", Args: args(0, 0, "no arguments"), RunE: list}))
	return command
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: args(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.printJSON(map[string]string{"version": version}, true)
			}
			_, err := fmt.Fprintln(a.out, version)
			return err
		},
	}
}
