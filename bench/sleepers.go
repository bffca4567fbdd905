package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// The sleepers' time: they are started, sleep at least this long from the first start on, and wake one after the other.
const (
	sleepersWait   = 90 * time.Second
	sleepersSpread = 60 * time.Second
)

// sleepers is what many runs asleep cost, and how late they wake.
type sleepers struct {
	runs                  int
	started               time.Duration // until the last was started
	idle, asleep          int64         // the server's memory in bytes, before and with all of them
	disk                  int64
	toStart, toWake       time.Duration // the server's processor time
	asleepFor, asleepCost time.Duration // how long all slept, and the server's processor time then
	late                  []time.Duration
}

// declareSleeper adds the workflow of the sleepers to the app, which keeps how long after its time each run woke.
func declareSleeper(app *nelkap.App, late *durations) {
	nelkap.NewWorkflow(app, "sleeper", nelkap.NoResult(func(ctx context.Context, due time.Time) error {
		if err := step.SleepUntil(ctx, "nap", due); err != nil {
			return err
		}
		late.add(time.Since(due))
		return nil
	}))
}

// measureSleepers starts so many runs that sleep, and waits until the last has woken.
func measureSleepers(binary, dir string, n int) (s sleepers, err error) {
	appAddress, err := freeAddress()
	if err != nil {
		return s, err
	}
	app, err := start("the app", appAddress, []string{"NELKAP_SIGNING_KEY=" + signingKey}, os.Args[0], "app", appAddress)
	if err != nil {
		return s, err
	}
	defer app.stop()
	address, err := freeAddress()
	if err != nil {
		return s, err
	}
	server, err := start("the server", address, []string{"NELKAP_SIGNING_KEY=" + signingKey, "NELKAP_API_KEY=" + apiKey}, binary, "serve", "--addr", address, "--store", dir, "--app", "http://"+appAddress, "--concurrency", "256")
	if err != nil {
		return s, err
	}
	defer server.stop()
	if err := ready("http://" + address); err != nil {
		return s, fmt.Errorf("%w: see %s", err, server.log)
	}
	s = sleepers{runs: n, idle: server.memory()}
	began, before := time.Now(), server.cpu()
	if err := startSleepers("http://"+address, began, n); err != nil {
		return s, err
	}
	s.started = time.Since(began)
	wakes := began.Add(sleepersWait)
	if left := time.Until(wakes); left > 2*time.Second { // the last have come to rest
		<-time.After(time.Second)
		s.toStart = server.cpu() - before
		s.asleep, s.disk = server.memory(), size(dir)
		before, asleep := server.cpu(), time.Now()
		<-time.After(time.Until(wakes))
		s.asleepFor, s.asleepCost = time.Since(asleep), server.cpu()-before
	} else {
		return s, fmt.Errorf("starting %d runs took %v: fewer of them, or a faster machine", n, s.started)
	}
	before = server.cpu()
	for deadline := wakes.Add(sleepersSpread + time.Minute); len(s.late) < n; {
		if time.Now().After(deadline) {
			return s, fmt.Errorf("%d of %d runs have woken a minute after the last was due", len(s.late), n)
		}
		<-time.After(time.Second)
		late, err := app.measured("late")
		if err != nil {
			return s, err
		}
		s.late = append(s.late, late...)
	}
	s.toWake = server.cpu() - before
	slices.Sort(s.late)
	if s.late[0] < 0 {
		return s, errors.New("a run woke before its time")
	}
	return s, nil
}

func startSleepers(url string, began time.Time, n int) error {
	const clients = 64
	var group sync.WaitGroup
	failed := make(chan error, clients)
	for c := range clients {
		group.Go(func() {
			for i := c; i < n; i += clients {
				due := began.Add(sleepersWait + sleepersSpread*time.Duration(i)/time.Duration(n))
				if err := post(url+"/v1/runs", fmt.Sprintf(`{"workflow":"sleeper","payload":%q}`, due.UTC().Format(time.RFC3339Nano)), nil); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// memory is a process's resident memory in bytes.
func (p *part) memory() int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/statm")
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// size is how many bytes a folder's files have.
func size(dir string) (bytes int64) {
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { //nolint:errcheck // a file that is gone counts as nothing
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return nil
	})
	return bytes
}

func (s sleepers) report() {
	q := func(q float64) time.Duration { return quantile(s.late, q) }
	n := time.Duration(s.runs)
	mib := func(bytes int64) float64 { return float64(bytes) / (1 << 20) }
	fmt.Printf("\n%d runs asleep: started in %s, %s of server CPU each; memory %.0f MiB idle, %.0f MiB with all asleep; %d bytes on disk each\n",
		s.runs, s.started.Round(time.Second), round(s.toStart/n), mib(s.idle), mib(s.asleep), s.disk/int64(s.runs))
	fmt.Printf("asleep they cost %.1f %% of a core; due over %v they wake p50 %s, p99 %s, at most %s late, %s of server CPU each\n",
		100*s.asleepCost.Seconds()/s.asleepFor.Seconds(), sleepersSpread, round(q(0.5)), round(q(0.99)), round(s.late[len(s.late)-1]), round(s.toWake/n))
}
