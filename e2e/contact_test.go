package e2e

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/nelkap/nelkap/e2e/plan"
	"github.com/nelkap/nelkap/internal/apitype"
)

// shortLease is the least that the server takes: heartbeats come every 1.67 s then, a lost connection's question takes two of them.
const (
	shortLease = 5 * time.Second
	question   = 2 * shortLease / 3
)

// between is a world with proxies in both directions: the server calls the app through in, the app saves through out.
type between struct {
	*world
	app     *process
	address string // the app's own
	in, out *proxy
}

func newBetween(t *testing.T, language string, flags ...string) *between {
	t.Helper()
	w := newWorld(t)
	b := &between{world: w, address: freeAddress(t)}
	b.in, b.out = newProxy(t, b.address), newProxy(t, w.addr)
	b.app = w.app(language, b.address, "NELKAP_URL=http://"+b.out.addr)
	b.app.start()
	w.dev(append(flags, "--app", appURL(b.in.addr))...).start()
	w.ready(language)
	return b
}

func TestAFrozenAppIsSuperseded(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		b := newBetween(t, language)
		b.in.gateway(2 * time.Second)
		id := b.run(language, three)
		old := b.began(id, "two", 1)
		b.app.signal(syscall.SIGSTOP)
		// Another process of the app takes over its address, as another instance does behind a host's gateway.
		frozen, address := b.app, freeAddress(t)
		b.world.app(language, address).start()
		b.in.to(address)
		b.in.gateway(0)
		// The gateway answers 504 after 2 s; the app is not named within two intervals of 5 s; then the run is picked up.
		second := b.markWithin(2*time.Second+10*time.Second+pickUp, plan.MarkBody, id, "two", 2)
		b.openFor("gate", second.PID)
		run := b.completed(id, within)
		frozen.signal(syscall.SIGCONT)
		aborted := b.mark(plan.MarkAborted, id, "two", 1)
		t.Logf("the old body's signal is aborted: %s", aborted.Why)
		if aborted.PID != old.PID || aborted.ID != old.ID {
			t.Errorf("the mark %+v is not the frozen body's", aborted)
		}
		b.mark(plan.MarkEnded, id, "two", 2)
		pass(t.Context(), time.Second) // a save of the old body's result would come now
		b.bodies(id, map[string]int{"one": 1, "two": 2, "three": 1})
		if two := b.results(id)["two"]; two.PID != second.PID {
			t.Errorf("step two has the result of process %d, not of %d, whose call is the newer one", two.PID, second.PID)
		}
		b.unchanged(run)
	})
}

// unchanged checks that an ended run is as it was.
func (w *world) unchanged(run apitype.Run) {
	w.t.Helper()
	if now := asJSON(w.t, w.get(run.ID)); string(now) != string(asJSON(w.t, run)) {
		w.t.Errorf("the run changed after its end: %s, was %s", now, asJSON(w.t, run))
	}
}

func TestACutConnectionRepeatsNothingWhileTheAppLives(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		for _, polls := range []bool{false, true} {
			b := newBetween(t, language, "--lease", shortLease.String())
			id := b.run(language, three)
			b.began(id, "two", 1)
			if polls {
				pass(t.Context(), time.Second) // a call is named in polls once it is half a second old
			}
			b.in.cut()
			pass(t.Context(), question+time.Second)
			b.bodies(id, map[string]int{"one": 1, "two": 1})
			if status := b.get(id).Status; status != "running" {
				t.Errorf("the run is %s while its app plays it", status)
			}
			b.open("gate")
			b.completed(id, within)
			b.bodies(id, map[string]int{"one": 1, "two": 1, "three": 1})
			if n := b.in.calls.Load(); n == 0 {
				t.Error("no call went through the proxy: it was not in between")
			}
			b.results(id)
		}
	})
}

func TestUnsavedResultsTravelInTheAnswer(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		b := newBetween(t, language, "--lease", shortLease.String())
		id := b.run(language, three)
		b.began(id, "two", 1)
		b.out.take(refusing)
		b.out.cut()
		b.open("gate")
		// No save gets through any more. The answer does, and what is not saved with it; then the next step is called for, whose
		// result comes in the same way.
		b.completed(id, 4*shortLease)
		b.bodies(id, map[string]int{"one": 1, "two": 1, "three": 1})
		b.results(id)
	})
}

func TestRefusedContactRepeatsOnlyTheUnsavedStep(t *testing.T) {
	inEach(t, func(t *testing.T, language string) { noContact(t, language, refusing) })
}

func TestSilentContactRepeatsOnlyTheUnsavedStep(t *testing.T) {
	inEach(t, func(t *testing.T, language string) { noContact(t, language, holding) })
}

// The app is frozen while the server starts again and asks who plays what; then the server is, until the time to answer is over. What
// the app has said meanwhile is read when the server goes on, and its timers are late by then.
func TestAFrozenServerCutsNothing(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		w, app := newSimple(t, language, "--lease", shortLease.String())
		id := w.run(language, three)
		w.began(id, "two", 1)
		app.signal(syscall.SIGSTOP)
		w.server.kill()
		w.server.start()
		w.server.signal(syscall.SIGSTOP)
		app.signal(syscall.SIGCONT)
		pass(t.Context(), question+time.Second)
		w.server.signal(syscall.SIGCONT)
		pass(t.Context(), question) // a pick-up would come now
		w.bodies(id, map[string]int{"one": 1, "two": 1})
		w.open("gate")
		w.completed(id, within)
		w.bodies(id, map[string]int{"one": 1, "two": 1, "three": 1})
		w.results(id)
	})
}

// noContact has neither saves nor the answer get through, until the next call has begun.
func noContact(t *testing.T, language string, w way) {
	b := newBetween(t, language, "--lease", shortLease.String())
	id := b.run(language, three)
	first := b.began(id, "two", 1)
	b.out.take(w)
	b.out.cut()
	b.in.lose()
	lost := time.Now()
	calls := b.in.calls.Load()
	b.openFor("gate", first.PID)
	eventually(t, shortLease+pickUp, "the next call", func() bool { return b.in.calls.Load() > calls })
	took := time.Since(lost)
	t.Logf("picked up %v after the last contact", took.Round(10*time.Millisecond))
	if took < shortLease-question {
		t.Errorf("the run was picked up %v after the last contact, before its lease of %v had ended", took, shortLease)
	}
	b.bodies(id, map[string]int{"one": 1, "two": 1}) // after a cut, a start is recorded before its body (C13)
	b.out.take(through)
	second := b.began(id, "two", 2)
	if second.Attempt != 1 {
		t.Errorf("the step repeats as attempt %d: a cut uses up no attempt", second.Attempt)
	}
	b.open("gate")
	b.completed(id, within)
	b.bodies(id, map[string]int{"one": 1, "two": 2, "three": 1})
	b.results(id)
}

func TestSavesSwallowedForLessThanALeaseRepeatNothing(t *testing.T) {
	inEach(t, func(t *testing.T, language string) { swallowed(t, language, shortLease-2*time.Second) })
}

// The answer, which gets through, carries what is unsaved before the lease ends.
func TestSavesSwallowedForMoreThanALeaseRepeatNothing(t *testing.T) {
	inEach(t, func(t *testing.T, language string) { swallowed(t, language, shortLease+2*time.Second) })
}

// swallowed has all that the app sends swallowed for a while: its connections stay open, and what went into them is never answered, as
// when a router forgets them. What was swallowed may still reach the server, late and twice.
func swallowed(t *testing.T, language string, silence time.Duration) {
	b := newBetween(t, language, "--lease", shortLease.String())
	id := b.run(language, three)
	b.began(id, "two", 1)
	b.out.take(holding)
	b.open("gate")
	b.mark(plan.MarkEnded, id, "two", 1)
	pass(t.Context(), silence)
	saved := len(b.steps(id))
	b.out.lose()
	b.out.take(through)
	again := time.Now()
	b.completed(id, within)
	t.Logf("%d steps were saved after %v of silence; the run ended %v later", saved, silence, time.Since(again).Round(10*time.Millisecond))
	b.bodies(id, map[string]int{"one": 1, "two": 1, "three": 1})
	b.results(id)
}

// plainAnswer is a handler that answers as something that is no Nelkap app does.
func plainAnswer(status int, header map[string]string, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		w.Write([]byte(body))
	})
}
