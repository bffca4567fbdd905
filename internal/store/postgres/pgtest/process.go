package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"time"
)

// readyTime is how long a server may take until it answers; a machine that does much else takes seconds.
const readyTime = 60 * time.Second

// identity is who a server runs as: Postgres refuses to run as root.
type identity struct {
	uid, gid int // -1: as we are
}

func unprivileged() (*identity, error) {
	if os.Getuid() != 0 {
		return &identity{-1, -1}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(found.Uid)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.Atoi(found.Gid)
		if err != nil {
			return nil, err
		}
		return &identity{uid, gid}, nil
	}
	return nil, fmt.Errorf("postgres does not run as root, and there is no user postgres or nobody: run the tests as another user")
}

// own gives a file or a directory to who runs the server.
func (i *identity) own(path string) error {
	if i.uid < 0 {
		return nil
	}
	return os.Chown(path, i.uid, i.gid)
}

func (i *identity) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	i.attach(cmd)
	return cmd
}

// process is a server that runs.
type process struct {
	log  string
	cmd  *exec.Cmd
	over chan struct{} // closed when it has ended
	err  error         // of its end
}

// start starts a program whose life ends with this process's.
func (i *identity) start(log, program string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{log: log, cmd: i.command(program, args...), over: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	started := make(chan error)
	go func() {
		// The kernel ends the program when the thread that started it ends, so that thread must stay. It is given back in the end: with a
		// goroutine that ends locked its thread ends too, and with that whatever else it has started before.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
		}
		close(p.over)
	}()
	return p, <-started
}

// ready waits until the server answers.
func (p *process) ready(answers func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTime)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-p.over:
			return fmt.Errorf("it ended before it answered (%w):\n%s", p.err, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("it did not answer within %v: %w\n%s", readyTime, err, p.tail())
		}
	}
}

func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// stop ends the server at once, with all its children; that it had ended before is no error.
func (p *process) stop() error {
	select {
	case <-p.over:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(stopSignal); err != nil {
		return err
	}
	<-p.over
	return nil
}
