//go:build !race && unix

// The race detector makes the runtime choose among goroutines at random, on purpose: then two nodes, or two requests of one node, that
// act at one instant have no order.

package sim_test

import (
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/sim"
)

// undisturbedMax is for how long, in all, the machine may take the processor from a play that is to prove something: the runtime has a
// goroutine give way after 10 ms by the machine's clock, whoever spent them, and two that are ready then change places.
const undisturbedMax = 8 * time.Millisecond

// playsMax is how often a pair is played that differs, and that the machine disturbed.
const playsMax = 100

func TestASeedGivesTheSameTraceByteForByte(t *testing.T) {
	short(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection also makes goroutines give way: between plays alone
	for _, form := range sim.Forms {
		t.Run(string(form), func(t *testing.T) {
			for seed := *fromFlag; seed < *fromFlag+uint64(*sameFlag); seed++ {
				sameTrace(t, seed, form)
			}
		})
	}
}

// sameTrace plays a seed twice, and again where the traces differ for what may be the machine's doing.
func sameTrace(t *testing.T, seed uint64, form sim.Form) {
	t.Helper()
	var first, second []string
	for range playsMax {
		one, disturbed := traceOf(t, seed, form)
		two, again := traceOf(t, seed, form)
		if one == two {
			return
		}
		first, second = strings.Split(one, "\n"), strings.Split(two, "\n")
		t.Logf("seed %d differs; the machine took %v and %v", seed, disturbed, again)
		if max(disturbed, again) < undisturbedMax {
			break
		}
	}
	at := 0
	for at < min(len(first), len(second)) && first[at] == second[at] {
		at++
	}
	t.Errorf("seed %d: the second trace differs from line %d on; before it:\n%s\nthe first:\n%s\nthe second:\n%s", seed, at+1,
		strings.Join(first[max(0, at-8):at], "\n"), strings.Join(first[at:min(at+4, len(first))], "\n"), strings.Join(second[at:min(at+4, len(second))], "\n"))
}

// traceOf is the trace of a play, and for how long the play had no processor.
func traceOf(t *testing.T, seed uint64, form sim.Form) (trace string, disturbed time.Duration) {
	t.Helper()
	runtime.GC()
	startedAt, startedCPU := time.Now(), processorTime(t)
	r := playAs(t, seed, "memory", sim.NewReport(), form)
	disturbed = time.Since(startedAt) - (processorTime(t) - startedCPU)
	return r.Trace(), disturbed
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
