package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

var flights = []int{1, 16, 128}

// figure is what one way of work gave.
type figure struct {
	flight   int
	done     int
	took     time.Duration
	times    []time.Duration // of each piece of work, sorted
	steps    []time.Duration // of each step, as the app sees it, sorted
	server   time.Duration   // processor time
	app      time.Duration
	commits  int
	rows     int
	failures int
}

func (f figure) rate() float64 { return float64(f.done) / f.took.Seconds() }

func (f figure) quantile(q float64) time.Duration { return quantile(f.times, q) }

// quantile is that of sorted times; zero where there are none.
func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	return times[min(int(q*float64(len(times))), len(times)-1)]
}

// hammer does work in so many loops at once for a while.
func hammer(flight int, d time.Duration, work func() error) figure {
	f := figure{flight: flight}
	var mu sync.Mutex
	var group sync.WaitGroup
	began := time.Now()
	for range flight {
		group.Go(func() {
			var times []time.Duration
			failures := 0
			for time.Since(began) < d {
				start := time.Now()
				if work() != nil {
					failures++
					continue
				}
				times = append(times, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			f.times = append(f.times, times...)
			f.failures += failures
		})
	}
	group.Wait()
	f.took, f.done = time.Since(began), len(f.times)
	slices.Sort(f.times)
	return f
}

func measure(binary string, d time.Duration, asleep int, only bool) (err error) {
	if binary, err = filepath.Abs(binary); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(".", ".data-") // beside the sources: a temporary file system may not be a disk
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if !only {
		if err := measureSteps(binary, dir, d); err != nil {
			return err
		}
	}
	if asleep == 0 {
		return nil
	}
	s, err := measureSleepers(binary, filepath.Join(dir, "sleepers"), asleep)
	if err == nil {
		s.report()
	}
	return err
}

func measureSteps(binary, dir string, d time.Duration) error {
	sync, err := measureSync(dir, d/5)
	if err != nil {
		return err
	}
	echo, err := measureEcho(d)
	if err != nil {
		return err
	}
	runs, err := measureRuns(binary, dir, d)
	if err != nil {
		return err
	}
	if err := report(sync, echo, runs); err != nil {
		return err
	}
	for _, f := range append(echo, runs...) {
		if f.failures > 0 {
			return fmt.Errorf("%d of the requests failed", f.failures)
		}
	}
	return nil
}

// measureSync appends 4 KiB and syncs, one after the other.
func measureSync(dir string, d time.Duration) (figure, error) {
	file, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return figure{}, err
	}
	defer file.Close()
	block := make([]byte, 4096)
	f := hammer(1, d, func() error {
		if _, err := file.Write(block); err != nil {
			return err
		}
		return file.Sync()
	})
	if f.done == 0 {
		return f, errors.New("the disk takes no appends")
	}
	return f, nil
}

func measureEcho(d time.Duration) ([]figure, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	p, err := start("the echo", address, nil, os.Args[0], "echo", address)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	body := `{"name":"step","output":"` + strings.Repeat("x", resultBytes-2) + `"}`
	var figures []figure
	for _, n := range flights {
		before := p.cpu()
		f := hammer(n, d, func() error { return post("http://"+address, body, nil) })
		f.server = p.cpu() - before
		figures = append(figures, f)
	}
	return figures, nil
}

func measureRuns(binary, dir string, d time.Duration) ([]figure, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	app, err := start("the app", address, []string{"NELKAP_SIGNING_KEY=" + signingKey}, os.Args[0], "app", address)
	if err != nil {
		return nil, err
	}
	defer app.stop()
	var figures []figure
	for _, n := range flights {
		f, err := measureFlight(binary, filepath.Join(dir, strconv.Itoa(n)), app, n, d)
		if err != nil {
			return nil, err
		}
		figures = append(figures, f)
	}
	return figures, nil
}

// measureFlight measures one number of runs in flight, on a server and a store of its own.
func measureFlight(binary, dir string, app *part, n int, d time.Duration) (figure, error) {
	address, err := freeAddress()
	if err != nil {
		return figure{}, err
	}
	server, err := start("the server", address, []string{"NELKAP_SIGNING_KEY=" + signingKey, "NELKAP_API_KEY=" + apiKey}, binary, "serve", "--addr", address, "--store", dir, "--app", "http://"+app.address, "--concurrency", "256")
	if err != nil {
		return figure{}, err
	}
	defer server.stop()
	url := "http://" + address
	if err := ready(url); err != nil {
		return figure{}, fmt.Errorf("%w: see %s", err, server.log)
	}
	if _, err := app.measured("steps"); err != nil { // those of the run that is not counted
		return figure{}, err
	}
	cpuServer, cpuApp := server.cpu(), app.cpu()
	f := hammer(n, d, func() error { return oneRun(url) })
	f.server, f.app = server.cpu()-cpuServer, app.cpu()-cpuApp
	if f.steps, err = app.measured("steps"); err != nil {
		return figure{}, err
	}
	slices.Sort(f.steps)
	server.stop()
	f.commits, f.rows = committed(server.output())
	return f, nil
}

// ready waits until the server knows the workflow, with one run that is not counted.
func ready(url string) error {
	var err error
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if err = oneRun(url); err == nil {
			return nil
		}
		<-time.After(50 * time.Millisecond)
	}
	return err
}

// oneRun starts a run and waits for its end.
func oneRun(url string) error {
	var run struct{ ID, Status string }
	if err := post(url+"/v1/runs?waitMs=30000", `{"workflow":"ten steps"}`, &run); err != nil {
		return err
	}
	if run.Status != "completed" {
		return fmt.Errorf("run %s is %s", run.ID, run.Status)
	}
	return nil
}

var commitsLine = regexp.MustCompile(`"commits":(\d+),"changes":(\d+)`)

// committed reads from the server's last words how many transactions it synced, and how many changes were in them.
func committed(log string) (commits, changes int) {
	if m := commitsLine.FindStringSubmatch(log); m != nil {
		commits, _ = strconv.Atoi(m[1])
		changes, _ = strconv.Atoi(m[2])
	}
	return commits, changes
}
