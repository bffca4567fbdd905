package main

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/nelkap/nelkap/internal/apptest"
	"github.com/nelkap/nelkap/internal/wire"
)

// The keys of servers in tests. Nothing that the binary prints may show them.
const (
	apiKey     = "canary-api-key-0123456789abcdefghij"
	signingKey = "canary-signing-key-0123456789abcdefgh"
	hookSecret = "canary-hook-secret-0123456789abcdefgh"
)

// noSleep is for processes with the race detector, which else stay for a second at their end.
const noSleep = "atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"nelkap": main})
}

// Each script has a server of its own, with one app. Where its name begins with "serve" it is one of production, else dev.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			app := httptest.NewServer(apptest.New("shop", append(workflows(), lasting()...)...))
			env.Defer(app.Close)
			arguments := []string{"dev", "--memory", "--hook", "github=github,dedupe"}
			env.Setenv("GORACE", noSleep)
			env.Setenv("API_KEY", apiKey)
			env.Setenv("SIGNING_KEY", signingKey)
			env.Setenv("APP", app.URL)
			newer := httptest.NewServer(apptest.New("shop", newerWorkflows()...))
			env.Defer(newer.Close)
			env.Setenv("NEWER_APP", newer.URL)
			namesake := httptest.NewServer(apptest.New("shop", workflows()[:1]...))
			env.Defer(namesake.Close)
			env.Setenv("NAMESAKE", namesake.URL)
			environ := []string{"NELKAP_HOOK_GITHUB_SECRET=" + hookSecret}
			if strings.Contains(env.WorkDir, "script-serve") {
				arguments = []string{"serve", "--memory"}
				environ = []string{"NELKAP_SIGNING_KEY=" + signingKey, "NELKAP_API_KEY=" + apiKey}
			}
			url, stop, err := inProcess(append(arguments, "--addr", "127.0.0.1:0", "--app", app.URL), environ)
			if err != nil {
				return err
			}
			env.Defer(stop)
			env.Setenv("NELKAP_URL", url)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "capture": capture, "deliver": deliver},
	})
}

// exits runs a command that must end with a code: exits CODE COMMAND ...
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// deliver sends GitHub's webhook, signed with a secret (good or bad): deliver good|bad ID BODY
func deliver(ts *testscript.TestScript, _ bool, args []string) {
	secret := hookSecret
	if args[0] == "bad" {
		secret = "another"
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(args[2]))
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, ts.Getenv("NELKAP_URL")+"/hooks/github", strings.NewReader(args[2]))
	ts.Check(err)
	request.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	request.Header.Set("X-GitHub-Event", "issues")
	request.Header.Set("X-GitHub-Delivery", args[1])
	response, err := http.DefaultClient.Do(request)
	ts.Check(err)
	defer response.Body.Close()
	if isGood := response.StatusCode == http.StatusOK; isGood != (args[0] == "good") {
		ts.Fatalf("answered %s", response.Status)
	}
}

// capture sets a variable to what a pattern finds in the last output: capture NAME PATTERN
func capture(ts *testscript.TestScript, _ bool, args []string) {
	found := regexp.MustCompile(args[1]).FindString(ts.ReadFile("stdout") + ts.ReadFile("stderr"))
	if found == "" {
		ts.Fatalf("%s is not in the output", args[1])
	}
	ts.Setenv(args[0], found)
}

// inProcess runs a server in this process, and gives its address once it has described its app.
func inProcess(arguments, environ []string) (url string, stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	reader, writer := io.Pipe()
	a := &app{in: strings.NewReader(""), out: writer, errOut: writer, environ: environ}
	root := a.root()
	root.SetArgs(arguments)
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		writer.CloseWithError(fmt.Errorf("the server ended: %w", err))
		ended <- err
	}()
	stop = func() {
		cancel()
		<-ended
	}
	lines := bufio.NewScanner(reader)
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	known := false
	for (url == "" || !known) && lines.Scan() {
		line := lines.Text()
		if strings.Contains(line, "app ready") {
			known = true
		} else if url == "" {
			url = address.FindString(line)
		}
	}
	go io.Copy(io.Discard, reader)
	if url == "" || !known {
		stop()
		return "", nil, fmt.Errorf("the server did not start: %w", lines.Err())
	}
	return url, stop, nil
}

// workflows are those of the scripts' app.
func workflows() []apptest.Workflow {
	hour := time.Hour.Milliseconds()
	return []apptest.Workflow{
		apptest.On("echo", func(_ context.Context, c *apptest.Call) wire.End { return apptest.Completed(c.Run.Payload) }, "order.paid"),
		apptest.On("triage", func(_ context.Context, c *apptest.Call) wire.End { return apptest.Completed(nil) }, "github.issues.opened", "webhook.github"),
		apptest.On("fail", func(context.Context, *apptest.Call) wire.End { return apptest.Failed("TypeError", "no\x1b[2J such") }),
		apptest.On("later", func(context.Context, *apptest.Call) wire.End {
			return wire.End{Type: wire.Failed, Error: &wire.Error{Name: "Error", Message: "later"}, Retriable: true, Retries: 4, RetryAfterMs: &hour}
		}),
		apptest.On("steps", func(ctx context.Context, c *apptest.Call) wire.End {
			if _, err := c.Save(ctx, apptest.Step("charge", []byte(`{"id":"ch_1"}`)), apptest.Step("na\x1b[31msty\n", []byte("\"\u009b31m\""))); err != nil {
				return apptest.Failed("Error", err.Error())
			}
			return apptest.Completed([]byte("\"\\u001b[31m \u202e\""))
		}),
		apptest.On("owned", func(ctx context.Context, c *apptest.Call) wire.End {
			once := wire.Item{Op: wire.OpClaim, Kind: "claim", Number: 1, Key: "o_1", Once: true}
			if _, err := c.Save(ctx, once); err != nil {
				return apptest.Failed("Error", err.Error())
			}
			return apptest.Completed(nil)
		}),
	}
}

// lasting are workflows whose runs live, or live again.
func lasting() []apptest.Workflow {
	hour := time.Hour.Milliseconds()
	later := wire.End{Type: wire.Failed, Error: &wire.Error{Name: "Error", Message: "later"}, Retriable: true, Retries: 4, RetryAfterMs: &hour}
	stuck := apptest.On("stuck", func(context.Context, *apptest.Call) wire.End { return later })
	stuck.OnCancel = true
	slow := apptest.On("slow", func(ctx context.Context, c *apptest.Call) wire.End {
		if _, err := c.Save(ctx, apptest.Step("charge", []byte(`1`))); err != nil {
			return apptest.Failed("Error", err.Error())
		}
		return later
	})
	slow.Steps = []string{"charge"}
	return []apptest.Workflow{stuck, slow, apptest.On("paged", func(ctx context.Context, c *apptest.Call) wire.End {
		if _, err := c.Save(ctx, apptest.Step(fmt.Sprintf("page %d", c.Run.Restart), []byte(`1`))); err != nil {
			return apptest.Failed("Error", err.Error())
		}
		end := apptest.Completed(c.Run.Payload)
		if c.Run.Restart < 2 {
			end = wire.End{Type: wire.Restarted, Payload: []byte(strconv.Itoa(c.Run.Restart + 1))}
		}
		end.Logs = []wire.LogLine{{At: wire.At(time.Now()), Level: "info", Message: "page\x1b[2J done", Fields: []byte(`{"page":1}`), Entry: 1, Attempt: 1, Line: 1}}
		return end
	})}
}

// newerWorkflows are those of the same app after a deploy: one has lost a step.
func newerWorkflows() []apptest.Workflow {
	list := append(workflows(), lasting()...)
	for i := range list {
		list[i].Steps = nil
	}
	return list
}

// The scripts' names decide which server they get, and a script that does not run proves nothing.
func TestThereAreScripts(t *testing.T) {
	list, err := os.ReadDir("testdata/script")
	if err != nil || len(list) < 5 {
		t.Fatalf("%d scripts, %v", len(list), err)
	}
}
