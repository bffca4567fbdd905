package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// report prints the figures, and the two ratios that are aimed at.
func report(sync figure, echo, runs []figure) error {
	fmt.Printf("%d cores, %s; %d steps of %d bytes per run, one after the other; each acknowledgement is synced\n\n", runtime.NumCPU(), runtime.Version(), stepsPerRun, resultBytes)
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "append and fsync\tp50 %s\tp99 %s\t\n\n", round(sync.quantile(0.5)), round(sync.quantile(0.99)))
	fmt.Fprintln(w, "echo: clients\trequests/s\tp50\tp99\tCPU per request\t")
	for _, f := range echo {
		fmt.Fprintf(w, "%d\t%.0f\t%s\t%s\t%s\t\n", f.flight, f.rate(), round(f.quantile(0.5)), round(f.quantile(0.99)), round(f.server/time.Duration(f.done)))
	}
	fmt.Fprintln(w, "\nruns in flight\tsteps/s\tp50 of a run\tp99\tp50 of a step\tp99\tserver CPU per step\tapp CPU per step\tchanges per commit\tsyncs/s\t")
	for _, f := range runs {
		steps := time.Duration(f.done * stepsPerRun)
		fmt.Fprintf(w, "%d\t%.0f\t%s\t%s\t%s\t%s\t%s\t%s\t%.1f\t%.0f\t\n", f.flight, f.rate()*stepsPerRun, round(f.quantile(0.5)), round(f.quantile(0.99)),
			round(quantile(f.steps, 0.5)), round(quantile(f.steps, 0.99)), round(f.server/steps), round(f.app/steps), float64(f.rows)/float64(max(f.commits, 1)), float64(f.commits)/f.took.Seconds())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	best := slices.MaxFunc(echo, func(a, b figure) int { return int(a.rate() - b.rate()) }).rate()
	last, first := runs[len(runs)-1], runs[0]
	floor := echo[0].quantile(0.5) + sync.quantile(0.5)
	step, share := quantile(first.steps, 0.5), first.quantile(0.5)/stepsPerRun
	fmt.Printf("\nat %d in flight: %.2f steps per request of the echo's best (aim: at least 0.8)\n", last.flight, last.rate()*stepsPerRun/best)
	fmt.Printf("at %d in flight: a step takes %s, %.2f times echo and fsync together, %s (aim: at most 2); a tenth of its run, with its start and end, %s, %.2f times\n",
		first.flight, round(step), float64(step)/float64(floor), round(floor), round(share), float64(share)/float64(floor))
	return nil
}

func round(d time.Duration) string {
	if d > 10*time.Millisecond {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}
