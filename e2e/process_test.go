package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	// lookEvery is how often a condition is looked at.
	lookEvery = 10 * time.Millisecond
	// within bounds what takes a second at most when nothing is wrong and the machine is busy.
	within = 20 * time.Second
	// logBytesShown is how much of a process's log a failed test shows.
	logBytesShown = 6_000
)

// process is a program under test, which may be killed and started again. One goroutine uses it.
type process struct {
	t       *testing.T
	name    string
	path    string
	args    []string
	env     []string
	health  string // a URL that answers 200 once it works
	log     string // the file that its output goes to
	command *exec.Cmd
	ended   chan struct{} // closed when the command has ended
}

// tidy has the process killed at the test's end, and its log shown if the test has failed.
func (p *process) tidy() {
	p.log = filepath.Join(p.t.TempDir(), "log")
	p.t.Cleanup(func() {
		p.kill()
		if p.t.Failed() {
			p.t.Logf("the log of %s ends:\n%s", p.name, p.lastWords())
		}
	})
}

// start starts the program and returns when it works.
func (p *process) start() {
	p.t.Helper()
	p.launch()
	p.answers()
}

// answers returns when the program works.
func (p *process) answers() {
	p.t.Helper()
	p.t.Log(p.name, "is process", p.pid())
	eventually(p.t, within, p.name+" to answer", func() bool {
		if p.hasEnded() {
			p.t.Fatalf("%s ended by itself:\n%s", p.name, p.lastWords())
		}
		return healthy(p.t.Context(), p.health)
	})
}

// launch starts the program and does not wait.
func (p *process) launch() {
	p.t.Helper()
	log, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	p.command = exec.Command(p.path, p.args...)
	p.command.Env, p.command.Stdout, p.command.Stderr = append(environment(), p.env...), log, log
	p.command.SysProcAttr = diesWithTests()
	if err := p.command.Start(); err != nil {
		p.t.Fatalf("starting %s: %v", p.name, err)
	}
	ended, command := make(chan struct{}), p.command
	p.ended = ended
	go func() {
		command.Wait() // how it ended is in its state
		close(ended)
	}()
}

// environment is this process's, without what would configure Nelkap.
func environment() []string {
	var kept []string
	for _, line := range os.Environ() {
		if !strings.HasPrefix(line, "NELKAP_") && !strings.HasPrefix(line, "NODE_") {
			kept = append(kept, line)
		}
	}
	return kept
}

func (p *process) called() string { return p.name }

func (p *process) works(ctx context.Context) bool { return healthy(ctx, p.health) }

func (p *process) pid() int { return p.command.Process.Pid }

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.command.Process.Signal(s); err != nil {
		p.t.Fatalf("sending %v to %s: %v", s, p.name, err)
	}
}

// kill ends the program as a power cut would, and returns when it is gone. It may be called twice.
func (p *process) kill() {
	if p.command == nil {
		return
	}
	p.command.Process.Kill() // it may have ended already
	<-p.ended
	p.command = nil
}

// exit waits until the program has ended by itself, and tells its code.
func (p *process) exit() int {
	p.t.Helper()
	eventually(p.t, within, p.name+" to end", p.hasEnded)
	code := p.command.ProcessState.ExitCode()
	p.command = nil
	return code
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// linesWith gives the lines of the program's log that have a text, such as a run's id.
func (p *process) linesWith(text string) []byte {
	log, _ := os.ReadFile(p.log)
	var found []byte
	for line := range bytes.Lines(log) {
		if bytes.Contains(line, []byte(text)) {
			found = append(found, line...)
		}
	}
	return found
}

func (p *process) lastWords() []byte {
	text, _ := os.ReadFile(p.log)
	if len(text) > logBytesShown {
		text = text[len(text)-logBytesShown:]
	}
	return bytes.TrimSpace(text)
}

// eventually waits until something is so, and fails the test when that takes too long.
func eventually(t *testing.T, limit time.Duration, what string, so func() bool) {
	t.Helper()
	start := time.Now()
	if !holds(t.Context(), limit, so) {
		t.Fatalf("waited %v in vain for %s", time.Since(start).Round(time.Millisecond), what)
	}
}

// holds waits until something is so, and tells whether it came to be in time.
func holds(ctx context.Context, limit time.Duration, so func() bool) bool {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-limited.Done():
			return so()
		}
	}
	return true
}

// pass lets time pass: only where its passing is what is tested.
func pass(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// direct is a client without idle connections and without a proxy: what it asks has nothing to do with what it asked before.
var direct = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: time.Second}}

func healthy(ctx context.Context, url string) bool {
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(limited, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	answer, err := direct.Do(request)
	if err != nil {
		return false
	}
	answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// Ports are taken below those that systems give to outgoing connections: while a server is down, a client that connects to its
// port must not be given that very port itself.
const portsFrom, portsCount = 21_000, 10_000

var nextPort atomic.Int64

// freeAddress finds a port that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	nextPort.CompareAndSwap(0, int64(os.Getpid()*37%portsCount))
	for range portsCount {
		address := fmt.Sprintf("127.0.0.1:%d", portsFrom+nextPort.Add(1)%portsCount)
		listener, err := net.Listen("tcp", address)
		if err == nil {
			listener.Close()
			return address
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
	t.Fatal("no port is free")
	return ""
}
