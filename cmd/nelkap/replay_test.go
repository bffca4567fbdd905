package main

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/nelkap/nelkap/internal/client"
)

// Runs are listed by their ids, which clients draw: the newest may not stand first.
func TestAReplayOfManyLeavesNoRunOut(t *testing.T) {
	url, stop, err := inProcess([]string{"dev", "--memory", "--addr", "127.0.0.1:0", "--app", serveShop(t)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	c, err := client.New(client.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fails := func(clockIsAhead time.Duration) string {
		at := ulid.Timestamp(time.Now().Add(clockIsAhead))
		started, err := c.StartRun(t.Context(), client.StartRun{Workflow: "fail", ID: "run_" + strings.ToLower(ulid.MustNew(at, rand.Reader).String())})
		if err != nil {
			t.Fatal(err)
		}
		if run, err := c.Run(t.Context(), started.ID, 20*time.Second); err != nil || run.Status != "failed" {
			t.Fatalf("%+v, %v", run, err)
		}
		return started.ID
	}
	runs := []string{fails(2 * time.Second), fails(0), fails(0)}
	var out, errOut bytes.Buffer
	a := &app{in: strings.NewReader(""), out: &out, errOut: &errOut}
	root := a.root()
	root.SetArgs([]string{"runs", "replay", "--status", "failed", "--workflow", "fail", "--url", url})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != len(runs) {
		t.Errorf("%d runs were replayed, not %d: %s%s", lines, len(runs), &out, &errOut)
	}
	for _, run := range runs {
		if !strings.Contains(out.String(), run) {
			t.Errorf("run %s was left out: %s%s", run, &out, &errOut)
		}
	}
}
