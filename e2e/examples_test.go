package e2e

import (
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/client"
)

// The durations of the examples are shortened by their own flags. Nothing else of them is changed.

func TestExampleReminder(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		x := play(t, language, "reminder", "--pause", "2s")
		ada := x.emit("user.registered", map[string]string{"id": "u_1", "email": "ada@example.com"}, "welcome user")
		bob := x.emit("user.registered", map[string]string{"id": "u_2", "email": "bob@example.com"}, "welcome user")
		x.rests(ada)
		x.rests(bob)
		x.app.kill()
		x.emit("profile.completed", map[string]string{"userId": "u_2"}, "")
		x.start("--pause", "2s")
		x.ends(ada, "was reminded")
		x.ends(bob, "has acted")
		x.prints(map[string]int{
			"email to ada@example.com: Welcome": 1, "email to ada@example.com: Your profile": 1,
			"email to bob@example.com: Welcome": 1, "email to bob@example.com: Your profile": 0,
		})
	})
}

var decisionLink = regexp.MustCompile(`http://\S+\?decision=approved`)

func TestExampleApproval(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		x := play(t, language, "approval")
		expense := map[string]any{"by": "ada@example.com", "amount": 120}
		id := x.run("approve expense", expense)
		x.rests(id)
		link := string(decisionLink.Find(x.app.linesWith("?decision=approved")))
		x.app.kill()
		// Whoever looks at the link decides nothing yet.
		if status, page := ask(t, http.MethodGet, link, nil, nil); status != http.StatusOK || !strings.Contains(page, "approved") {
			t.Errorf("the link shows %d %s", status, page)
		}
		if status, said := confirm(t, link); status != http.StatusOK {
			t.Fatalf("the decision was answered %d %s", status, said)
		}
		x.start()
		x.ends(id, "approved")
		x.prints(map[string]int{"email to manager": 1, "Your expense of 120: approved.": 1})
		if status, _ := confirm(t, link); status != http.StatusGone {
			t.Errorf("a second decision was answered %d", status)
		}

		x.app.kill()
		x.start("--timeout", "300ms")
		x.ends(x.run("approve expense", expense), "timed out")
		x.prints(map[string]int{"email to manager": 2, "Your expense of 120: timed out.": 1})
	})
}

// confirm presses the button of a decision's page.
func confirm(t *testing.T, link string) (status int, said string) {
	t.Helper()
	return ask(t, http.MethodPost, link, []byte("decision=approved"), http.Header{"Content-Type": {"application/x-www-form-urlencoded"}})
}

func TestExampleWaitForPayment(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		x := play(t, language, "wait-for-payment")
		order := func(id string) string { return x.emit("order.placed", map[string]string{"id": id}, "ship order") }
		paid, cancelled, left := order("o_1"), order("o_2"), order("o_3")
		for _, id := range []string{paid, cancelled, left} {
			x.rests(id)
		}
		x.app.kill()
		x.emit("payment.updated", map[string]string{"orderId": "o_1", "status": "failed"}, "")
		x.emit("payment.updated", map[string]string{"orderId": "o_1", "status": "paid"}, "")
		x.emit("order.cancelled", map[string]string{"orderId": "o_2"}, "")
		x.start()
		x.ends(paid, "shipped")
		x.ends(cancelled, "cancelled")
		if run := x.get(left); run.Status != "waiting" {
			t.Errorf("the order that nobody has paid is %s", run.Status)
		}
		x.emit("sale.stopped", map[string]string{"reason": "sold out"}, "")
		if run := x.end(left, within); run.Status != "cancelled" {
			t.Errorf("when the sale was stopped its order ended as %s", run.Status)
		}

		x.app.kill()
		x.start("--timeout", "300ms")
		x.ends(order("o_4"), "nobody paid")
		x.prints(map[string]int{
			"order o_1 is shipped": 1, "order o_2 is released: cancelled": 1, "order o_3": 0, "order o_4 is released: nobody paid": 1,
		})
	})
}

func TestExampleFanOut(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		x := play(t, language, "fan-out", "--seconds-per-kilo", "100") // the anvil would take an hour
		id := x.run("weigh parcels", []map[string]any{
			{"name": "anvil", "grams": 36_000}, {"name": "feather", "grams": 1}, {"name": "ghost", "grams": 0}, {"name": "books", "grams": 2},
		})
		x.awaits("anvil is on the scale")
		statuses := func() []string {
			var all []string
			for _, child := range x.runs("weigh parcel") {
				all = append(all, child.Status)
			}
			return slices.Sorted(slices.Values(all))
		}
		eventually(t, within, "all children but the anvil's to end", func() bool {
			return slices.Equal(statuses(), []string{"completed", "completed", "failed", "running"})
		})
		x.app.kill()
		x.start("--seconds-per-kilo", "0")
		x.ends(id, map[string]any{"grams": 36_003, "failed": []string{"weigh ghost: the scale shows nothing"}})
		x.prints(map[string]int{
			"anvil is on the scale": 2, "feather is on the scale": 1, "ghost is on the scale": 1, "books is on the scale": 1,
		})
		if got := statuses(); len(got) != 4 {
			t.Errorf("there are %d children: %v", len(got), got)
		}
	})
}

func TestExampleRace(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		x := play(t, language, "race", "--pause", "2s")
		id := x.run("book ride", "the station")
		x.rests(id)
		winner := decode[struct{ Provider string }](t, x.steps(id)[0].Output).Provider
		x.app.kill()
		x.start("--pause", "2s")
		x.completed(id, within)
		x.prints(map[string]int{"asking north": 1, "asking south": 1, "booked with " + winner: 1, "booked with": 1})
	})
}

// Schedules tick each minute at most, which is too long to wait for here: the server's own tests play with the clock. This one
// looks when the next ticks are due, and starts a run with a tick as a schedule would.
func TestExampleNightlyReport(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		x := play(t, language, "nightly-report")
		wish := map[string]string{"userId": "u_1", "schedule": "0 7 * * 1-5", "timezone": "America/New_York"}
		for _, at := range []string{"0 7 * * 1-5", "30 6 * * *"} {
			wish["schedule"] = at
			x.completed(x.emit("report.wanted", wish, "plan report"), within)
		}
		list, err := x.api.Schedules(t.Context(), client.Page{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, s := range list.Data {
			zone, err := time.LoadLocation(s.Timezone)
			if err != nil || s.NextAt == nil {
				t.Fatalf("a schedule %s: %v", asJSON(t, s), err)
			}
			got[s.Workflow] = s.NextAt.In(zone).Format("15:04") + " " + s.Timezone
		}
		if want := map[string]string{"nightly report": "02:00 Europe/Berlin", "user report": "06:30 America/New_York"}; !maps.Equal(got, want) {
			t.Errorf("the next ticks are %v, want %v", got, want)
		}
		tick := map[string]any{"schedule": "30 6 * * *", "time": "2026-03-02T11:30:00.000Z", "payload": map[string]string{"userId": "u_1"}}
		x.completed(x.run("user report", tick), within)
		x.completed(x.run("nightly report", tick), within)
		x.prints(map[string]int{"the report of u_1, due 2026-03-02T11:30:00": 1, "the report of the night, due 2026-03-02T11:30:00": 1})
	})
}

func TestExampleOnePerCustomer(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		x := play(t, language, "one-per-customer")
		customer := map[string]string{"id": "c_1", "email": "Ada+shop@example.com"}
		first := x.emit("customer.registered", customer, "send gift")
		x.completed(first, within)
		if run := x.end(x.emit("customer.registered", customer, "send gift"), within); run.Status != "skipped" {
			t.Errorf("the second run for a customer ended as %s", run.Status)
		}
		x.ends(x.run("start trial", customer), "started")
		customer["email"] = "ada@example.com"
		x.ends(x.run("start trial", customer), "refused")
		x.prints(map[string]int{"a gift for c_1": 1, "a trial for ada@example.com": 1, "ada@example.com has had its trial": 1})
	})
}

func TestExampleCarefulCharge(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		outside := filepath.Join(t.TempDir(), "outside")
		flags := []string{"--outside", outside, "--seconds", "3600"} // no answer comes before the kill
		x := play(t, language, "careful-charge", flags...)
		id := x.run("fulfil", map[string]any{"id": "o_1", "amount": 1999})
		for _, done := range []string{"charge ", "parcel o_1", "print a card for order o_1"} {
			x.awaits(done)
			x.app.kill()
			x.start(flags...)
		}
		x.completed(id, 2*within)
		lines, err := os.ReadFile(outside)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Split(strings.TrimSpace(string(lines)), "\n"); len(got) != 3 {
			t.Errorf("three things were to be done, and these were: %q", got)
		}
		x.prints(map[string]int{"please look whether there is a card for order o_1": 1})

		x.app.kill()
		x.start("--outside", outside, "--seconds", "0")
		x.completed(x.run("fulfil", map[string]any{"id": "o_2", "amount": 2999}), within)
		x.prints(map[string]int{"please look": 1, "print a card for order o_2": 1})
	})
}

func TestExampleTrip(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		x := play(t, language, "trip", "--seconds", "0")
		trip := func(id string, price int) string {
			return x.run("book trip", map[string]any{"id": id, "customer": id + "@example.com", "price": price})
		}
		x.ends(trip("t_1", 300), "booked")

		x.app.kill()
		x.start("--seconds", "3600") // no answer comes before the kill
		dear := trip("t_2", 9000)
		for _, done := range []string{"booking the flight of t_2", "booking the hotel of t_2"} {
			x.awaits(done)
			x.app.kill()
			x.start("--seconds", "1")
		}
		x.awaits("giving back the hotel of t_2")
		x.app.kill()
		x.start("--seconds", "0")
		run := x.end(dear, 2*within)
		if run.Status != "failed" || run.Error == nil || run.Error.Message != "the card is declined" {
			t.Errorf("the dear trip ended as %s", asJSON(t, run))
		}

		x.app.kill()
		x.start("--seconds", "1")
		cancelled := trip("t_3", 300)
		x.awaits("booking the flight of t_3")
		if _, err := x.api.Cancel(t.Context(), cancelled, false); err != nil {
			t.Fatal(err)
		}
		if run := x.end(cancelled, 2*within); run.Status != "cancelled" {
			t.Errorf("the cancelled trip ended as %s", run.Status)
		}
		x.prints(map[string]int{
			"giving back the hotel of t_1": 0, "giving back the hotel of t_2": 2, "giving back the flight of t_2": 1,
			"giving back the flight of t_3": 1, "booking the hotel of t_3": 0, "giving back the hotel of t_3": 0,
			"email to t_2@example.com: no trip, the card is declined": 1, "email to": 1,
		})
	})
}

func TestExampleFollowFeed(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		flags := []string{"--pause", "500ms", "--pages", "4"}
		x := play(t, language, "follow-feed", flags...)
		id := x.run("follow feed", map[string]int{"page": 1, "read": 0})
		x.awaits("reading page 3")
		x.app.kill()
		x.start(flags...)
		x.ends(id, map[string]int{"read": 12})
		x.prints(map[string]int{"reading page 2": 1, "reading page 4": 1, "item 2b is handled": 1, "item 4c is handled": 1})
		if run := x.get(id); run.Restart != 3 {
			t.Errorf("it began again %d times", run.Restart)
		}
		logs, err := x.api.Logs(t.Context(), id, client.Page{Limit: 100})
		if err != nil || len(logs.Data) != 4 {
			t.Fatalf("the log has %s, %v", asJSON(t, logs.Data), err)
		}
		for i, l := range logs.Data {
			if l.Message != "a page is done" || l.Restart != i || decode[struct{ Page int }](t, l.Fields).Page != i+1 {
				t.Errorf("line %d is %s", i, asJSON(t, l))
			}
		}
	})
}

var (
	goStart  = regexp.MustCompile(`go run ./\S+([^#\n]*)`)
	commands = regexp.MustCompile(`(?m)^../bin/nelkap ((?:emit|run|runs|schedules) .*)$`)
)

// What a page says to type works as it stands there, one line after the other.
func TestTheExamplesCommandsWork(t *testing.T) {
	t.Parallel()
	for _, idea := range ideas {
		t.Run(idea, func(t *testing.T) {
			t.Parallel()
			page := pageOf(t, filepath.Join(examplesDir, idea, "README.md"))
			flags := strings.Fields(goStart.FindStringSubmatch(page)[1])
			x := play(t, "go", idea, flags...)
			lines := commands.FindAllStringSubmatch(page, -1)
			if len(lines) == 0 {
				t.Error("the page has no command")
			}
			for _, line := range lines {
				command := exec.CommandContext(t.Context(), "sh", "-c", built.server+" "+line[1])
				command.Env = append(environment(), "NELKAP_URL="+x.url)
				if out, err := command.CombinedOutput(); err != nil {
					t.Errorf("nelkap %s: %v\n%s", line[1], err, out)
				}
			}
		})
	}
}

// A page's programs are parts of the example's own, so that what is read is what was played.
func TestTheExamplesPagesShowTheirCode(t *testing.T) {
	t.Parallel()
	folders, err := filepath.Glob(filepath.Join(examplesDir, "*", "*.ts"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range folders {
		if idea := filepath.Base(filepath.Dir(file)); !slices.Contains(ideas, idea) {
			t.Errorf("nothing plays the example %s", idea)
		}
	}
	overview := pageOf(t, filepath.Join(examplesDir, "README.md"))
	for _, idea := range ideas {
		page := pageOf(t, filepath.Join(examplesDir, idea, "README.md"))
		snippets := snippetsOf(page)
		for language, file := range map[string]string{"ts": idea + ".ts", "go": "main.go"} {
			code := trimmed(pageOf(t, filepath.Join(examplesDir, idea, file)))
			if len(snippets[language]) == 0 {
				t.Errorf("the page of %s shows nothing in %s", idea, language)
			}
			for _, snippet := range snippets[language] {
				if !strings.Contains(code, trimmed(snippet)) {
					t.Errorf("the page of %s shows what is not in %s:\n%s", idea, file, snippet)
				}
			}
		}
		for _, command := range []string{"node --import tsx " + idea + "/" + idea + ".ts", "go run ./" + idea} {
			if !strings.Contains(page, command) {
				t.Errorf("the page of %s does not say how to start it: %s", idea, command)
			}
		}
		if !strings.Contains(overview, "("+idea+")") {
			t.Errorf("examples/README.md does not list %s", idea)
		}
	}
}

// trimmed is a text without its lines' indentation.
func trimmed(text string) string {
	var lines strings.Builder
	for line := range strings.Lines(text) {
		lines.WriteString("\n" + strings.TrimSpace(line))
	}
	return lines.String() + "\n"
}

func pageOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
