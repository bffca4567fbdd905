// Command demo shows what Nelkap is for, on this machine alone: it starts the server and the two shops of
// examples/order-fulfillment, places orders, and kills the shops and the server in the middle of charges. At the end it counts
// the traces that the orders left, and ends with exit code 0 only if each order left exactly one of each kind.
//
// It is run by `make demo`. It needs Go, Node and bin/nelkap, listens on free ports of the loopback address, stops whatever it
// started (also after Ctrl-C) and removes its files.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// timeMax bounds the whole demo once everything is built. It takes about 15 seconds on a quiet machine with two cores.
const timeMax = 4 * time.Minute

// errCounts: the table above it says what is wrong.
var errCounts = errors.New("not every order left exactly one trace of each kind")

func main() {
	keep := flag.Bool("keep", false, "keep the temporary folder with the data and the logs")
	orders := flag.Int("orders", 20, "orders for each shop")
	server := flag.String("nelkap", "", "another build of the server than bin/nelkap")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := demo(ctx, *orders, *server, *keep)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		fmt.Fprintln(os.Stderr, "\nStopped; everything that was started is gone.")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context, orders int, server string, keep bool) (err error) {
	if orders < rounds {
		return fmt.Errorf("-orders must be %d or more: one for each round", rounds)
	}
	root, err := repository()
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "nelkap-demo-")
	if err != nil {
		return err
	}
	if keep {
		fmt.Println("Data and logs are kept in", folder)
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	}
	if server == "" {
		server = filepath.Join(root, "bin", "nelkap")
	}
	if server, err = filepath.Abs(server); err != nil {
		return err
	}
	if _, err := os.Stat(server); err != nil {
		return fmt.Errorf("%s is not built yet: run make build, or make demo, which does both", server)
	}
	built, err := build(ctx, root, folder)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeMax, fmt.Errorf("the demo did not end within %v", timeMax))
	defer cancel()
	built.nelkap = server
	s, err := open(built, folder)
	if err != nil {
		return err
	}
	defer s.stop()
	s.orders = placeable(orders)
	if err := s.play(ctx); err != nil {
		if !errors.Is(context.Cause(ctx), context.Canceled) { // by Ctrl-C, which needs no explanation
			s.showLogs()
		}
		return err
	}
	return s.judge(ctx)
}

// repository finds the checkout's folder, from the one in which the demo was started upwards.
func repository() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "examples", "order-fulfillment")); err == nil {
			return folder, nil
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return "", errors.New("examples/order-fulfillment is not here: run make demo in a checkout of Nelkap")
		}
		folder = parent
	}
}
