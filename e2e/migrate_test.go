package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/nelkap/nelkap/e2e/plan"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
)

// Rule N5: a server is stopped with runs in every state, its directory is moved to Postgres, and a server there goes on at the same
// address. Meanwhile the app went on with the body that it was running, and a sleep came to its end. Each mark is left once.
func TestRunsInFlightMoveToPostgres(t *testing.T) {
	t.Parallel()
	database, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := database.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, language := range languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			database.Exec(t, "postgres", "CREATE DATABASE "+language)
			moves(t, language, database.URL(language))
		})
	}
}

func moves(t *testing.T, language, url string) {
	w := newWorld(t)
	addr := freeAddress(t)
	w.app(language, addr, keyed(oldKey, "")...).start()
	w.serve(oldKey, "--app", appURL(addr)).start()
	w.ready(language)
	in := func(middle plan.Step) string {
		middle.Name = "middle"
		return w.run(language, plan.Plan{Steps: []plan.Step{{Name: "before"}, middle, {Name: "after"}}})
	}
	news := language + ".news"
	ended := in(plan.Step{})
	w.completed(ended, within)
	body, lasts := in(plan.Step{Gate: "while it moves"}), in(plan.Step{Gate: "after it moved"})
	short, long, waits := in(plan.Step{SleepsMs: 2_000}), in(plan.Step{SleepsMs: 10_000}), in(plan.Step{WaitsFor: news})
	w.began(body, "middle", 1)
	w.began(lasts, "middle", 1)
	for _, run := range []string{short, long, waits} {
		eventually(t, within, "the run to wait", func() bool { return w.get(run).Status == "waiting" })
	}

	w.server.signal(syscall.SIGTERM)
	if code := w.server.exit(); code != 0 {
		t.Fatalf("the server exited with %d", code)
	}
	w.open("while it moves")
	w.mark(plan.MarkEnded, body, "middle", 1)
	before := w.server.args[4]
	migrate := &process{t: t, name: "the move", path: built.server, args: []string{"migrate", "--from", before, "--to", url}}
	migrate.tidy()
	migrate.launch()
	if code := migrate.exit(); code != 0 {
		t.Fatalf("the move exited with %d:\n%s", code, migrate.lastWords())
	}
	refused := &process{t: t, name: "a server on the old directory", path: built.server, args: w.server.args, env: w.server.env}
	refused.tidy()
	refused.launch()
	if code := refused.exit(); code != 1 {
		t.Errorf("a server on the directory that was moved exited with %d:\n%s", code, refused.lastWords())
	}

	w.serve(oldKey, "--store", url, "--app", appURL(addr)).start()
	w.ready(language)
	w.open("after it moved")
	w.completed(in(plan.Step{}), within)
	if got := w.get(waits); got.Status != "waiting" {
		t.Errorf("the run that waits is %s", got.Status)
	}
	if _, err := w.api.Emit(t.Context(), client.Event{Event: news, Payload: asJSON(t, 1)}); err != nil {
		t.Fatal(err)
	}
	for run, bodies := range map[string]map[string]int{
		ended: {"before": 1, "middle": 1, "after": 1}, body: {"before": 1, "middle": 1, "after": 1}, lasts: {"before": 1, "middle": 1, "after": 1},
		short: {"before": 1, "after": 1}, long: {"before": 1, "after": 1}, waits: {"before": 1, "after": 1},
	} {
		w.completed(run, time.Minute)
		w.bodies(run, bodies)
	}
}
