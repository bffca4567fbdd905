package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"
)

const (
	stepsPerRun = 10
	resultBytes = 100
)

// serveApp is the app: a workflow of ten steps, one after the other, that do nothing and return 100 bytes, and one that sleeps.
func serveApp(address string) error {
	app := nelkap.New(nelkap.Options{App: "bench"})
	result := strings.Repeat("x", resultBytes-2) // and two quotes
	steps, late := &durations{}, &durations{}
	nelkap.NewWorkflow(app, "ten steps", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
		for range stepsPerRun {
			began := time.Now()
			if _, err := step.Run(ctx, "step", func(context.Context) (string, error) { return result, nil }); err != nil {
				return err
			}
			steps.add(time.Since(began))
		}
		return nil
	}))
	declareSleeper(app, late)
	mux := http.NewServeMux()
	mux.Handle("/", app)
	mux.Handle("POST /steps", steps)
	mux.Handle("POST /late", late)
	return serve(address, mux)
}

// durations are what the app measured itself.
type durations struct {
	mu   sync.Mutex
	list []time.Duration
}

func (d *durations) add(one time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, one)
}

// ServeHTTP gives what was measured since it was asked last.
func (d *durations) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	d.mu.Lock()
	list := d.list
	d.list = nil
	d.mu.Unlock()
	if err := json.NewEncoder(w).Encode(list); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// serveEcho is the yardstick: it decodes a JSON body and writes it back.
func serveEcho(address string) error {
	return serve(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(body); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
}

func serve(address string, h http.Handler) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server := &http.Server{Addr: address, Handler: h, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return server.Close()
	}
}

// part is a process of the measurement.
type part struct {
	cmd     *exec.Cmd
	address string
	log     string
}

// start starts a process that serves at address, and waits until something answers there.
func start(name, address string, env []string, command string, args ...string) (*part, error) {
	log, err := os.CreateTemp("", "nelkap-bench-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(command, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &part{cmd: cmd, address: address, log: log.Name()}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return p, nil
		}
		<-time.After(10 * time.Millisecond)
	}
	p.stop()
	return nil, fmt.Errorf("%s did not start: see %s", name, log.Name())
}

// stop ends the process, and waits for it. It may be called twice.
func (p *part) stop() {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err == nil {
		p.cmd.Wait() //nolint:errcheck // how it ends says nothing: it was told to
	}
}

// measured is what an app measured since it was asked last.
func (p *part) measured(what string) (list []time.Duration, err error) {
	return list, post("http://"+p.address+"/"+what, "", &list)
}

// output is what the process wrote.
func (p *part) output() string {
	b, _ := os.ReadFile(p.log)
	return string(b)
}

// cpu is the processor time that a process has used, in the kernel's ticks of 10 ms.
func (p *part) cpu() time.Duration { return cpuOf(p.cmd.Process.Pid) }

func cpuOf(pid int) time.Duration {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// freeAddress finds a free port of this machine.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// client keeps as many connections as there are requests at once.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024, Proxy: nil}}

// The keys of the measured server: nothing else uses it.
var signingKey, apiKey = strings.Repeat("s", 32), strings.Repeat("a", 32)

// post sends JSON and reads the answer whole.
func post(url, body string, into any) error {
	request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+apiKey)
	r, err := client.Do(request)
	if err != nil {
		return err
	}
	return read(r, into)
}

func read(r *http.Response, into any) error {
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if r.StatusCode >= 300 {
		return fmt.Errorf("%s: %s", r.Status, b)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(b, into)
}
