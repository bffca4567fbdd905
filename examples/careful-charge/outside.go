package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// What is outside the app, for trying it out: each thing that is done there is a line in a file, which outlives the app. An answer
// takes its time, so that there is time to kill the app when something is done and its result is not saved.
var (
	outside = flag.String("outside", filepath.Join(os.TempDir(), "careful-charge.txt"), "the file of what was done")
	seconds = flag.Int("seconds", 5, "how long an answer takes")
)

func act(ctx context.Context, line string) error {
	file, err := os.OpenFile(*outside, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := fmt.Fprintln(file, line); err != nil {
		return err
	}
	fmt.Println(line + ": done, and not saved yet")
	select {
	case <-time.After(time.Duration(*seconds) * time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func find(line string) (bool, error) {
	text, err := os.ReadFile(*outside)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return strings.Contains("\n"+string(text), "\n"+line), err
}

// The bank knows the keys that it has seen, as payment providers do: the same key, the same charge.
func charge(ctx context.Context, amount int, key string) (string, error) {
	id := "charge " + key
	known, err := find(id + " ")
	if err == nil && !known {
		err = act(ctx, fmt.Sprint(id, " ", amount))
	}
	return id, err
}

// The carrier sends as often as it is asked. It can be asked what it has sent.
func sendParcel(ctx context.Context, orderID string) (string, error) {
	id := "parcel " + orderID
	return id, act(ctx, id)
}

func findParcel(orderID string) (string, bool, error) {
	id := "parcel " + orderID
	known, err := find(id + "\n")
	return id, known, err
}

// The printer prints as often as it is told, and can tell nothing.
func printCard(ctx context.Context, orderID string) error {
	return act(ctx, "print a card for order "+orderID)
}
