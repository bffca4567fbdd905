// Package schedule reads cron expressions and computes their ticks: the instants at which a workflow's schedule starts a run.
//
// It decides which wall times an expression matches in its time zone, which instants those are on days when clocks are changed, and
// which ticks are owed after a pause (D2). It knows no clock, no store and no run: the caller says what time it is, keeps the cursor
// and starts the runs. The one thing it reads is time zone data, when an expression is parsed: the system's, else what the command
// was built with (time/tzdata).
//
// An expression has five fields: minute, hour, day of the month, month, day of the week. Where both day fields are restricted, a
// day that either of them names is meant, unless one of them begins with *: then both must name it. Cron has always read them so.
//
// When clocks are changed, a schedule whose hour field begins with * counts the hours that there are: it has no tick in an hour that
// is skipped, and ticks both times in an hour that comes twice. Any other names its hours, and so promises something about a day:
//
//   - a time that is skipped ticks at the first instant after the gap, which several such times share;
//   - a time that comes twice ticks the first time only.
//
// Invariants, which hold in every zone and on every day:
//
//  1. Ticks grow strictly: no instant ticks twice.
//  2. Ticks depend on the expression and its zone alone, never on where the search for them began. So a cursor loses none, and nodes
//     that have the same time zone data agree.
//  3. A tick is a whole minute of the zone's clock, or the end of a gap.
//
// The engine calls it. docs/internals/schedules.md says the same to people.
package schedule

import (
	"math/bits"
	"time"

	"github.com/adhocore/gronx"
)

// horizonYears is how far Next looks. The calendar has fourteen kinds of year, and each comes back within forty: the longest gap is
// that between leap years which begin on the same day of the week, across one such as 2100 that is no leap year.
const horizonYears = 41

// latest is the last second that RFC 3339 can write.
var latest = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)

// Schedule is an expression in its time zone. It never changes, and may be used by many at once. The zero Schedule has no ticks.
type Schedule struct {
	zone       *time.Location
	minutes    uint64 // bit n: minute n matches; hours and months likewise
	hours      uint64
	months     uint64
	days       []string // what gronx asks of a day: its segments, with the fields of the days and stars for the rest
	namesHours bool     // the hour field does not begin with *
}

// Next returns the first tick strictly after an instant, in UTC. It is not ok where there is none within forty-one years or before
// the year 10000.
func (s Schedule) Next(after time.Time) (tick time.Time, ok bool) {
	if after.Before(time.Time{}) {
		after = time.Time{} // the calendar of 41 years before that would be the same, and arithmetic has its bounds
	}
	return s.next(after, after.AddDate(horizonYears, 0, 0))
}

// next returns the first tick that is after one instant and not after the other.
func (s Schedule) next(after, until time.Time) (time.Time, bool) {
	if until.After(latest) {
		until = latest
	}
	if s.zone == nil || !after.Before(until) {
		return time.Time{}, false
	}
	limit := until.Add(1)
	current := spanAt(s.zone, after)
	from := current.wall(after).Truncate(time.Minute).Add(time.Minute)
	for {
		end := current.end
		if end.IsZero() || end.After(limit) {
			end = limit
		}
		if wall, ok := s.nextWall(from, current.wall(end), current.start); ok {
			return current.instant(wall), true
		}
		if !end.Before(limit) {
			return time.Time{}, false
		}
		following := spanAt(s.zone, end)
		from = following.wall(end)
		if s.namesHours {
			if _, swallowed := s.nextWall(current.wall(end), from, end); swallowed {
				return end.UTC(), true
			}
		}
		from = from.Add(time.Minute - 1).Truncate(time.Minute) // a zone's clock may be set at any second
		current = following
	}
}

// nextWall returns the first wall time from one on, and before another, that ticks in a span which begins at start. Of a schedule that
// names its hours, no wall time ticks that an earlier span has had.
func (s Schedule) nextWall(from, until, start time.Time) (time.Time, bool) {
	for {
		wall, ok := s.match(from, until)
		if !ok || !s.namesHours || !cameBefore(s.zone, wall, start) {
			return wall, ok
		}
		from = wall.Add(time.Minute)
	}
}

// match returns the first whole minute from one wall time on, and before another, that the expression matches.
func (s Schedule) match(from, until time.Time) (time.Time, bool) {
	minute := from.Hour()*60 + from.Minute()
	date := from.Add(-time.Duration(minute) * time.Minute)
	for date.Before(until) {
		switch {
		case s.months>>date.Month()&1 == 0:
			date = time.Date(date.Year(), date.Month()+1, 1, 0, 0, 0, 0, time.UTC)
		case s.minuteOfDay(minute) >= 0 && s.onDay(date):
			wall := date.Add(time.Duration(s.minuteOfDay(minute)) * time.Minute)
			return wall, wall.Before(until)
		default:
			date = date.AddDate(0, 0, 1)
		}
		minute = 0
	}
	return time.Time{}, false
}

// minuteOfDay returns the first minute of a day, from one on, whose hour and minute match; -1 if there is none.
func (s Schedule) minuteOfDay(from int) int {
	hour := from / 60
	if s.hours>>hour&1 == 1 {
		if minute := firstBit(s.minutes, from%60); minute >= 0 {
			return hour*60 + minute
		}
	}
	if hour = firstBit(s.hours, hour+1); hour < 0 {
		return -1
	}
	return hour*60 + firstBit(s.minutes, 0)
}

// onDay tells whether the day fields match a day.
func (s Schedule) onDay(date time.Time) bool {
	checker := gronx.Gronx{C: &gronx.SegmentChecker{}}
	checker.C.SetRef(date)
	due, err := checker.SegmentsDue(s.days)
	return due && err == nil // Parse has seen to it that gronx can read them
}

// firstBit returns the number of the first bit of a set from one on, or -1.
func firstBit(set uint64, from int) int {
	if set = set >> from << from; set == 0 {
		return -1
	}
	return bits.TrailingZeros64(set)
}
