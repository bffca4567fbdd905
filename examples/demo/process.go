package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"
)

const (
	// pollEvery is how often the demo looks whether something has happened.
	pollEvery = 100 * time.Millisecond
	// startTime is how long a process may take until it answers: a first start of the TypeScript shop makes a database.
	startTime = time.Minute
	// logBytesShown is how much of a process's log is shown where the demo fails.
	logBytesShown = 3000
)

// process is a program that can be killed and started again. It is used by one goroutine.
type process struct {
	name    string
	path    string
	args    []string
	folder  string
	env     []string
	log     string // the file that its output goes to
	health  string // a URL that answers 200 once it works
	started *exec.Cmd
	ended   chan struct{} // closed when the started one has ended
}

// start starts the program and waits until it works.
func (p *process) start(ctx context.Context) error {
	log, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.folder, append(os.Environ(), p.env...), log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	ended := make(chan struct{})
	p.started, p.ended = cmd, ended
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(ended)
	}()
	limit, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	return poll(limit, p.name+" to answer", func() (bool, error) {
		select {
		case <-ended:
			return false, fmt.Errorf("%s ended by itself", p.name)
		default:
			return healthy(limit, p.health), nil
		}
	})
}

// kill ends the program at once, as a power cut would (SIGKILL), and returns when it is gone. It may be called twice.
func (p *process) kill() {
	if p.started == nil {
		return
	}
	_ = p.started.Process.Kill() // it may have ended already
	<-p.ended
	p.started = nil
}

// lastWords is the end of the program's log.
func (p *process) lastWords() []byte {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return nil
	}
	if len(text) > logBytesShown {
		text = text[len(text)-logBytesShown:]
		if _, whole, found := bytes.Cut(text, []byte("\n")); found {
			text = whole
		}
	}
	return bytes.TrimSpace(text)
}

func healthy(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// poll asks until the answer is yes.
func poll(ctx context.Context, what string, done func() (bool, error)) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if yes, err := done(); yes || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}

// Ports are drawn from below those that systems give to outgoing connections (from 32768 on, on Linux): else a connection
// might take a program's port in the moment between its death and its next start.
const (
	portMin   = 20000
	portMax   = 32000
	portTries = 1000
)

// freeAddresses finds ports that nothing listens on. They are held until all are found, so that they differ.
func freeAddresses(count int) ([]string, error) {
	var addresses []string
	for range portTries {
		address := fmt.Sprintf("127.0.0.1:%d", portMin+rand.IntN(portMax-portMin))
		listener, err := net.Listen("tcp", address)
		if err != nil {
			continue // taken
		}
		defer listener.Close()
		if addresses = append(addresses, address); len(addresses) == count {
			return addresses, nil
		}
	}
	return nil, fmt.Errorf("no free ports were found from %d to %d", portMin, portMax)
}
