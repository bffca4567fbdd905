package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
)

var commandLines = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```$")

// commandsOf are the commands on a page of docs/, in order, each as its arguments.
func commandsOf(t *testing.T, page string) (list [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range commandLines.FindAllStringSubmatch(string(text), -1) {
		for command := range strings.Lines(block[1]) {
			list = append(list, strings.Fields(strings.TrimPrefix(strings.TrimSpace(command), "nelkap ")))
		}
	}
	return list
}

// reader does what a page says, in order. It stops the server before what needs that, as the page tells it to.
type reader struct {
	t      *testing.T
	dir    string
	app    string
	server *process
}

func newReader(t *testing.T) *reader {
	t.Helper()
	r := &reader{t: t, dir: t.TempDir(), app: serveShop(t)}
	t.Chdir(r.dir)
	return r
}

func (r *reader) serve(arguments ...string) {
	r.t.Helper()
	r.server = launch(r.t, production, append(arguments, "--addr", "127.0.0.1:0", "--app", r.app)...)
}

func (r *reader) stop() {
	r.t.Helper()
	r.server.signal(syscall.SIGTERM)
	if code := r.server.exit(); code != exitOK {
		r.t.Fatalf("exit code %d", code)
	}
}

// start starts a run that lives on: it waits for an hour.
func (r *reader) start() string {
	r.t.Helper()
	r.server.wait("app ready")
	started, err := r.server.client.StartRun(r.t.Context(), client.StartRun{Workflow: "later"})
	if err != nil {
		r.t.Fatal(err)
	}
	return started.ID
}

// completes tells that new work is done.
func (r *reader) completes() {
	r.t.Helper()
	r.server.wait("app ready")
	started, err := r.server.client.StartRun(r.t.Context(), client.StartRun{Workflow: "echo"})
	if err != nil {
		r.t.Fatal(err)
	}
	if run, err := r.server.client.Run(r.t.Context(), started.ID, 20*time.Second); err != nil || run.Status != "completed" {
		r.t.Errorf("%+v, %v", run, err)
	}
}

// Rule N5: the page on moving, as a reader types it, with the way back first.
func TestThePageOnMovingIsRight(t *testing.T) {
	url, commands := database(t), commandsOf(t, "moving-to-postgres.md")
	r := newReader(t)
	r.serve("serve", "--store", "./data")
	run := r.start()
	r.stop()
	if len(commands) != 3 {
		t.Fatalf("the page has %d commands", len(commands))
	}
	for _, command := range commands {
		for i := range command {
			if strings.HasPrefix(command[i], "postgres://") {
				command[i] = url
			}
		}
	}
	migrate, serve, abort := commands[0], commands[1], commands[2]
	if ended := migrateUntil(t, "data", url, 2); ended {
		t.Fatal("the move was not interrupted")
	}
	says(t, exitFailed, "nelkap migrate --from data --abort", "serve", "--store", "./data", "--addr", "127.0.0.1:0")
	says(t, exitFailed, "nelkap migrate once more", "serve", "--store", url, "--addr", "127.0.0.1:0")
	says(t, exitOK, "stays where it is", abort...)
	r.serve("serve", "--store", "./data")
	r.stop()
	says(t, exitOK, "moved", migrate...)
	r.serve(serve...)
	if got, err := r.server.client.Run(t.Context(), run, 0); err != nil || got.EndedAt != nil {
		t.Errorf("%+v, %v", got, err)
	}
	r.completes()
}

// Rule N5: the page on backups, as a reader types it.
func TestThePageOnBackupsIsRight(t *testing.T) {
	commands := commandsOf(t, "backups.md")
	r := newReader(t)
	r.serve("serve", "--store", "./data")
	lives, cancelled := r.start(), r.start()
	if len(commands) != 13 {
		t.Fatalf("the page has %d commands", len(commands))
	}
	commands, ofPostgres := commands[:7], commands[7:]
	says(t, exitOK, "backed up ./data", commands[0]...)
	r.stop()
	says(t, exitOK, "have not ended: 2", commands[1]...)
	r.serve(commands[2]...)
	r.server.wait("its runs are held")
	t.Setenv("NELKAP_URL", r.server.url)
	says(t, exitOK, lives, commands[3]...)
	commands[4][2] = cancelled
	says(t, exitOK, "cancelled", commands[4]...)
	says(t, exitFailed, "restore --go-on", "run", "echo")
	says(t, exitFailed, "stop it", commands[5]...)
	answer, err := http.Post(r.server.url+"/hooks/pay", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("a webhook is answered %s", answer.Status)
	}
	r.stop()
	says(t, exitOK, "go on when its server is started: 1", commands[5]...)
	r.serve(commands[6]...)
	r.completes()
	if run, err := r.server.client.Run(t.Context(), lives, 0); err != nil || run.EndedAt != nil {
		t.Errorf("%+v, %v", run, err)
	}
	r.stop()
	r.restoresADatabase(ofPostgres)
}

// restoresADatabase follows the page's part on Postgres.
func (r *reader) restoresADatabase(commands [][]string) {
	t := r.t
	t.Helper()
	original, restored := database(t), database(t)
	for _, command := range commands {
		for i := range command {
			command[i] = strings.Replace(command[i], "postgres://nelkap@db.example.com/nelkap", original, 1)
			command[i] = strings.Replace(command[i], "postgres://nelkap@db.example.com/restored", restored, 1)
		}
	}
	dump, restore, serve, goOn, serveAgain, hold := commands[0], commands[1], commands[2], commands[3], commands[4], commands[5]
	r.serve("serve", "--store", original)
	lives := r.start()
	pgtest.Run(t, dump[0], dump[1:]...)
	r.stop()
	pgtest.Run(t, restore[0], restore[1:]...)
	r.serve(serve...)
	r.server.wait("its runs are held")
	if run, err := r.server.client.Run(t.Context(), lives, 0); err != nil || run.EndedAt != nil {
		t.Errorf("%+v, %v", run, err)
	}
	t.Setenv("NELKAP_URL", r.server.url)
	says(t, exitFailed, "restore --go-on", "run", "echo")
	says(t, exitOK, "was restored, and its runs are held", "doctor", "--store", restored)
	r.stop()
	says(t, exitOK, "go on when its server is started: 1", goOn...)
	r.serve(serveAgain...)
	r.completes()
	r.stop()
	says(t, exitOK, "held until nelkap restore --go-on --store and its URL: 1", hold...)
	r.serve(serve...)
	r.server.wait("its runs are held")
}

// The page on schedules, as a reader types it, with a workflow that the app has.
func TestThePageOnSchedulesIsRight(t *testing.T) {
	text, err := os.ReadFile("../../docs/schedules.md")
	if err != nil {
		t.Fatal(err)
	}
	block := commandLines.FindSubmatch(text)
	if block == nil {
		t.Fatal("the page has no commands")
	}
	r := newReader(t)
	r.serve("serve", "--store", "./data")
	var said []string
	for command := range strings.Lines(strings.ReplaceAll(string(block[1]), "'user report'", "later")) {
		shell := exec.CommandContext(t.Context(), "sh", "-c", command)
		shell.Env = append(os.Environ(), append(production, "GORACE="+noSleep, "NELKAP_URL="+r.server.url)...)
		out, err := shell.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
		said = append(said, string(out))
	}
	for i, want := range []string{"next at ", "report of u_1", "paused", "next at ", ""} {
		if i >= len(said) || !strings.Contains(said[i], want) {
			t.Errorf("command %d does not say %q: %q", i+1, want, said)
		}
	}
}
