package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// Marks adds a line to a file each time the body of a step runs. The demo and the tests count the lines; an app of your own
// needs nothing of the kind.
type Marks struct{ file *os.File } // nil: nobody counts

// openMarks opens the file, or none when its name is empty.
func openMarks(name string) (Marks, error) {
	if name == "" {
		return Marks{}, nil
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return Marks{}, fmt.Errorf("opening the file for marks: %w", err)
	}
	return Marks{file}, nil
}

// Add is called in the body of a step, whose context is ctx. It panics when the mark can't be written, which fails the
// attempt: a count that misses one is worth nothing.
func (m Marks) Add(ctx context.Context, name, orderID string) {
	if m.file == nil {
		return
	}
	run, _ := nelkap.CurrentRun(ctx)
	line, err := json.Marshal(map[string]any{
		"app": shopName, "run": run.ID, "step": name, "order": orderID, "attempt": step.Attempt(ctx), "process": os.Getpid(),
	})
	if err == nil {
		// One write for the whole line: lines of many goroutines and processes then stay apart.
		_, err = m.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(fmt.Errorf("writing the mark of step %s: %w", name, err))
	}
}

// Close closes the file.
func (m Marks) Close() error {
	if m.file == nil {
		return nil
	}
	return m.file.Close()
}
