package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nelkap/nelkap/internal/doctor"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
	"github.com/nelkap/nelkap/internal/store/sqlite"
)

// ask runs the binary, and gives its exit code and all that it said.
func ask(t *testing.T, environ []string, arguments ...string) (code int, said string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "nelkap", arguments...)
	command.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GORACE=" + noSleep}, environ...)
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), string(out)
}

// A server on a database with everything that makes it unsafe: doctor says each thing, also that its loss is none that is
// survived (N6), fails, and shows no password.
func TestDoctorLooksAtADatabase(t *testing.T) {
	database, err := pgtest.Start("fsync=off", "max_connections=30")
	if err != nil {
		t.Fatal(err)
	}
	defer database.Stop()
	address := strings.Replace(database.URL("postgres"), "nelkap@", "nelkap:canary@", 1)
	p := launch(t, append(production, "NELKAP_STORE="+address), "serve", "--addr", "127.0.0.1:0", "--app", serveShop(t))
	p.wait("app ready")
	environ := []string{"NELKAP_URL=" + p.url, "NELKAP_API_KEY=" + apiKey, "NELKAP_STORE=" + address}
	code, said := ask(t, environ, "doctor")
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{
		"OK    server ", "OK    key ", "OK    clock ", "OK    app  ", "shop at ", "OK    database  ", "Postgres 1", "OK    schema ", "OK    writing ",
		"FAIL  fsync ", "set fsync = on", "WARN  replication ", "not the loss of the database server", "database clock", "1 of ",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing", want)
		}
	}
	var list struct {
		Failed int
		Checks []struct{ Name, Status, Detail, Advice string }
	}
	code, answer := ask(t, environ, "doctor", "--json")
	if body, _, _ := strings.Cut(answer, "\nnelkap: "); code != exitFailed || json.Unmarshal([]byte(body), &list) != nil || list.Failed != 1 || len(list.Checks) < 12 {
		t.Errorf("exit code %d: %s", code, answer)
	}
	if all := said + answer + p.said(); strings.Contains(all, "canary") {
		t.Errorf("a secret is shown:\n%s", all)
	}
	if t.Failed() {
		t.Log(said)
	}
}

// A store that was restored looks well in all else, and nothing goes on there (N5). Doctor says so beside its server, and of its directory.
func TestDoctorSaysWhatKeepsAStoreFromGoingOn(t *testing.T) {
	dir := t.TempDir()
	data, backup, restored := filepath.Join(dir, "data"), filepath.Join(dir, "backup.db"), filepath.Join(dir, "restored")
	examined := func(p *process, data string) string {
		code, said := ask(t, []string{"NELKAP_URL=" + p.url, "NELKAP_API_KEY=" + apiKey}, "doctor", "--data", data)
		if code != exitOK {
			t.Errorf("exit code %d: %s", code, said)
		}
		return said
	}
	p := launch(t, production, "serve", "--store", data, "--addr", "127.0.0.1:0")
	if said := examined(p, data); strings.Contains(said, "phase") || !strings.Contains(said, "OK    schema              version 1\n") {
		t.Errorf("a server that has just begun:\n%s", said)
	}
	says(t, exitOK, "backed up", "backup", backup, "--data", data)
	p.signal(os.Interrupt)
	p.exit()
	says(t, exitOK, "held", "restore", backup, "--data", restored)
	p = launch(t, production, "serve", "--store", restored, "--addr", "127.0.0.1:0")
	said := examined(p, restored)
	for _, want := range []string{"WARN  phase               the server's store was restored", "WARN  phase               " + restored + " was restored", "nelkap restore --go-on --data " + restored} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing:\n%s", want, said)
		}
	}
	source, err := sqlite.OpenSource(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(source.SetStanding(t.Context(), store.Standing{Phase: store.PhaseMoved, Move: "move_1", Place: "postgres db:5432/nelkap"}), source.Close()); err != nil {
		t.Fatal(err)
	}
	if said := examined(p, data); !strings.Contains(said, "its runs are in postgres db:5432/nelkap now. To do: start the server with --store") {
		t.Errorf("a directory that has moved:\n%s", said)
	}
}

// A server that says nothing must not hold up who looks after it.
func TestAHealthcheckWaitsForNobody(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	code, said := ask(t, nil, "healthcheck", "--url", "http://"+listener.Addr().String(), "--timeout", "100ms")
	if code != exitFailed || !strings.Contains(said, "no answer from http://127.0.0.1") {
		t.Errorf("exit code %d: %s", code, said)
	}
}

func TestASentenceOfDoctorEndsOnce(t *testing.T) {
	for detail, want := range map[string]string{"it is full": "it is full. To do: empty it", "is the port right?": "is the port right? To do: empty it", "Look there.": "Look there. To do: empty it"} {
		var out bytes.Buffer
		a := &app{out: &out}
		if err := a.showChecks([]doctor.Check{{Name: "app", Status: doctor.Warn, Detail: detail, Advice: "empty it"}}); err != nil || !strings.Contains(out.String(), want+"\n") {
			t.Errorf("%q, %v", &out, err)
		}
	}
}
