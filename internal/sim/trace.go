package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// trace is what happened, in order.
type trace struct {
	mu    sync.Mutex
	start time.Time
	lines []traceLine
}

type traceLine struct {
	at                time.Duration
	actor, what, more string
}

func (t *trace) add(actor, what, more string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, traceLine{time.Since(t.start), actor, what, more})
}

// String is the trace, a line for each thing that happened. What happens at one instant has no order.
func (t *trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortStableFunc(t.lines, func(a, b traceLine) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.actor, b.actor), cmp.Compare(a.what, b.what), cmp.Compare(a.more, b.more))
	})
	var b strings.Builder
	for _, l := range t.lines {
		fmt.Fprintf(&b, "%15.9f %-8s %s", l.at.Seconds(), l.actor, l.what)
		if l.more != "" {
			b.WriteString(": " + l.more)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
