package schedule

import (
	"fmt"
	"slices"
	"time"
)

// CatchUp is what happens to ticks that passed while nobody could start their runs (D2).
type CatchUp string

// The rules of catching up.
const (
	CatchUpNone CatchUp = "none" // no run for a tick that is later than Grace
	CatchUpLast CatchUp = "last" // one run, for the latest tick
	CatchUpAll  CatchUp = "all"  // a run for each tick, up to TicksMax
)

const (
	// Grace is how late a tick may be and still be no missed one: as long as a tick can be the latest of any schedule. A restart that
	// takes seconds, or a busy second, loses none, whatever the rule.
	Grace = time.Minute
	// TicksMax bounds how many ticks one look makes up, and how many it counts as skipped (D2).
	TicksMax = 1_000
)

// ParseCatchUp reads a rule. An empty text means CatchUpNone.
func ParseCatchUp(text string) (CatchUp, error) {
	switch rule := CatchUp(text); rule {
	case "":
		return CatchUpNone, nil
	case CatchUpNone, CatchUpLast, CatchUpAll:
		return rule, nil
	default:
		return "", fmt.Errorf("catchUp can't be %.20q: write none, last or all", text)
	}
}

// Due is what a schedule owes at a moment.
type Due struct {
	// Ticks are to start a run each. The oldest comes first.
	Ticks []time.Time
	// Skipped is how many other ticks have passed, which start none: what the rule leaves out, or TicksMax does. It stops at TicksMax.
	Skipped int
	// Cursor goes into the next call. It is the latest tick of all that have passed, also of those that were skipped; without any, it
	// is the cursor that was given.
	Cursor time.Time
	// Ahead is how far the cursor is ahead of now, or 0. No tick is due until the clock has passed it, so a clock that was wrong for a
	// moment can hold a schedule up: the caller reports what is more than a step of the clock (D2).
	Ahead time.Duration
}

// Due returns which ticks are due at now: those after cursor and not after now, by the rule. The cursor is that of the last call. For a
// schedule's first registration and for a changed expression it is the moment of that change, since those don't catch up (D2). A call
// that is repeated with the same cursor gives ticks that are the same instants, so a tick that is stored by schedule and instant starts
// one run. A cursor long ago costs no more than one of forty-one years, and no tick before that is looked at.
func (s Schedule) Due(cursor, now time.Time, rule CatchUp) Due {
	due := Due{Cursor: cursor}
	if cursor.After(now) {
		due.Ahead = cursor.Sub(now)
		return due
	}
	keep := map[CatchUp]int{CatchUpLast: 1, CatchUpAll: TicksMax}[rule]
	s.backwards(cursor, now, func(tick time.Time) bool {
		if due.Cursor.Equal(cursor) {
			due.Cursor = tick
			if now.Sub(tick) < Grace {
				keep = max(keep, 1)
			}
		}
		switch {
		case len(due.Ticks) < keep:
			due.Ticks = append(due.Ticks, tick)
		default:
			due.Skipped++
		}
		return due.Skipped < TicksMax
	})
	slices.Reverse(due.Ticks)
	return due
}

// backwards calls yield with the ticks that are after one instant and not after another, the latest first, until it says no.
func (s Schedule) backwards(after, until time.Time, yield func(time.Time) bool) {
	earliest := until.AddDate(-horizonYears, 0, 0)
	if after.After(earliest) {
		earliest = after
	}
	for until.After(earliest) {
		from := until.Add(-day) // 1,440 ticks at most
		if from.Before(earliest) {
			from = earliest
		}
		var ticks []time.Time
		for tick, ok := s.next(from, until); ok; tick, ok = s.next(tick, until) {
			ticks = append(ticks, tick)
		}
		for _, tick := range slices.Backward(ticks) {
			if !yield(tick) {
				return
			}
		}
		until = from
	}
}
