package schedule_test

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// The oracle: a second reading of the rules that looks at every minute, one after the other. It shares nothing with the package, nor
// with the library that the package reads expressions with.

// A cron is an expression as tables: what each field holds, value by value.
type cron struct {
	minutes, hours, months []bool
	monthDay, weekDay      string
	namesHours             bool
}

func cronOf(expression string) cron {
	fields := strings.Fields(expression)
	return cron{
		minutes: table(fields[0], 0, 59), hours: table(fields[1], 0, 23), months: table(fields[3], 1, 12),
		monthDay: fields[2], weekDay: fields[4],
		namesHours: fields[1][0] != '*',
	}
}

// table holds the values of a field made of numbers, ranges, steps and lists.
func table(field string, first, last int) []bool {
	values := make([]bool, 60)
	for part := range strings.SplitSeq(field, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			step = number(stepText)
		}
		from, to := first, last
		if span != "*" && span != "?" {
			low, high, isRange := strings.Cut(span, "-")
			from, to = number(low), number(low)
			if isRange {
				to = number(high)
			}
		}
		for n := from; n <= to; n += step {
			values[n] = true
		}
	}
	return values
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err) // the test's own expression
	}
	return n
}

func (c cron) matches(wall time.Time) bool {
	return c.minutes[wall.Minute()] && c.hours[wall.Hour()] && c.months[int(wall.Month())] && c.onDay(wall)
}

func (c cron) onDay(wall time.Time) bool {
	byMonth, byWeek := inMonth(c.monthDay, wall), inWeek(c.weekDay, wall)
	restricted := func(field string) bool { return field[0] != '*' && field[0] != '?' }
	if restricted(c.monthDay) && restricted(c.weekDay) {
		return byMonth || byWeek
	}
	return byMonth && byWeek
}

func inMonth(field string, wall time.Time) bool {
	last := time.Date(wall.Year(), wall.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
	for part := range strings.SplitSeq(field, ",") {
		switch day, nearest := strings.CutSuffix(part, "W"); {
		case part == "L":
			if wall.Day() == last {
				return true
			}
		case nearest:
			if wall.Day() == nearestWeekday(wall, number(day), last) {
				return true
			}
		case table(part, 1, 31)[wall.Day()]:
			return true
		}
	}
	return false
}

// nearestWeekday is the day from Monday to Friday that is nearest to a day, in the same month; 0 if the month has no such day.
func nearestWeekday(wall time.Time, day, last int) int {
	if day > last {
		return 0
	}
	switch date := time.Date(wall.Year(), wall.Month(), day, 0, 0, 0, 0, time.UTC); {
	case date.Weekday() == time.Saturday && day > 1:
		return day - 1
	case date.Weekday() == time.Saturday:
		return day + 2
	case date.Weekday() == time.Sunday && day < last:
		return day + 1
	case date.Weekday() == time.Sunday:
		return day - 2
	}
	return day
}

func inWeek(field string, wall time.Time) bool {
	for part := range strings.SplitSeq(field, ",") {
		day, which, isNth := strings.Cut(part, "#")
		day, isLast := strings.CutSuffix(day, "L")
		switch {
		case isNth || isLast:
			if int(wall.Weekday()) != number(day)%7 {
				continue
			}
			if isNth && (wall.Day()+6)/7 == number(which) || isLast && wall.AddDate(0, 0, 7).Month() != wall.Month() {
				return true
			}
		default:
			days := table(part, 0, 6)
			if days[int(wall.Weekday())] || wall.Weekday() == time.Sunday && days[7] {
				return true
			}
		}
	}
	return false
}

// A minute is one of a zone's history.
type minute struct {
	at      time.Time
	wall    time.Time // what the clock on the wall shows, as if it were UTC
	again   bool      // it showed that before
	skipped []time.Time
}

// history is every minute from one instant to another, of which the second is not part.
func history(zone *time.Location, from, to time.Time) []minute {
	shown := map[int64]bool{} // wall times
	minutes := make([]minute, 0, 48*60+int(to.Sub(from).Minutes()))
	for at := from.Add(-48 * time.Hour); at.Before(to); at = at.Add(time.Minute) {
		local := at.In(zone)
		m := minute{at: at, wall: time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), 0, 0, time.UTC)}
		m.again = shown[m.wall.Unix()]
		shown[m.wall.Unix()] = true
		if len(minutes) > 0 {
			for wall := minutes[len(minutes)-1].wall.Add(time.Minute); wall.Before(m.wall); wall = wall.Add(time.Minute) {
				if !shown[wall.Unix()] {
					m.skipped = append(m.skipped, wall)
				}
			}
		}
		minutes = append(minutes, m)
	}
	return minutes[48*60:]
}

// ticks are those that an expression has in a history.
func (c cron) ticks(minutes []minute) []time.Time {
	var ticks []time.Time
	for i := range minutes {
		m := &minutes[i]
		due := c.matches(m.wall) && (!c.namesHours || !m.again)
		if c.namesHours && slices.ContainsFunc(m.skipped, c.matches) {
			due = true
		}
		if due {
			ticks = append(ticks, m.at)
		}
	}
	return ticks
}
