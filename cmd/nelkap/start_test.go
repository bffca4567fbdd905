package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nelkap/nelkap/internal/apitype"
)

// sent is the body of the request that nelkap run makes with some flags.
func sent(t *testing.T, flags ...string) (body string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		read, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		body = string(read)
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"id":"run_1","created":true}`))
	}))
	if code, said := ask(t, nil, append([]string{"run", "echo", "--url", server.URL}, flags...)...); code != exitOK {
		t.Errorf("exit code %d: %s", code, said)
	}
	server.Close() // which waits for the handler
	return body
}

// A delay counts by the server's clock: this machine's may be wrong.
func TestADelayIsTheServersToCount(t *testing.T) {
	for delay, want := range map[string]string{"90m": `"delayMs":5400000`, "1us": `"delayMs":1,`, "0s": `"id":"run_`} {
		if body := sent(t, "--delay", delay); !strings.Contains(body, want) || strings.Contains(body, `"at"`) || (delay == "0s" && strings.Contains(body, "delayMs")) {
			t.Errorf("--delay %s sends %s", delay, body)
		}
	}
}

// Zero keeps a key for ever.
func TestAKeyIsKeptForAtLeastAMillisecond(t *testing.T) {
	if body := sent(t, "--key", "k", "--key-for", "1us"); !strings.Contains(body, `"keyForMs":1`) {
		t.Errorf("it sends %s", body)
	}
}

// What code throws may be a sentence, and has its full stop then.
func TestARunsErrorEndsInOneFullStop(t *testing.T) {
	for _, message := range []string{"no card", "no card."} {
		run := &apitype.Run{ID: "run_1", Status: "failed", Error: &apitype.Error{Name: "TypeError", Message: message}}
		if got := runError(run).Error(); got != "the run failed with TypeError: no card. See nelkap runs get run_1" {
			t.Error(got)
		}
	}
}

// A result that nobody got is no success, such as on a full disk.
func TestAResultThatIsLostIsAFailure(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			w.Write([]byte(`{"id":"run_1","created":true}`))
			return
		}
		w.Write([]byte(`{"data":[{"at":"2026-11-30T12:00:00.000Z","level":"info","message":"hello"}],"nextCursor":null}`))
	}))
	defer server.Close()
	full, err := os.Open(os.Args[0]) // for reading alone
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, arguments := range [][]string{{"run", "echo"}, {"runs", "logs", "run_1"}, {"version"}} {
		command := exec.CommandContext(t.Context(), "nelkap", arguments...)
		command.Env = []string{"PATH=" + os.Getenv("PATH"), "NELKAP_URL=" + server.URL, "GORACE=" + noSleep}
		command.Stdout = full
		var said bytes.Buffer
		command.Stderr = &said
		if err := command.Run(); command.ProcessState.ExitCode() != exitFailed || !strings.Contains(said.String(), "write") {
			t.Errorf("%v: %v, and it says %s", arguments, err, &said)
		}
	}
}
