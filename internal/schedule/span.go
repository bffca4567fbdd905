package schedule

import "time"

// shiftMax is more than any clock can be set back or forward: zones lie between twelve hours behind UTC and fourteen ahead of it.
const shiftMax = 26 * time.Hour

const day = 24 * time.Hour

// A span is a stretch of time in which a zone's distance from UTC is the same: in it, wall time and instants go side by side. A zero
// start or end means that there is none.
type span struct {
	start, end time.Time
	offset     time.Duration
}

// spanAt returns the span that an instant is in, which ends after it. Years for which a zone has a rule and no table also end spans,
// where nothing changes.
func spanAt(zone *time.Location, at time.Time) span {
	local := at.In(zone)
	start, end := local.ZoneBounds()
	if !end.IsZero() && !end.After(at) {
		// The last day of a leap year, to which ZoneBounds says that it was over when it began (golang/go#81583).
		end = at.UTC().Truncate(day).Add(day)
	}
	_, seconds := local.Zone()
	return span{start, end, time.Duration(seconds) * time.Second}
}

// wall is what a clock on the wall shows at an instant. It is kept as if it were UTC, where every day has 24 hours.
func (s span) wall(at time.Time) time.Time { return at.UTC().Add(s.offset) }

// instant is when a clock on the wall shows a time.
func (s span) instant(wall time.Time) time.Time { return wall.Add(-s.offset) }

// cameBefore tells whether a clock on the wall showed a time already before an instant at which a span starts.
func cameBefore(zone *time.Location, wall, start time.Time) bool {
	for at := start; !at.IsZero() && start.Sub(at) < shiftMax; {
		earlier := spanAt(zone, at.Add(-1))
		if wall.Before(earlier.wall(at)) && (earlier.start.IsZero() || !wall.Before(earlier.wall(earlier.start))) {
			return true
		}
		at = earlier.start
	}
	return false
}
