package workflow

import (
	"fmt"
	"slices"
	"strings"
)

// phases in the order in which a run goes through them.
var phases = []Phase{PhaseQueued, PhaseRunning, PhaseWaiting, PhaseEnding, PhaseEnded}

// Diagram writes the transition table as a page: which input is allowed in which phase. Where an input leads depends on the run
// and is said at its function in apply.go.
func Diagram() string {
	var b strings.Builder
	b.WriteString("# What happens to a run\n\nMade from the transition table in `internal/workflow/apply.go` (`go generate ./...`). An input that a phase does not allow is an\nerror that names both, and changes nothing.\n\n| input |")
	for _, p := range phases {
		fmt.Fprintf(&b, " %s |", p)
	}
	b.WriteString("\n| - |" + strings.Repeat(" - |", len(phases)) + "\n")
	var inputs []string
	for name := range table {
		inputs = append(inputs, name)
	}
	slices.Sort(inputs)
	for _, name := range inputs {
		fmt.Fprintf(&b, "| %s |", name)
		for _, p := range phases {
			if table[name][p] != nil {
				b.WriteString(" yes |")
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
	b.WriteString(drawing)
	return b.String()
}

// drawing is checked by a test: it has an arrow for every change of phase that random runs make, and no other.
const drawing = `
` + "```mermaid" + `
stateDiagram-v2
  [*] --> queued
` + arrows + "```\n"

const arrows = `  queued --> running: begin, revive
  queued --> waiting: end
  queued --> ended: cancel, end, timer
  running --> queued: cut, end, void
  running --> waiting: end, void
  running --> ending: cancel, timer
  running --> ended: cancel, cut, end, skip
  waiting --> running: revive
  waiting --> queued: cancel, end, news, timer
  waiting --> ended: cancel, end, timer
  ending --> queued: cut, end, timer, void
  ending --> ended: cancel, cut, end, timer, void
`
