// Command stripe-stand-in serves package standin over HTTP on one address of this machine, and writes its marks to a file.
// It says where it listens on its standard output, in one line.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	standin "github.com/nelkap/nelkap/examples/order-fulfillment/stripe-stand-in"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:12111", "where to listen; port 0 takes a free one")
	file := flag.String("marks", "", "file to which each charge, refund, email and ticket is added as a line of JSON (default: standard error)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serve(ctx, *addr, *file)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "stripe-stand-in:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, addr, file string) error {
	marks := os.Stderr
	if file != "" {
		opened, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("opening the file for marks: %w", err)
		}
		defer opened.Close()
		marks = opened
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("listening (choose another address with --addr): %w", err)
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	server := &http.Server{Handler: standin.New(marks, nil), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
