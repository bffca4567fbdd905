// Package main measures Nelkap and prints the figures: `make bench`.
//
// Server, app and load are processes of their own on loopback, on a data directory on disk, with every acknowledgement synced.
// Beside them, in the same run, stand a raw net/http JSON echo and single appends with fsync: a machine's figures mean
// something only as ratios to what the same machine does at its best.
//
// The same binary plays every part: the driver is also the load, and starts itself as the app and as the echo.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	binary := flag.String("nelkap", "../bin/nelkap", "the server's binary")
	seconds := flag.Int("seconds", 5, "how long each figure is measured, in seconds")
	asleep := flag.Int("sleepers", 100_000, "how many runs sleep at once; 0: none are measured")
	only := flag.Bool("only-sleepers", false, "measure nothing else")
	store := flag.String("store", "embedded", "what is measured: embedded, or postgres, with one server and three")
	flag.Parse()
	var err error
	switch flag.Arg(0) {
	case "app":
		err = serveApp(flag.Arg(1))
	case "echo":
		err = serveEcho(flag.Arg(1))
	case "":
		if *store == "postgres" {
			err = measureNodes(*binary, time.Duration(*seconds)*time.Second)
			break
		}
		err = measure(*binary, time.Duration(*seconds)*time.Second, *asleep, *only)
	default:
		err = fmt.Errorf("there is no part %q", flag.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
