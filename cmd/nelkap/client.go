package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/config"
)

// payloadBytesMax bounds what --payload reads: more than any payload may have, so that the server says how much that is.
const payloadBytesMax = 8 << 20

func (a *app) clientCommands() []*cobra.Command {
	list := []*cobra.Command{a.runCommand(), a.emitCommand(), a.runsCommand(), a.appsCommand(), a.workflowsCommand(), a.eventsCommand(), a.deliveriesCommand(), a.schedulesCommand(), a.verifyCommand(), a.doctorCommand()}
	for _, command := range list {
		config.BindClient(command.PersistentFlags(), &a.url)
	}
	list = append(list, a.versionCommand(), a.healthcheckCommand())
	return a.withJSON("print JSON, as the API answers it", list...)
}

// withJSON gives commands the flag --json.
func (a *app) withJSON(help string, commands ...*cobra.Command) []*cobra.Command {
	for _, command := range commands {
		command.PersistentFlags().BoolVar(&a.json, "json", false, help)
	}
	return commands
}

// asks makes a command's work of what it asks a server.
func (a *app) asks(work func(command *cobra.Command, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		options, err := config.Asking(a.url, a.environ)
		if err != nil {
			return &codeError{exitUsage, err}
		}
		c, err := client.New(client.Options{URL: options.URL, Key: options.Key})
		if err != nil {
			return &codeError{exitUsage, err}
		}
		defer c.Close()
		return hint(work(command, c, args))
	}
}

// hint adds to a refusal what the command line alone can tell.
func hint(err error) error {
	var problem *apitype.Problem
	if !errors.As(err, &problem) {
		return err
	}
	if problem.Code == "workflow_ambiguous" {
		return fmt.Errorf("%w (--app NAME)", err)
	}
	return err
}

// payload reads the value of --payload: JSON, @ and a file that holds it, or - for standard input. Nil is undefined.
func (a *app) payload(command *cobra.Command, text string) (json.RawMessage, error) {
	if !command.Flags().Changed("payload") {
		return nil, nil
	}
	data, err := a.payloadText(text)
	if err != nil {
		return nil, &codeError{exitUsage, err}
	}
	if len(data) > payloadBytesMax {
		return nil, &codeError{exitUsage, fmt.Errorf("the payload has more than %d bytes: store the data elsewhere and send a reference to it", payloadBytesMax)}
	}
	if !json.Valid(data) {
		return nil, usageError(command, `--payload is not JSON: a text needs its quotes, as in --payload '"o_1"'`)
	}
	return data, nil
}

func (a *app) payloadText(text string) ([]byte, error) {
	name, isFile := strings.CutPrefix(text, "@")
	switch {
	case text == "-":
		return io.ReadAll(io.LimitReader(a.in, payloadBytesMax+1))
	case isFile:
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("reading the payload: %w", err)
		}
		defer file.Close()
		return io.ReadAll(io.LimitReader(file, payloadBytesMax+1))
	default:
		return []byte(text), nil
	}
}

// printJSON prints a value as indented JSON, or on one line.
func (a *app) printJSON(value any, indent bool) error {
	text, err := marshal(value)
	if err != nil {
		return err
	}
	if indent {
		var out bytes.Buffer
		if err := json.Indent(&out, text, "", "  "); err != nil {
			return fmt.Errorf("writing JSON: %w", err)
		}
		text = out.Bytes()
	}
	_, err = fmt.Fprintln(a.out, printableJSON(string(text)))
	return err
}

func marshal(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// table prints rows under a heading, with every cell on one line and fit for a terminal.
func (a *app) table(heading []string, rows [][]string) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(heading, "\t"))
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = line(cell)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

// nextPage says how to go on with a list.
func (a *app) nextPage(cursor *string) {
	if cursor != nil {
		fmt.Fprintf(a.errOut, "There are more: --cursor %s\n", line(*cursor))
	}
}

// The API's bounds of a page, and how much one has that nobody asks for.
const (
	limitMax = 100
	limitStd = 20
)

// limit is the value of --limit.
type limit int

// Set refuses what the API does, and also 0, which would mean its own number there.
func (l *limit) Set(text string) error {
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 || number > limitMax {
		return fmt.Errorf("it is 1 to %d", limitMax)
	}
	*l = limit(number)
	return nil
}

func (l *limit) String() string { return strconv.Itoa(int(*l)) }
func (*limit) Type() string     { return "int" }

// pageFlags adds the flags of lists.
func pageFlags(command *cobra.Command, page *client.Page) {
	page.Limit = limitStd
	command.Flags().Var((*limit)(&page.Limit), "limit", fmt.Sprintf("how many at most, 1 to %d", limitMax))
	command.Flags().StringVar(&page.Cursor, "cursor", "", "where the next page begins, as the page before said")
}

func text(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

func instant(t *apitype.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func between(from, to *apitype.Time) string {
	if from == nil || to == nil {
		return "-"
	}
	return to.Sub(from.Time).Round(time.Millisecond).String()
}
