package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/apptest"
	"github.com/nelkap/nelkap/internal/client"
)

// process is the binary, running as a server.
type process struct {
	t       *testing.T
	command *exec.Cmd
	url     string
	client  *client.Client
	ended   chan error

	mu     sync.Mutex
	output []string      // its lines so far
	news   chan struct{} // closed when there are more, or no more
	over   bool
}

// spawn starts the binary.
func spawn(t *testing.T, environ []string, arguments ...string) *process {
	t.Helper()
	p := &process{t: t, command: exec.CommandContext(t.Context(), "nelkap", arguments...), ended: make(chan error, 1), news: make(chan struct{})}
	p.command.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GORACE=" + noSleep}, environ...)
	reader, writer := io.Pipe()
	p.command.Stdout, p.command.Stderr = writer, writer
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	go p.read(reader)
	go func() {
		p.ended <- p.command.Wait()
		writer.Close()
	}()
	t.Cleanup(func() { p.command.Process.Kill() })
	return p
}

// launch starts the binary as a server, and waits until it is ready.
func launch(t *testing.T, environ []string, arguments ...string) *process {
	t.Helper()
	p := spawn(t, environ, arguments...)
	p.url = regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(p.wait(`(url   |"msg":"ready".*)http://127\.0\.0\.1:\d+`))
	var err error
	if p.client, err = client.New(client.Options{URL: p.url, Key: apiKey}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.client.Close)
	return p
}

func (p *process) read(from io.Reader) {
	lines := bufio.NewScanner(from)
	for more := true; more; {
		more = lines.Scan()
		p.mu.Lock()
		if p.over = !more; more {
			p.output = append(p.output, lines.Text())
		}
		close(p.news)
		p.news = make(chan struct{})
		p.mu.Unlock()
	}
}

// said is everything that the process has written.
func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.output, "\n") + "\n"
}

// wait waits for a line that fits a pattern, which may be there already.
func (p *process) wait(pattern string) string {
	p.t.Helper()
	wanted := regexp.MustCompile(pattern)
	limit := time.After(20 * time.Second)
	for {
		p.mu.Lock()
		at, news, over := slices.IndexFunc(p.output, wanted.MatchString), p.news, p.over
		line := ""
		if at >= 0 {
			line = p.output[at]
		}
		p.mu.Unlock()
		switch {
		case at >= 0:
			return line
		case over:
			p.t.Fatalf("it ended without a line like %s:\n%s", pattern, p.said())
		}
		select {
		case <-news:
		case <-limit:
			p.t.Fatalf("no line like %s:\n%s", pattern, p.said())
		}
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.command.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// exit waits for the process's end, and gives its exit code, or its signal below zero.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case err := <-p.ended:
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return 0
		}
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return -int(status.Signal())
		}
		return exit.ExitCode()
	case <-time.After(20 * time.Second):
		p.t.Fatalf("it did not end:\n%s", p.said())
		return 0
	}
}

var production = []string{"NELKAP_SIGNING_KEY=" + signingKey, "NELKAP_API_KEY=" + apiKey}

func serveShop(t *testing.T) string {
	t.Helper()
	app := httptest.NewServer(apptest.New("shop", workflows()...))
	t.Cleanup(app.Close)
	return app.URL
}

// Rule N5.
func TestAServerStartsAtOnceAfterItWasKilled(t *testing.T) {
	data, app := filepath.Join(t.TempDir(), "data"), serveShop(t)
	var runs []string
	for range 3 {
		p := launch(t, production, "serve", "--store", data, "--addr", "127.0.0.1:0", "--app", app, "--lease", "5s")
		for _, id := range runs {
			if run, err := p.client.Run(t.Context(), id, 30*time.Second); err != nil || run.Status != "completed" {
				t.Errorf("%s: %+v, %v", id, run, err)
			}
		}
		if len(runs) == 0 {
			p.wait("app ready")
		}
		started, err := p.client.StartRun(t.Context(), client.StartRun{Workflow: "echo"})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, started.ID)
		p.signal(syscall.SIGKILL)
		if code := p.exit(); code != -int(syscall.SIGKILL) {
			t.Errorf("exit code %d", code)
		}
	}
}

// The run that a command waits for goes on, and so does the command.
func TestACommandThatWaitsForARunOutlastsARestartOfTheServer(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	app := httptest.NewServer(apptest.New("shop", append(workflows(), lasting()...)...))
	t.Cleanup(app.Close)
	p := launch(t, production, "serve", "--store", data, "--addr", "127.0.0.1:0", "--app", app.URL)
	p.wait("app ready")
	waits := spawn(t, production, "run", "slow", "--wait", "--url", p.url)
	run := waits.wait("^run_")
	watches := spawn(t, production, "runs", "watch", run, "--url", p.url)
	watches.wait("^step charge")
	p.signal(syscall.SIGKILL)
	p.exit()
	for _, command := range []*process{waits, watches} {
		command.wait("^No server answers at " + p.url + " any more")
	}
	again := launch(t, production, "serve", "--store", data, "--addr", strings.TrimPrefix(p.url, "http://"), "--app", app.URL)
	if _, err := again.client.Cancel(t.Context(), run, false); err != nil {
		t.Fatal(err)
	}
	for _, command := range []*process{waits, watches} {
		if code := command.exit(); code != exitRunFailed || !strings.Contains(command.said(), "cancelled") {
			t.Errorf("exit code %d: %s", code, command.said())
		}
	}
}

// Rule N5.
func TestADataDirectoryHasOneServer(t *testing.T) {
	data := t.TempDir()
	launch(t, production, "serve", "--store", data, "--addr", "127.0.0.1:0")
	second := exec.CommandContext(t.Context(), "nelkap", "serve", "--store", data, "--addr", "127.0.0.1:0")
	second.Env = append([]string{"GORACE=" + noSleep}, production...)
	said, err := second.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitFailed || !strings.Contains(string(said), "stop the other server") {
		t.Errorf("%v: %s", err, said)
	}
}

func TestAPortThatIsTakenIsSaid(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	command := exec.CommandContext(t.Context(), "nelkap", "dev", "--memory", "--addr", listener.Addr().String())
	command.Env = []string{"GORACE=" + noSleep}
	said, err := command.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitFailed || !strings.Contains(string(said), "--addr") {
		t.Errorf("%v: %s", err, said)
	}
}

// Those who wait are answered, and the process ends with 0 and says that it stops.
func TestASignalStopsAServerGracefully(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			heeded := make(chan os.Signal, 1) // what this process heeds, those that it starts do not ignore, also where this one was started by nohup
			ossignal.Notify(heeded, signal)
			defer ossignal.Stop(heeded)
			p := launch(t, production, "serve", "--memory", "--addr", "127.0.0.1:0", "--app", serveShop(t))
			p.wait("app ready")
			start := `{"workflow":"later"}`
			run := p.hold("POST /v1/runs?waitMs=30000", start, len(start))
			var slow <-chan string
			if signal == syscall.SIGTERM {
				slow = p.hold("POST /v1/runs", start, 1000)
			}
			p.started("later")
			begun := time.Now()
			p.signal(signal)
			if code := p.exit(); code != 0 {
				t.Errorf("exit code %d:\n%s", code, p.said())
			}
			if answer := <-run; !strings.Contains(answer, "201 Created") || !strings.Contains(answer, `"workflow":"later"`) {
				t.Errorf("who waited was answered %q", answer)
			}
			if slow != nil {
				<-slow // cut off, in the end
			}
			if took := time.Since(begun); took > stopWithin+4*time.Second {
				t.Errorf("it took %v", took)
			}
			if !strings.Contains(p.said(), `"msg":"stopping"`) {
				t.Error(p.said())
			}
		})
	}
}

// As under nohup.
func TestAServerThatIgnoresItsTerminalGoesOnWithoutIt(t *testing.T) {
	ossignal.Ignore(syscall.SIGHUP) // which those that this process starts inherit
	defer ossignal.Reset(syscall.SIGHUP)
	p := launch(t, production, "serve", "--memory", "--addr", "127.0.0.1:0")
	p.signal(syscall.SIGHUP)
	if _, err := p.client.Apps(t.Context()); err != nil {
		t.Errorf("%v:\n%s", err, p.said())
	}
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 || strings.Count(p.said(), `"msg":"stopping"`) != 1 {
		t.Errorf("exit code %d:\n%s", code, p.said())
	}
}

// A server whose log nobody reads any more, as when what collects it has been restarted, works on, and stops as it should.
func TestAServerOutlivesWhoReadsItsLog(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "nelkap", "serve", "--memory", "--addr", "127.0.0.1:0")
	command.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GORACE=" + noSleep}, production...)
	command.Stdout, command.Stderr = writer, writer
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { command.Process.Kill() })
	writer.Close()
	for lines := bufio.NewScanner(reader); lines.Scan() && !strings.Contains(lines.Text(), `"msg":"ready"`); {
	}
	reader.Close()
	if err := command.Process.Signal(syscall.SIGTERM); err != nil { // of which it writes to its log
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// hold opens a request whose answer is waited for, with the beginning of a body of so many bytes. It returns once the server reads the
// body: one that it had not read yet would be dropped as the server stops. The answer comes on the channel.
func (p *process) hold(what, body string, length int) <-chan string {
	p.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
		what, apiKey, length)
	answered := bufio.NewReader(conn)
	if line, err := answered.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		p.t.Fatalf("%q, %v", line, err)
	}
	io.WriteString(conn, body)
	answer := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(answered)
		answer <- string(text)
	}()
	return answer
}

// started waits until a run of a workflow is there.
func (p *process) started(workflow string) {
	p.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		runs, err := p.client.Runs(p.t.Context(), client.RunQuery{Workflow: workflow})
		if err != nil {
			p.t.Fatal(err)
		}
		if len(runs.Data) > 0 {
			return
		}
	}
	p.t.Fatalf("no run of %s:\n%s", workflow, p.said())
}

func TestASecondSignalEndsAServerAtOnce(t *testing.T) {
	p := launch(t, production, "serve", "--memory", "--addr", "127.0.0.1:0")
	p.hold("POST /v1/runs", "{", 1000)
	p.signal(syscall.SIGTERM)
	p.wait("stopping")
	begun := time.Now()
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(begun); took > stopWithin-time.Second {
		t.Errorf("it took %v", took)
	}
}

// A load balancer must learn that a server stops while it still answers, or it sends requests to one that is gone.
func TestAServerDrainsBeforeItStops(t *testing.T) {
	p := launch(t, production, "serve", "--memory", "--addr", "127.0.0.1:0", "--app", serveShop(t), "--drain", "2s")
	p.wait("app ready")
	if _, err := p.client.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	p.signal(syscall.SIGTERM)
	p.wait(`"msg":"draining"`)
	response, err := http.Get(p.url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %s", response.Status)
	}
	started, err := p.client.StartRun(t.Context(), client.StartRun{Workflow: "echo"})
	if err != nil {
		t.Fatal(err)
	}
	if run, err := p.client.Run(t.Context(), started.ID, 30*time.Second); err != nil || run.Status != "completed" {
		t.Errorf("%+v, %v", run, err)
	}
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, p.said())
	}
	if took := time.Since(begun); took < 2*time.Second {
		t.Errorf("it was gone after %v", took)
	}
}

func TestALogOfProductionIsJSONWithoutKeys(t *testing.T) {
	p := launch(t, append(production, "NELKAP_SIGNING_KEI=canary"), "serve", "--store", t.TempDir(), "--addr", "127.0.0.1:0", "--app", serveShop(t), "--app", "http://user:canary@127.0.0.1:1/?token=canary")
	p.wait("app ready")
	if started, err := p.client.StartRun(t.Context(), client.StartRun{Workflow: "fail"}); err != nil {
		t.Error(err)
	} else if _, err := p.client.Run(t.Context(), started.ID, 30*time.Second); err != nil {
		t.Error(err)
	}
	p.signal(syscall.SIGTERM)
	p.exit()
	for line := range strings.Lines(p.said()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry["level"] == nil || entry["msg"] == nil {
			t.Errorf("%v: %s", err, line)
		}
	}
	if !strings.Contains(p.said(), "did you mean NELKAP_SIGNING_KEY?") {
		t.Error("the slip is not said")
	}
	if strings.Contains(p.said(), "canary") {
		t.Errorf("a secret is shown:\n%s", p.said())
	}
}

// What a person reads in dev: calls and steps, by names, with nothing in them that a terminal would obey.
func TestALogOfDevFollowsRuns(t *testing.T) {
	app := serveShop(t)
	p := launch(t, nil, "dev", "--memory", "--addr", "127.0.0.1:0", "--app", app)
	p.wait("app ready.*shop")
	for _, name := range []string{"steps", "fail", "later"} {
		started, err := p.client.StartRun(t.Context(), client.StartRun{Workflow: name})
		if err == nil && name != "later" {
			_, err = p.client.Run(t.Context(), started.ID, 30*time.Second)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p.wait("run waits")
	p.signal(syscall.SIGTERM)
	p.exit()
	for _, want := range []string{
		"data  in memory, lost on exit", "apps  " + app, "run started workflow=steps", "step saved workflow=steps", "step=charge", "run completed workflow=steps",
		"run failed workflow=fail", "error=TypeError", "run waits workflow=later", "call ",
	} {
		if !strings.Contains(p.said(), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.ContainsAny(p.said(), "\x1b\u009b") {
		t.Errorf("an escape got through: %q", p.said())
	}
	if t.Failed() {
		t.Log(p.said())
	}
}

func TestDevKeepsItsDataInAFolderOfTheProject(t *testing.T) {
	project := t.TempDir()
	t.Chdir(project)
	p := launch(t, nil, "dev", "--addr", "127.0.0.1:0")
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d: %s", code, p.said())
	}
	if _, err := os.Stat(filepath.Join(project, ".nelkap", "nelkap.db")); err != nil {
		t.Error(err)
	}
	if !strings.Contains(p.said(), "data  .nelkap") || !strings.Contains(p.said(), "--app http://127.0.0.1:3000/api/nelkap") {
		t.Error(p.said())
	}
}
