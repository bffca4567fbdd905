package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/cobra"

	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/postgres"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
	"github.com/nelkap/nelkap/internal/store/sqlite"
	"github.com/nelkap/nelkap/internal/store/storetest"
)

// database starts a Postgres of the test's own, and gives its URL with a password that nothing may show.
func database(t *testing.T) string {
	t.Helper()
	server, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return strings.Replace(server.URL("postgres"), "@", ":canary-password@", 1)
}

// nelkap runs a command to its end, and gives its exit code and what it said.
func nelkap(t *testing.T, arguments ...string) (code int, said string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "nelkap", arguments...)
	command.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GORACE=" + noSleep, "NELKAP_URL=" + os.Getenv("NELKAP_URL")}, production...)
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), "canary") {
		t.Errorf("a secret is shown: %s", out)
	}
	return code, string(out)
}

// says runs a command that must end with a code and say a word.
func says(t *testing.T, code int, word string, arguments ...string) {
	t.Helper()
	if got, said := nelkap(t, arguments...); got != code || !strings.Contains(said, word) {
		t.Errorf("%s: exit code %d, want %d and %q:\n%s", strings.Join(arguments, " "), got, code, word, said)
	}
}

// Rule N5: an operator's way, with each refusal on it.
func TestAServerMovesToPostgres(t *testing.T) {
	data, url, app := filepath.Join(t.TempDir(), "data"), database(t), serveShop(t)
	says(t, exitFailed, "no store in", "migrate", "--from", data, "--to", url)
	p := launch(t, production, "serve", "--store", data, "--addr", "127.0.0.1:0", "--app", app)
	p.wait("app ready")
	asleep, err := p.client.StartRun(t.Context(), client.StartRun{Workflow: "later"})
	if err != nil {
		t.Fatal(err)
	}
	says(t, exitFailed, "SIGTERM", "migrate", "--from", data, "--to", url)
	p.signal(syscall.SIGTERM)
	p.exit()
	says(t, exitUsage, "--from", "migrate", "--to", url)
	says(t, exitUsage, "postgres://", "migrate", "--from", data, "--to", "elsewhere")
	says(t, exitFailed, "createdb", "migrate", "--from", data, "--to", strings.Replace(url, "/postgres?", "/nowhere?", 1))
	says(t, exitFailed, "not being moved", "migrate", "--from", data, "--abort")
	says(t, exitOK, "moved "+data+" to postgres 127.0.0.1", "migrate", "--from", data, "--to", url)
	says(t, exitOK, "moved", "migrate", "--from", data, "--to", url)
	says(t, exitFailed, "its runs are in postgres 127.0.0.1", "serve", "--store", data, "--addr", "127.0.0.1:0")
	says(t, exitFailed, "no way back", "migrate", "--from", data, "--abort")
	p = launch(t, production, "serve", "--store", url, "--addr", "127.0.0.1:0", "--app", app)
	p.wait("app ready")
	if run, err := p.client.Run(t.Context(), asleep.ID, 0); err != nil || run.Workflow != "later" || run.EndedAt != nil {
		t.Errorf("%+v, %v", run, err)
	}
}

// What else is in the database is not touched, and people are told what to do.
func TestADatabaseOfSomethingElseIsRefused(t *testing.T) {
	server, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	server.Exec(t, "postgres", "CREATE TABLE runs (distance int)", "INSERT INTO runs VALUES (42)")
	data, url := filepath.Join(t.TempDir(), "data"), server.URL("postgres")
	s, err := sqlite.Open(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	const advice = "make Nelkap a database of its own"
	says(t, exitFailed, advice, "serve", "--store", url, "--addr", "127.0.0.1:0")
	says(t, exitFailed, advice, "migrate", "--from", data, "--to", url)
	server.Exec(t, "postgres", "DO $$ BEGIN ASSERT (SELECT distance FROM runs) = 42; END $$")
}

// Rule N5: the command is killed at each line that it says, and later and later; started again, it ends the move. On a machine that does
// other things it may end before it is killed: then another move is.
func TestAMoveThatIsKilledAnytimeGoesOn(t *testing.T) {
	kills := 0
	for try := 0; kills < 10; try++ {
		if try == 10 {
			t.Fatalf("none of %d moves was killed 10 times, the last %d times", try, kills)
		}
		kills = moveUnderKills(t)
	}
}

// moveUnderKills moves a store with a command that is killed again and again, and says how often that was.
func moveUnderKills(t *testing.T) (kills int) {
	t.Helper()
	data, url := filepath.Join(t.TempDir(), "data"), database(t)
	s, err := sqlite.Open(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	for _, batch := range storetest.Batches(1, 12) {
		if _, err := s.Commit(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	want := storetest.Dump(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for line := 0; ; line++ {
		if migrateUntil(t, data, url, line) {
			break
		}
		kills++
		if _, err := sqlite.Open(t.Context(), data); !errors.Is(err, store.ErrMoved) {
			t.Fatalf("after a kill at line %d a server may use the old store: %v", line, err)
		}
		arrived, err := postgres.Open(t.Context(), url)
		if line > 0 && err == nil { // a kill that came late, when all was done: the old store is moved for ever, and the new one is whole, as below
			arrived.Close()
			if old, err := sqlite.Examine(t.Context(), data); err != nil || old.Phase != store.PhaseMoved {
				t.Fatalf("after a kill at line %d a server may use the new store, and the old one is %s, %v", line, old.Phase, err)
			}
			break
		}
		if line > 0 && !errors.Is(err, store.ErrMoved) {
			t.Fatalf("after a kill at line %d the new store can't be opened: %v", line, err)
		}
	}
	moved, err := postgres.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer moved.Close()
	if diff := cmp.Diff(want, storetest.Dump(t, moved), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("(-before +after)\n%s", diff)
	}
	return kills
}

// A person who breaks the command off is told how it goes on.
func TestAMoveThatIsInterruptedSaysHowItGoesOn(t *testing.T) {
	data, url := filepath.Join(t.TempDir(), "data"), database(t)
	s, err := sqlite.Open(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	var many []store.Change
	for n := range 5000 {
		many = append(many, store.Change{store.InsertRun{Run: storetest.NewRun(n)}})
	}
	if _, err := s.Commit(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "nelkap", "migrate", "--from", data, "--to", url)
	command.Env = []string{"GORACE=" + noSleep}
	var said strings.Builder
	command.Stderr = &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	awaitMark(t, data)
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err == nil || !strings.Contains(said.String(), "started again") {
		t.Errorf("%v: %s", err, said.String())
	}
}

// migrateUntil runs the command until it has said so many lines of its progress, and kills it then; with none, as soon as the directory is
// marked. It tells whether the command came to its end before.
func migrateUntil(t *testing.T, data, url string, lines int) (ended bool) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "nelkap", "migrate", "--from", data, "--to", url)
	command.Env = []string{"GORACE=" + noSleep}
	said, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if lines == 0 {
		awaitMark(t, data)
	}
	for scanner := bufio.NewScanner(said); lines > 0 && scanner.Scan(); {
		lines--
	}
	if lines == 0 {
		command.Process.Kill()
	}
	return command.Wait() == nil
}

// awaitMark waits until a store is marked as moving, as another process sees it: from then on no backup is made of it.
func awaitMark(t *testing.T, data string) {
	t.Helper()
	backups := t.TempDir()
	for n, deadline := 0, time.Now().Add(20*time.Second); time.Now().Before(deadline); n++ {
		if err := sqlite.Backup(context.Background(), data, filepath.Join(backups, strconv.Itoa(n))); errors.Is(err, store.ErrMoved) {
			return
		}
	}
	t.Fatal("the store was never marked")
}

// Every command has --json but the two that serve: their logs are JSON where nobody reads them.
func TestEveryCommandHasJSON(t *testing.T) {
	var without []string
	var look func(command *cobra.Command)
	look = func(command *cobra.Command) {
		if !command.HasSubCommands() && command.Flag("json") == nil {
			without = append(without, command.CommandPath())
		}
		for _, below := range command.Commands() {
			look(below)
		}
	}
	look((&app{}).root())
	if slices.Sort(without); !slices.Equal(without, []string{"nelkap dev", "nelkap serve"}) {
		t.Errorf("without --json: %q", without)
	}
}

// What a program reads of a backup, of a restored directory and of a move, on standard output alone.
func TestWhatIsDoneToAStoreIsToldInJSON(t *testing.T) {
	dir := t.TempDir()
	data, backup, elsewhere := filepath.Join(dir, "data"), filepath.Join(dir, "backup.db"), filepath.Join(dir, "elsewhere")
	p := launch(t, production, "serve", "--store", data, "--addr", "127.0.0.1:0", "--app", serveShop(t))
	p.wait("app ready")
	if _, err := p.client.StartRun(t.Context(), client.StartRun{Workflow: "later"}); err != nil {
		t.Fatal(err)
	}
	tells := func(want string, arguments ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), "nelkap", append(arguments, "--json")...)
		command.Env = []string{"GORACE=" + noSleep}
		out, err := command.Output()
		var got, wanted map[string]any
		if err := errors.Join(err, json.Unmarshal(out, &got), json.Unmarshal([]byte(want), &wanted)); err != nil {
			t.Fatalf("%q: %v: %s", arguments, err, out)
		}
		if to, is := got["to"].(string); is && strings.HasPrefix(to, "postgres 127.0.0.1") {
			got["to"] = "postgres"
		}
		if !maps.Equal(got, wanted) {
			t.Errorf("%q tells %s, want %s", arguments, out, want)
		}
	}
	tells(fmt.Sprintf(`{"data": %q, "file": %q}`, data, backup), "backup", backup, "--data", data)
	p.signal(syscall.SIGTERM)
	p.exit()
	tells(fmt.Sprintf(`{"data": %q, "runs": 1, "held": true}`, elsewhere), "restore", backup, "--data", elsewhere)
	tells(fmt.Sprintf(`{"data": %q, "runs": 1, "held": false}`, elsewhere), "restore", "--go-on", "--data", elsewhere)
	url := database(t)
	if ended := migrateUntil(t, data, url, 1); ended {
		t.Fatal("the move was not interrupted")
	}
	code, said := ask(t, []string{"NELKAP_STORE=" + url}, "doctor")
	if code != exitFailed || !strings.Contains(said, "FAIL  phase ") || !strings.Contains(said, "drop this database") {
		t.Errorf("a database that is not all there: exit code %d\n%s", code, said)
	}
	tells(fmt.Sprintf(`{"from": %q}`, data), "migrate", "--from", data, "--abort")
	tells(fmt.Sprintf(`{"from": %q, "to": "postgres"}`, data), "migrate", "--from", data, "--to", url)
}
