package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
)

// verifyPage is how many runs are verified in one request. The server plays four at once and gives each 15 s, with a cold start: with the
// look at the app that goes before, the page is there within 55 s, and the client waits for 60.
const verifyPage = 12

func (a *app) verifyCommand() *cobra.Command {
	var address string
	var newSteps []string
	command := &cobra.Command{
		Use: "verify", Short: "Play live runs against new code, and say which would diverge", Args: args(0, 0, "no arguments"),
		Long: "Has the app at an address play the history of each of its runs that has not ended: saved steps answer, nothing runs and nothing is\n" +
			"written. Exits with 5 if a run would diverge. Start the new code beside the old, at another port, and verify it before it takes over.\nnelkap serve asks private addresses only where an app of its --app is, at any port.",
		Example: "  nelkap verify --app http://127.0.0.1:3001/api/nelkap",
	}
	command.RunE = a.asks(func(command *cobra.Command, c *client.Client, _ []string) error {
		if address == "" {
			return usageError(command, "--app is missing: give the address at which the new code answers")
		}
		all, err := verifyAll(command, c, address, newSteps)
		if err != nil {
			return err
		}
		return a.showVerified(all)
	})
	command.Flags().StringArrayVar(&newSteps, "new-step", nil, "a step that the new code is meant to have; repeatable: that it comes before saved steps is no divergence then")
	command.Flags().StringVar(&address, "app", "", "where the new code answers, such as http://127.0.0.1:3001/api/nelkap")
	return command
}

// verifyAll reads all pages.
func verifyAll(command *cobra.Command, c *client.Client, address string, newSteps []string) (apitype.Verification, error) {
	all, err := c.Verify(command.Context(), address, newSteps, client.Page{Limit: verifyPage})
	for page := all; err == nil && page.NextCursor != nil; {
		page, err = c.Verify(command.Context(), address, newSteps, client.Page{Limit: verifyPage, Cursor: *page.NextCursor})
		all.Data = append(all.Data, page.Data...)
	}
	all.NextCursor = nil
	return all, err
}

func (a *app) showVerified(all apitype.Verification) error {
	diverge, skipped := 0, 0
	for _, v := range all.Data {
		if v.Diverges {
			diverge++
		}
		if v.Skipped != nil {
			skipped++
		}
	}
	if a.json {
		if err := a.printJSON(all, true); err != nil {
			return err
		}
	} else {
		for _, v := range all.Data {
			for _, problem := range v.Problems {
				fmt.Fprintf(a.out, "%s  %s  %s\n", v.RunID, line(v.Workflow), line(problem))
			}
			if v.Skipped != nil {
				fmt.Fprintf(a.out, "%s  %s  not played: %s\n", v.RunID, line(v.Workflow), line(*v.Skipped))
			}
		}
		fmt.Fprintf(a.out, "%s: %d live runs, %d would diverge, %d not played\n", line(all.App), len(all.Data), diverge, skipped)
	}
	if diverge > 0 {
		return &codeError{exitRunFailed, fmt.Errorf("%d of %d live runs would diverge", diverge, len(all.Data))}
	}
	return nil
}
