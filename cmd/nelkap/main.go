// Command nelkap is the server and its shell: `nelkap dev` and `nelkap serve` run a server, the other commands ask one over its HTTP
// API. It wires the packages together and decides nothing else; every setting comes from internal/config.
//
// Exit codes: 0 all went well, 1 it failed, 2 the command was misused, 3 there is no such thing, 4 the API key is missing or
// wrong, 5 the run that was waited for did not complete.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // schedules have time zones, and the machine may have none

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// version is set by the build.
var version = "dev"

func main() {
	heedMemory()
	os.Exit(run())
}

// run runs the command line, and gives the exit code.
func run() int {
	ctx, stop := untilSignal()
	defer stop()
	out := &output{Writer: os.Stdout}
	a := &app{in: os.Stdin, out: out, errOut: os.Stderr, environ: os.Environ()}
	err := cmp.Or(a.root().ExecuteContext(ctx), out.err)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintln(a.errOut, "nelkap: "+printable(err.Error()))
	}
	return exitCode(err)
}

// output remembers what went wrong first, so that a command whose result was lost, on a full disk, does not say that all went well.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	o.err = cmp.Or(o.err, err)
	return n, err
}

// untilSignal gives a context that the first signal ends. The second ends the process at once; what was acknowledged is on disk.
func untilSignal() (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as it is under nohup
		signal.Notify(signals, syscall.SIGHUP) // its terminal has gone
	}
	go func() { // it ends with the process
		<-signals
		stop()
		<-signals
		os.Exit(exitFailed)
	}()
	return ctx, stop
}

// app is what the commands share: the process's streams and variables, and the flags that all of them have.
type app struct {
	in          io.Reader
	out, errOut io.Writer
	environ     []string

	url  string
	json bool
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "nelkap",
		Short: "Workflows that survive crashes, deploys and time limits",
		Long: "Workflows that survive crashes, deploys and time limits.\n\n" +
			"Start with `nelkap dev` beside your app. Exit codes: 0 all went well, 1 it failed, 2 the command was misused,\n" +
			"3 there is no such thing, 4 the API key is missing or wrong, 5 the run that was waited for did not complete.",
		SilenceErrors: true, SilenceUsage: true, Args: cobra.ArbitraryArgs, RunE: group, PersistentPreRunE: refuseEmpty, Version: version,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return usageError(command, err.Error())
	})
	root.AddCommand(a.devCommand(), a.serveCommand())
	root.AddCommand(a.withJSON("print JSON when it is done", a.migrateCommand(), a.backupCommand(), a.restoreCommand())...)
	root.AddCommand(a.clientCommands()...)
	return root
}

// refuseEmpty refuses a flag that is there without a value, as a script's variable that was not set leaves it: without its --key each
// start makes a run, and without its --from a replay acts from the first step on.
func refuseEmpty(command *cobra.Command, _ []string) (err error) {
	command.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" {
			err = usageError(command, fmt.Sprintf("--%s is empty: give it a value, or leave it out", f.Name))
		}
	})
	return err
}

// group is what a command does that only has others below it.
func group(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return command.Help()
	}
	message := fmt.Sprintf("%s has no command %q", command.CommandPath(), args[0])
	if command.SuggestionsMinimumDistance == 0 {
		command.SuggestionsMinimumDistance = 2
	}
	if list := command.SuggestionsFor(args[0]); len(list) > 0 {
		message += ": did you mean " + list[0] + "?"
	}
	return usageError(command, message)
}
