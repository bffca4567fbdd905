package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/config"
	"github.com/nelkap/nelkap/internal/doctor"
	"github.com/nelkap/nelkap/internal/store/postgres"
	"github.com/nelkap/nelkap/internal/store/sqlite"
)

// healthcheckCommand asks the server beside it, for images that have no other program. It does not heed NELKAP_URL: that is the address of
// all nodes.
func (a *app) healthcheckCommand() *cobra.Command {
	var settings config.Checking
	command := &cobra.Command{
		Use: "healthcheck", Short: "Ask the server on this machine whether it is ready", Args: args(0, 0, "no arguments"),
		Long:    "Asks the server on this machine whether it takes requests (/readyz), and exits with 0 if it does and with 1 if not. It needs no key.",
		Example: "  nelkap healthcheck --url http://127.0.0.1:6355",
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		c, err := client.New(client.Options{URL: settings.URL})
		if err != nil {
			return &codeError{exitUsage, err}
		}
		defer c.Close()
		ready, err := askReady(command.Context(), c, settings)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(ready, true)
		}
		_, err = fmt.Fprintf(a.out, "ready, version %s\n", line(ready.Version))
		return err
	}
	settings.Bind(command.Flags())
	return command
}

func askReady(ctx context.Context, c *client.Client, settings config.Checking) (client.Readiness, error) {
	limited, cancel := context.WithTimeout(ctx, settings.Timeout)
	defer cancel()
	ready, err := c.Ready(limited)
	var problem *apitype.Problem
	switch {
	case err == nil || ctx.Err() != nil:
		return ready, err
	case errors.As(err, &problem):
		return ready, &codeError{exitFailed, fmt.Errorf("not ready: %w", err)}
	case errors.Is(err, context.DeadlineExceeded):
		return ready, fmt.Errorf("not ready: no answer from %s within %v", settings.URL, settings.Timeout)
	default:
		return ready, fmt.Errorf("not ready: %w", err)
	}
}

func (a *app) doctorCommand() *cobra.Command {
	var store config.Examined
	command := &cobra.Command{
		Use: "doctor", Short: "Say what is wrong with a server and its store, and what to do", Args: args(0, 0, "no arguments"),
		Long: "Checks a server: that it answers and is ready, the API key, the clocks, whether its apps can be used. With --store or --data, or\n" +
			"NELKAP_STORE, it looks at the store too, and changes nothing there. Exits with 1 if a check fails; a warning is no failure.",
		Example: "  nelkap doctor\n  NELKAP_STORE=postgres://nelkap@db/nelkap nelkap doctor",
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		if err := store.Finish(a.environ); err != nil {
			return &codeError{exitUsage, err}
		}
		target, err := config.Asking(a.url, a.environ)
		if err != nil {
			return &codeError{exitUsage, err}
		}
		c, err := client.New(client.Options{URL: target.URL, Key: target.Key})
		if err != nil {
			return &codeError{exitUsage, err}
		}
		defer c.Close()
		checks := doctor.Server(command.Context(), c, c.Shown(), version)
		checks = append(checks, examine(command.Context(), store)...)
		if err := command.Context().Err(); err != nil {
			return err
		}
		return a.showChecks(checks)
	}
	store.Bind(command.Flags())
	return command
}

// examine checks the store that was named, if any was.
func examine(ctx context.Context, store config.Examined) []doctor.Check {
	switch {
	case store.Database != "":
		facts, err := postgres.Examine(ctx, store.Database)
		if err != nil {
			return doctor.Unreachable(err)
		}
		return doctor.Database(facts).Checks()
	case store.Data != "":
		facts, err := sqlite.Examine(ctx, store.Data)
		if err != nil {
			return doctor.NoDirectory(err)
		}
		return doctor.Directory(facts).Checks()
	default:
		return nil
	}
}

func (a *app) showChecks(checks []doctor.Check) error {
	failed := doctor.Failed(checks)
	if a.json {
		if err := a.printJSON(map[string]any{"failed": failed, "checks": checks}, true); err != nil {
			return err
		}
	} else {
		for _, c := range checks {
			text := c.Detail
			if c.Advice != "" {
				if strings.TrimRight(text, ".?!") == text { // what an app's look says may end with a question
					text += "."
				}
				text += " To do: " + c.Advice
			}
			fmt.Fprintf(a.out, "%-4s  %-18s  %s\n", strings.ToUpper(string(c.Status)), c.Name, line(text))
		}
	}
	if failed > 0 {
		return &codeError{exitFailed, fmt.Errorf("%d of %d checks failed", failed, len(checks))}
	}
	return nil
}
