package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	envChaosKills = "E2E_CHAOS_KILLS"
	chaosKillsStd = 60

	// Worlds are killed beside one another: each spends most of its time waiting. The short form leaves a core to other tests.
	worldsShort, worldsLong = 2, 4
	// violationsShown bounds what a failed test prints.
	violationsShown = 20
)

// The server and both apps are killed and frozen at random, each by itself, while clients start, emit, read, wait, cancel and replay.
// Marks that bodies leave outside say what ran; the clients' record of what they were answered is checked as one history.
func TestWhateverIsKilledOrFrozenNothingIsLostOrRepeated(t *testing.T) {
	t.Parallel()
	kills, worlds, say := number(t, envChaosKills, chaosKillsStd), worldsShort, t.Logf
	if os.Getenv(envChaosKills) != "" { // somebody watches
		worlds, say = worldsLong, func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	}
	seed := number(t, envSeed, int(time.Now().UnixNano()%1_000_000))
	say("seed %d: make chaos KILLS=%d SEED=%d draws the same faults and requests again", seed, kills, seed)
	var mu sync.Mutex
	var played []*chaos
	for i := range worlds {
		t.Run(fmt.Sprintf("seed %d", seed+i), func(t *testing.T) {
			t.Parallel()
			c := newSingle(t, chaosSpec{seed: uint64(seed + i), kills: (kills + worlds - 1) / worlds, say: say, pickUpMax: singlePickUpMax})
			c.play()
			mu.Lock()
			defer mu.Unlock()
			played = append(played, c)
		})
	}
	t.Cleanup(func() { // once all worlds are through
		if len(played) < worlds {
			t.Errorf("%d of %d worlds did not come to their end: see there", worlds-len(played), worlds)
		} else {
			sentence(t, played, say, fmt.Sprintf("make chaos KILLS=%d SEED=%d", kills, seed))
		}
	})
}

// sentence prints the report, and the violations with what to run again.
func sentence(t *testing.T, played []*chaos, say func(string, ...any), again string) {
	t.Helper()
	slices.SortFunc(played, func(a, b *chaos) int { return cmp.Compare(a.seed, b.seed) })
	lines := reportOf(played)
	shown := 0
	for _, c := range played {
		for _, violation := range c.violations {
			if shown++; shown <= violationsShown {
				t.Errorf("%s\nTo run it again: %s (it was in the world of seed %d)", strings.TrimSpace(violation), again, c.seed)
			}
		}
	}
	for _, line := range lines {
		say("%s", line)
	}
}

// sum is what all worlds did together.
type sum struct {
	counts               map[string]int // of what clients did and what became of it
	operations           map[string]int
	pickUps, calmPickUps []time.Duration
	lasted, settled      time.Duration // the longest of the worlds'
}

func sumOf(played []*chaos) sum {
	s := sum{counts: map[string]int{}, operations: map[string]int{}}
	for _, c := range played {
		j := c.judged
		for what, n := range map[string]int{
			"kills": c.killed(), "runs": j.runs, "steps": j.steps, "repeated": j.repeated, "lost": j.lost, "violations": len(c.violations),
			"bodies": j.bodies, "cut by kill": j.cutByKill, "cut by stop": j.cutByFreeze, "cut off": j.cutOffs,
			"started": int(c.counts.started.Load()), "emits": int(c.counts.emits.Load()), "hooks": int(c.counts.hooks.Load()),
			"cancels": int(c.counts.cancels.Load()), "reads": int(c.counts.reads.Load()), "replays": int(c.counts.replays.Load()),
			"second starts": int(c.counts.found.Load()), "tries": int(c.caller.tries.Load()), "no answer": int(c.caller.lost.Load()),
			"parts": c.verdict.Parts, "unanswered": c.verdict.Lost,
		} {
			s.counts[what] += n
		}
		for _, status := range []string{"completed", "failed", "cancelled"} {
			s.counts[status] += j.status[status]
		}
		for kind, n := range c.verdict.Operations {
			s.operations[kind] += n
		}
		s.pickUps, s.calmPickUps = append(s.pickUps, j.pickUps...), append(s.calmPickUps, j.calmPickUps...)
		s.lasted, s.settled = max(s.lasted, c.lasted), max(s.settled, c.settled)
	}
	return s
}

// reportOf says what was done and what was found, whatever it is. Kinds of work that never happened are violations of the first world.
func reportOf(played []*chaos) (lines []string) {
	for _, what := range []string{"started", "second starts", "emits", "hooks", "cancels", "replays", "reads", "completed", "failed", "cancelled", "cut by kill"} {
		if sumOf(played).counts[what] == 0 {
			played[0].violate("nothing happened of the kind %q", what)
		}
	}
	s := sumOf(played)
	n := s.counts
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	say("worlds: %d, on %d cores: %v of faults; the last run ended %v after the last fault", len(played), runtime.NumCPU(), s.lasted.Round(time.Second), s.settled.Round(time.Millisecond))
	for i, v := range played[0].victims {
		counts := map[card]int{}
		for _, c := range played {
			for kind, injected := range c.victims[i].counts {
				counts[kind] += injected
			}
		}
		say("%s", v.tell(counts))
	}
	say("clients: %d starts made a run, %d found one, %d replays; %d emits, %d webhooks, %d cancellations, %d reads; %d tries, of which %d had no answer",
		n["started"], n["second starts"], n["replays"], n["emits"], n["hooks"], n["cancels"], n["reads"], n["tries"], n["no answer"])
	say("runs: %d completed, %d failed (%d of them cut off %d times in a row), %d cancelled", n["completed"], n["failed"], n["cut off"], cutsMax, n["cancelled"])
	say("bodies: %d ran; %d of them ran again since their process was killed, %d since it was frozen for %v or longer", n["bodies"], n["cut by kill"], n["cut by stop"], cutMin)
	say("pick-ups: %d; from the kill to the body's next start %s; from when server and app worked again %s", len(s.pickUps), spread(s.pickUps), spread(s.calmPickUps))
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(s.operations)) {
		kinds = append(kinds, fmt.Sprintf("%d of a %s", s.operations[kind], kind))
	}
	say("history: %d registers, runs and steps were checked; operations: %s; %d without an answer", n["parts"], strings.Join(kinds, ", "), n["unanswered"])
	if calm := played[0].rates.calm; calm > 0 {
		say("rate: %.1f runs a second in calm, %.1f under faults: %.0f %%", calm, played[0].rates.held, 100*played[0].rates.held/calm)
	}
	say("kills=%d runs=%d steps=%d repeated=%d lost=%d violations=%d", n["kills"], n["runs"], n["steps"], n["repeated"], n["lost"], n["violations"])
	return lines
}

// spread gives the median, the 99th percentile and the longest of durations.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "not measured"
	}
	slices.Sort(all)
	at := func(share float64) time.Duration {
		return all[int(share*float64(len(all)-1))].Round(10 * time.Millisecond)
	}
	return fmt.Sprintf("p50 %v, p99 %v, longest %v", at(0.5), at(0.99), at(1))
}
