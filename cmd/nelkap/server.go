package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/config"
	"github.com/nelkap/nelkap/internal/discover"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/httpapi"
	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/store/postgres"
	"github.com/nelkap/nelkap/internal/store/sqlite"
)

const (
	// stopWithin bounds a graceful stop: requests in flight are answered at once, so it is for slow clients.
	stopWithin = 5 * time.Second
	// devDescribeEvery is how often dev looks whether an app has changed (D1).
	devDescribeEvery = time.Second
	// devAppPauseMax: a person waits for the app that they have just mended.
	devAppPauseMax = 2 * time.Second
	// forgetAfter is how long a workflow that is gone still starts (D1). In dev the code now is what there is.
	forgetAfter = 10 * time.Minute
	// databaseWithin is how long a server waits for a database that is started beside it.
	databaseWithin = time.Minute
)

func (a *app) devCommand() *cobra.Command {
	var settings config.Server
	command := &cobra.Command{
		Use: "dev", Short: "Run a server for this machine, without keys", Args: args(0, 0, "no arguments"),
		Long: "Runs a server for this machine alone, without keys. It finds apps on the usual local ports, or where --app says,\n" +
			"and looks each second whether they have changed. Apps need NELKAP_DEV=1.",
		RunE: func(command *cobra.Command, _ []string) error { return a.serve(command, &settings) },
	}
	settings.Bind(command.Flags(), config.Dev)
	return command
}

func (a *app) serveCommand() *cobra.Command {
	var settings config.Server
	command := &cobra.Command{
		Use: "serve", Short: "Run a server in production", Args: args(0, 0, "no arguments"),
		Long: "Runs a server in production. It needs NELKAP_SIGNING_KEY, with which it signs its calls to apps, NELKAP_API_KEY, which\n" +
			"it accepts from commands and apps, and --store. It logs JSON to standard error.",
		Example: "  NELKAP_SIGNING_KEY=$(openssl rand -hex 32) NELKAP_API_KEY=$(openssl rand -hex 32) nelkap serve --store ./data",
		RunE:    func(command *cobra.Command, _ []string) error { return a.serve(command, &settings) },
	}
	settings.Bind(command.Flags(), config.Serve)
	return command
}

func (a *app) serve(command *cobra.Command, settings *config.Server) error {
	if err := settings.Finish(a.environ); err != nil {
		return &codeError{exitUsage, err}
	}
	signal.Ignore(syscall.SIGPIPE) // a server outlives who reads its log; Go ends a process whose standard error is closed
	log := newLogger(a.errOut, settings.Dev, a.environ)
	for _, sentence := range settings.Warnings {
		log.Warn(sentence)
	}
	ctx := command.Context()
	s, err := openStore(ctx, settings, log)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	err = serveStore(ctx, settings, s, serverIO{banner: a.out, log: log})
	return errors.Join(unlessStopped(ctx, err), s.Close())
}

// unlessStopped leaves out the error of a server that was stopped: what it was doing was broken off, as it should be.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func openStore(ctx context.Context, settings *config.Server, log *slog.Logger) (store.Store, error) {
	if settings.Memory {
		return memory.New(), nil
	}
	if settings.Database != "" {
		s, err := postgres.OpenWithin(ctx, settings.Database, databaseWithin, func(err error) {
			log.Warn("waiting for the database", "data", place(settings), "error", err)
		})
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	s, err := sqlite.Open(ctx, settings.Data)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// held tells whether a store was restored and nobody has said that it goes on (N5).
func held(s store.Store) bool {
	h, ok := s.(interface{ Held() bool })
	return ok && h.Held()
}

// serverIO is where a server writes.
type serverIO struct {
	banner io.Writer
	log    *slog.Logger
}

// serveStore runs a server on a store until ctx ends.
func serveStore(ctx context.Context, settings *config.Server, s store.Store, sio serverIO) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", settings.Addr)
	if err != nil {
		return fmt.Errorf("%w: if another server is running there, stop it, or choose another port with --addr", err)
	}
	defer listener.Close()
	if settings.URL == "" {
		settings.URL = "http://" + reachable(listener.Addr())
	}
	caller := call.New(call.Options{Keys: settings.SigningKeys, Version: version})
	defer caller.Close()
	options := engine.Options{
		URL: settings.URL, Lease: settings.Lease, Stall: settings.Stall, Grace: settings.Grace, Concurrency: settings.Concurrency,
		Held: held(s), ForgetAfter: forgetAfter, EventsFor: settings.EventsFor, RunsFor: settings.RunsFor, DeliveriesFor: settings.DeliveriesFor, DeliveriesMax: settings.DeliveriesMax, Logger: sio.log,
	}
	if shared, ok := s.(*postgres.Store); ok {
		options.Node, options.Clock = id.New(id.Node), shared.Now
	}
	if settings.Dev {
		options.DescribeEvery, options.AppPauseMax, options.ForgetAfter = devDescribeEvery, devAppPauseMax, 0
	}
	e := engine.New(s, caller, options)
	for _, address := range settings.Apps {
		e.AddApp(address)
	}
	handler := httpapi.New(httpapi.Options{
		Engine: e, Reader: s, Keys: settings.Keys, Hooks: settings.Hooks, Dev: settings.Dev, Held: held(s), Version: version, Stopping: ctx.Done(), Logger: sio.log,
	})
	n := &node{engine: e, server: httpapi.Server(handler, sio.log), listener: listener, drain: settings.Drain, log: sio.log}
	n.ready = func(ctx context.Context) {
		if !settings.Dev {
			sio.log.Info("ready", "version", version, "url", engine.ShownURL(settings.URL), "addr", listener.Addr().String(), "data", place(settings), "node", options.Node)
		}
		if settings.Dev && len(settings.Apps) == 0 {
			scanner := discover.New(portOf(listener.Addr()), func(address string) {
				sio.log.Info("found an app", "url", address)
				e.AddApp(address)
			})
			scanner.Run(ctx)
		}
	}
	if settings.Dev {
		if err := greet(ctx, sio.banner, settings, s); err != nil {
			return err
		}
	}
	return n.run(ctx)
}

// node is a server that runs: the engine, and the HTTP server in front of it.
type node struct {
	engine   *engine.Engine
	server   *http.Server
	listener net.Listener
	drain    time.Duration // how long it goes on after it was told to stop
	log      *slog.Logger
	ready    func(context.Context) // called once, beside; ends with its context
}

// run works until ctx ends or something fails. When ctx ends it goes on for as long as it drains. Then the engine stops first, so that all polls are answered, while the HTTP server
// takes no new connection; what is not answered after stopWithin is cut off.
func (n *node) run(ctx context.Context) error {
	working, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- n.engine.Run(working, func() { close(ready) }) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		stop(nil)
		return <-ended
	case <-ready:
	}
	served := make(chan error, 1)
	go func() { served <- n.server.Serve(n.listener) }()
	beside := make(chan struct{})
	go func() {
		defer close(beside)
		n.ready(working)
	}()
	var err error
	select {
	case <-n.drained(ctx):
		n.log.Info("stopping")
	case err = <-ended:
		ended <- nil
	case err = <-served:
		served <- nil
	}
	stop(err)
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if n.server.Shutdown(limited) != nil {
		n.log.Warn("some requests were still in flight, and are cut off")
		n.server.Close() //nolint:errcheck // the process ends
	}
	<-beside
	if endErr := <-ended; err == nil {
		err = endErr
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// drained is closed when ctx has ended and the server has drained since.
func (n *node) drained(ctx context.Context) <-chan struct{} {
	over := make(chan struct{})
	context.AfterFunc(ctx, func() {
		if n.drain > 0 {
			n.log.Info("draining", "for", n.drain.String())
		}
		time.AfterFunc(n.drain, func() { close(over) })
	})
	return over
}

// reachable is the address at which this machine reaches a listener: one that listens everywhere is on loopback too.
func reachable(address net.Addr) string {
	tcp, ok := address.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return address.String()
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
}

func portOf(address net.Addr) int {
	if tcp, ok := address.(*net.TCPAddr); ok {
		return tcp.Port
	}
	return 0
}

// greet says where the server is, where its data is, which apps there are and how to add one. It is one write, before the engine
// begins, so that no line of the log comes in between.
func greet(ctx context.Context, w io.Writer, settings *config.Server, s store.Reader) error {
	known, err := s.Apps(ctx)
	if err != nil {
		return err
	}
	var apps []string
	for _, address := range settings.Apps {
		apps = append(apps, engine.ShownURL(address))
	}
	for _, app := range known {
		if !slices.Contains(settings.Apps, app.URL) {
			apps = append(apps, app.Name+" at "+engine.ShownURL(app.URL))
		}
	}
	how := "looking on the usual local ports; elsewhere: nelkap dev --app http://127.0.0.1:3000/api/nelkap"
	if len(settings.Apps) > 0 {
		how = "add one: --app URL once more, or nelkap apps sync URL"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "\n  Nelkap %s, for this machine\n\n    url   %s\n    data  %s\n    apps  ", version, engine.ShownURL(settings.URL), place(settings))
	for _, text := range append(apps, how) {
		fmt.Fprintf(&out, "%s\n          ", line(text))
	}
	_, err = io.WriteString(w, strings.TrimRight(out.String(), " ")+"\n")
	return err
}

// place says where the data is.
func place(settings *config.Server) string {
	switch {
	case settings.Memory:
		return "in memory, lost on exit"
	case settings.Database != "":
		return postgres.Place(settings.Database)
	default:
		return settings.Data
	}
}
