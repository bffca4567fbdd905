package schedule_test

import (
	"bytes"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the same zones on every machine that runs the tests

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nelkap/nelkap/internal/schedule"
)

func parse(t testing.TB, expression, timezone string) schedule.Schedule {
	t.Helper()
	s, err := schedule.Parse(expression, timezone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// between are the ticks from one instant on and before another, one after the other.
func between(s schedule.Schedule, from, to time.Time) []time.Time {
	var ticks []time.Time
	for tick, ok := s.Next(from.Add(-1)); ok && tick.Before(to); tick, ok = s.Next(tick) {
		ticks = append(ticks, tick)
	}
	return ticks
}

// years are those in which a zone's clocks are changed in a way of its own.
var years = map[string]int{
	"Europe/Berlin":       2026, // an hour, at night
	"America/New_York":    2026, // in the west
	"Australia/Lord_Howe": 2026, // half an hour
	"Africa/Casablanca":   2025, // back for Ramadan
	"Pacific/Apia":        2011, // and a day that was left out
}

// moreYears are looked at around the changes only.
var moreYears = map[string]int{
	"Asia/Beirut":      2026, // at midnight
	"Antarctica/Troll": 2026, // two hours
	"Asia/Kolkata":     2026, // never
	"Pacific/Chatham":  2087, // by the rule that a zone's data ends with
	"Europe/Warsaw":    2040, // by such a rule, in a leap year
}

var expressions = []string{
	"*/30 * * * *", "20 * * * *", "0 */2 * * *", "15 */6,1 * * *", // each hour that there is
	"30 2 * * *", "0 0 * * *", "15,45 0-3 * * *", "*/20 1,2 * * *", "0 9 * * 1-5", "5 23 * * 0", "0 0-23 * * *", // hours by name
	"0 9 1 * 1", "0 0 31 * *", "0 0 */2 * 1", "59 23 L * *", "0 3 15W * ?", "30 4 * 3,10 0L", "0 12 ? * 1#2,5", "0 0 29 2 *",
}

// C1 of the scenarios, and promise 11: whatever clocks do, over a whole year no tick is lost, and none comes twice.
func TestAYearOfTicksIsThatOfTheOracle(t *testing.T) {
	t.Parallel()
	for name, year := range years {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(year+1, 1, 2, 0, 0, 0, 0, time.UTC)
			minutes := history(zone(t, name), from, to)
			for _, expression := range expressions {
				got, want := between(parse(t, expression, name), from, to), cronOf(expression).ticks(minutes)
				if !slices.Equal(got, want) {
					t.Errorf("%s: %d ticks, want %d:\n%.2000s", expression, len(got), len(want), cmp.Diff(want, got))
				}
			}
		})
	}
}

// Invariant 2: from wherever one looks, the next tick is the first that comes after it.
func TestTheNextTickDoesNotDependOnWhereTheSearchBegins(t *testing.T) {
	all := maps.Clone(years)
	maps.Copy(all, moreYears)
	names := slices.Sorted(maps.Keys(all))
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(names).Draw(t, "zone")
		place, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		change := changeNear(place, time.Date(all[name], 1, 1, 0, 0, 0, 0, time.UTC), rapid.IntRange(0, 5).Draw(t, "change"))
		from, to := change.Add(-30*time.Hour), change.Add(30*time.Hour)
		expression := drawExpression(t)
		s, err := schedule.Parse(expression, name)
		if err != nil {
			t.Fatalf("%q: %v", expression, err)
		}
		want := cronOf(expression).ticks(history(place, from, to))
		for range 20 {
			after := from.Add(time.Duration(rapid.Int64Range(0, int64(to.Sub(from))).Draw(t, "after")))
			got, ok := s.Next(after)
			if !ok {
				t.Fatalf("%q in %s has no tick after %v", expression, name, after)
			}
			i := slices.IndexFunc(want, after.Before)
			if i < 0 && got.Before(to) || i >= 0 && !got.Equal(want[i]) {
				t.Fatalf("%q in %s: after %v comes %v, want %v (number %d)", expression, name, after, got, want, i)
			}
		}
	})
}

// changeNear is the moment of the nth change of a zone's clocks after an instant, or an instant a while after it.
func changeNear(place *time.Location, from time.Time, n int) time.Time {
	for range n + 1 {
		_, end := from.In(place).ZoneBounds()
		if end.IsZero() {
			return from.Add(1000 * time.Hour)
		}
		from = end
	}
	return from.Truncate(time.Minute).UTC()
}

func drawExpression(t *rapid.T) string {
	minute := rapid.SampledFrom([]string{"*", "0", "30", "*/7", "0-10", "59", "15,45", "20-40/3"}).Draw(t, "minute")
	hour := rapid.SampledFrom([]string{"*", "*/2", "*/5,3", "0", "1", "2", "3", "23", "0-3", "1,2", "*/3", "2-23/7"}).Draw(t, "hour")
	monthDay := rapid.SampledFrom([]string{"*", "*", "*/2", "1-31", "L", "1W", "31"}).Draw(t, "day of the month")
	month := rapid.SampledFrom([]string{"*", "*", "1-12/2", "3,4,10,12"}).Draw(t, "month")
	weekDay := rapid.SampledFrom([]string{"*", "*", "0", "7", "1-5", "5-7", "0L", "6#1", "*/3"}).Draw(t, "day of the week")
	return minute + " " + hour + " " + monthDay + " " + month + " " + weekDay
}

func TestDaysOnWhichClocksAreChanged(t *testing.T) {
	tests := []struct {
		story, expression, timezone, from, to string
		want                                  []string
	}{
		{
			"a skipped half past two ticks when the gap is over", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		},
		{
			"times that a gap swallowed tick once", "*/15 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T12:00:00Z",
			[]string{"2026-03-29T01:00:00Z"},
		},
		{
			"also with a time of its own there", "0 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T12:00:00Z",
			[]string{"2026-03-29T01:00:00Z"},
		},
		{
			"half past two that comes twice ticks once", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		},
		{
			"each hour there is, and none that there is not", "0 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T03:00:00Z",
			[]string{"2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"},
		},
		{
			"each hour there is, both of two", "0 * * * *", "America/New_York", "2026-11-01T05:00:00Z", "2026-11-01T08:00:00Z",
			[]string{"2026-11-01T05:00:00Z", "2026-11-01T06:00:00Z", "2026-11-01T07:00:00Z"},
		},
		{
			"hours named one by one come once", "0 0-23 * * *", "America/New_York", "2026-11-01T05:00:00Z", "2026-11-01T08:00:00Z",
			[]string{"2026-11-01T05:00:00Z", "2026-11-01T07:00:00Z"},
		},
		{
			"every second hour skips with the clock", "30 */2 * * *", "Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-29T03:00:00Z",
			[]string{"2026-03-28T23:30:00Z", "2026-03-29T02:30:00Z"},
		},
		{
			"half an hour is skipped", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", "2026-10-05T00:00:00Z",
			[]string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"},
		},
		{
			"half an hour comes twice", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", "2026-04-05T20:00:00Z",
			[]string{"2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"},
		},
		{
			"a skipped midnight", "0 0 * * *", "Asia/Beirut", "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z",
			[]string{"2026-03-28T22:00:00Z"},
		},
		{
			"a day that a country left out ticks when the next begins", "0 9 30 12 *", "Pacific/Apia", "2011-01-01T00:00:00Z", "2012-01-01T00:00:00Z",
			[]string{"2011-12-30T10:00:00Z"},
		},
		{
			"and has no hours", "0 */6 30 12 *", "Pacific/Apia", "2011-01-01T00:00:00Z", "2012-01-01T00:00:00Z",
			nil,
		},
	}
	for _, test := range tests {
		var got []string
		for _, tick := range between(parse(t, test.expression, test.timezone), at(t, test.from), at(t, test.to)) {
			got = append(got, tick.Format(time.RFC3339))
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s in %s:\n%s", test.story, test.expression, test.timezone, diff)
		}
	}
}

// C2 and C3 of the scenarios: both day fields at once, and schedules so rare that a short look ahead loses them.
func TestRareSchedulesTickExactlyAsOftenAsTheirDaysCome(t *testing.T) {
	from, to := at(t, "2026-01-01T00:00:00Z"), at(t, "2031-01-01T00:00:00Z")
	for expression, want := range map[string]int{
		"0 0 * * *":       1826,
		"@daily":          1826,
		"@weekly":         261,
		"0 9 * * 1":       261,
		"@monthly":        60,
		"@hourly":         1826 * 24,
		"0 0 31 * *":      35,
		"0 0 29 2 *":      1,
		"0 9 1 * 1":       60 + 261 - 9, // the first or a Monday; nine days are both
		"0 9 */1 * 1":     261,          // a field that begins with * restricts nothing on its own
		"0 9 1 * */7":     9,            // the first, and a Sunday
		"0 0 L * *":       60,
		"0 0 L 2 *":       5,
		"0 0 LW 2 *":      -1,
		"0 0 * * 5#5":     21,
		"0 0 29W 2 *":     1,
		"@yearly":         5,
		"0 0 1 JAN ?":     5,
		"0 0 * * mon":     261,
		"0 0 * * FRI-7":   261 + 261 + 261,
		"1-59/29 0 1 1 *": 15,
	} {
		for _, timezone := range []string{"", "UTC", "Asia/Kolkata", "Africa/Abidjan"} {
			s, err := schedule.Parse(expression, timezone)
			if want < 0 {
				if err == nil {
					t.Errorf("%s is accepted", expression)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			place := zone(t, timezone)
			begin := time.Date(from.Year(), 1, 1, 0, 0, 0, 0, place)
			end := time.Date(to.Year(), 1, 1, 0, 0, 0, 0, place)
			if got := between(s, begin, end); len(got) != want {
				t.Errorf("%s in %q: %d ticks in five years, want %d", expression, timezone, len(got), want)
			}
		}
	}
}

func TestTheRarestDayIsFound(t *testing.T) {
	s, longest := parse(t, "0 0 29 2 */7", ""), 0 // a 29 February that is a Sunday
	for after := at(t, "2000-01-01T00:00:00Z"); after.Year() < 2400; {
		tick, ok := s.Next(after)
		if !ok || tick.Weekday() != time.Sunday || tick.Day() != 29 || tick.Year()-after.Year() > 40 {
			t.Fatalf("after %v comes %v (%v)", after, tick, ok)
		}
		longest = max(longest, tick.Year()-after.Year())
		after = tick
	}
	if longest != 40 {
		t.Errorf("the longest gap is %d years, want that of forty around 2100", longest)
	}
}

func TestTimeHasItsEnds(t *testing.T) {
	s := parse(t, "0 0 1 1 *", "Pacific/Chatham")
	for _, after := range []time.Time{time.Unix(-1<<62, 0), {}, at(t, "1846-01-01T00:00:00Z"), time.Unix(0, 0)} {
		if tick, ok := s.Next(after); !ok || !tick.After(after) {
			t.Errorf("after %v comes %v (%v)", after, tick, ok)
		}
	}
	for _, after := range []time.Time{at(t, "9999-12-31T23:00:00Z"), time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1<<62, 0)} {
		if tick, ok := s.Next(after); ok {
			t.Errorf("after %v comes %v", after, tick)
		}
	}
	if tick, ok := (schedule.Schedule{}).Next(time.Unix(0, 0)); ok {
		t.Errorf("no schedule ticks at %v", tick)
	}
}

func BenchmarkNext(b *testing.B) {
	for _, expression := range []string{"* * * * *", "0 9 * * 1-5", "0 0 29 2 *"} {
		b.Run(expression, func(b *testing.B) {
			s := parse(b, expression, "Europe/Berlin")
			after := at(b, "2026-01-01T00:00:00Z")
			for b.Loop() {
				s.Next(after)
			}
		})
	}
}

// What the users' page says of each expression of its table, seen on a Thursday.
func TestTheExpressionsOfThePageMeanWhatItSays(t *testing.T) {
	page, err := os.ReadFile("../../docs/schedules.md")
	if err != nil {
		t.Fatal(err)
	}
	next := map[string]string{
		"0 9 * * 1-5":  "2026-01-16T09:00:00Z",
		"*/15 * * * *": "2026-01-15T12:15:00Z",
		"0 0 1 * *":    "2026-02-01T00:00:00Z",
		"0 18 L * *":   "2026-01-31T18:00:00Z",
		"0 9 * * 1#2":  "2026-02-09T09:00:00Z",
		"@hourly":      "2026-01-15T13:00:00Z",
		"@daily":       "2026-01-16T00:00:00Z",
		"@weekly":      "2026-01-18T00:00:00Z",
		"@monthly":     "2026-02-01T00:00:00Z",
		"@yearly":      "2027-01-01T00:00:00Z",
	}
	_, section, _ := bytes.Cut(page, []byte("\n## The expression\n"))
	section, _, _ = bytes.Cut(section, []byte("\n## "))
	var said []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?`) \\|").FindAllSubmatch(section, -1) {
		said = append(said, strings.Split(strings.Trim(string(row[1]), "`"), "` `")...)
	}
	if want := slices.Sorted(maps.Keys(next)); !cmp.Equal(slices.Sorted(slices.Values(said)), want) {
		t.Errorf("the page shows %q, this test knows %q", said, want)
	}
	for expression, want := range next {
		tick, ok := parse(t, expression, "").Next(at(t, "2026-01-15T12:00:00Z"))
		if got := tick.UTC().Format(time.RFC3339); !ok || got != want {
			t.Errorf("%s: next at %s, not %s", expression, got, want)
		}
	}
}
