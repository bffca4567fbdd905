package schedule

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/adhocore/gronx"
)

const (
	// ExpressionBytesMax is far more than a person writes, and the protocol's bound of a trigger's schedule.
	ExpressionBytesMax = 256
	// TimezoneBytesMax is twice the longest name of the IANA database.
	TimezoneBytesMax = 64
)

// presets are the names that cron knows. @reboot is none of them: a server that starts again is no reason for a run.
var presets = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// A field is one of an expression's five. position is its place in gronx's segments, where seconds come first.
type field struct {
	name     string
	position int
	min, max int
	names    string           // three letters for each value from min on, parted by spaces
	special  []*regexp.Regexp // what else it may hold, with its number first
	also     string           // special, for people
}

var fields = [5]field{
	{name: "minute", position: 1, min: 0, max: 59},
	{name: "hour", position: 2, min: 0, max: 23},
	{
		name: "day of the month", position: 3, min: 1, max: 31,
		special: []*regexp.Regexp{regexp.MustCompile(`^L$`), regexp.MustCompile(`^(\d{1,2})W$`)},
		also:    ", L (the last day), 15W (the weekday nearest to the 15th)",
	},
	{name: "month", position: 4, min: 1, max: 12, names: "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC", also: ", JAN to DEC"},
	{
		name: "day of the week", position: 5, min: 0, max: 7, names: "SUN MON TUE WED THU FRI SAT",
		special: []*regexp.Regexp{regexp.MustCompile(`^([0-7]|[A-Z]{3})L$`), regexp.MustCompile(`^([0-7]|[A-Z]{3})#[1-5]$`)},
		also:    ", SUN to SAT, 5L (the last Friday), 1#2 (the second Monday)",
	},
}

// part is what stands between the commas of a field: *, a number, or a range, then perhaps a step.
var part = regexp.MustCompile(`^(?:\*|(\d{1,2}|[A-Z]{3})(?:-(\d{1,2}|[A-Z]{3}))?)(?:/(\d{1,3}))?$`)

// Parse reads an expression and the name of a time zone; without a name it is UTC. An expression has five fields, or is one of the
// names that cron knows, such as @daily. The error is a sentence that says what to do; an expression that can never tick is one.
func Parse(expression, timezone string) (Schedule, error) {
	zone, err := parseZone(timezone)
	if err != nil {
		return Schedule{}, err
	}
	texts, err := split(expression)
	if err != nil {
		return Schedule{}, err
	}
	for i, f := range fields {
		if err := f.check(texts[i]); err != nil {
			return Schedule{}, fmt.Errorf("the schedule %q can't be used: in the %s, %w", expression, f.name, err)
		}
	}
	segments, err := gronx.Segments(strings.Join(texts, " "))
	if err != nil {
		return Schedule{}, fmt.Errorf("the schedule %q can't be read: %w", expression, err)
	}
	s := Schedule{
		zone:       zone,
		days:       []string{"*", "*", "*", segments[3], "*", segments[5]},
		namesHours: !strings.HasPrefix(segments[2], "*"),
	}
	for set, f := range map[*uint64]field{&s.minutes: fields[0], &s.hours: fields[1], &s.months: fields[3]} {
		if *set, err = f.values(segments[f.position]); err != nil {
			return Schedule{}, fmt.Errorf("the schedule %q can't be read: %w", expression, err)
		}
	}
	// These 28 years have each of the calendar's fourteen kinds.
	if _, ok := s.match(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC)); !ok {
		return Schedule{}, fmt.Errorf("the schedule %q never ticks: no year has such a day. Correct its day of the month or its month", expression)
	}
	return s, nil
}

func parseZone(name string) (*time.Location, error) {
	if len(name) > TimezoneBytesMax {
		return nil, fmt.Errorf("the timezone has %d bytes: use a name such as Europe/Berlin, which has at most %d", len(name), TimezoneBytesMax)
	}
	// The first two mean something else on each machine; the others are copies of the database, one of them with leap seconds.
	local := name == "Local" || name == "localtime" || strings.HasPrefix(name, "posix") || strings.HasPrefix(name, "right/")
	zone, err := time.LoadLocation(name)
	if err != nil || local {
		return nil, fmt.Errorf("the timezone %q is not known: use a name of the IANA database, such as Europe/Berlin, or leave it out for UTC", name)
	}
	return zone, nil
}

// split returns an expression's five fields in upper case.
func split(expression string) ([]string, error) {
	if len(expression) > ExpressionBytesMax {
		return nil, fmt.Errorf("the schedule has %d bytes: use at most %d, or several schedules", len(expression), ExpressionBytesMax)
	}
	text := strings.TrimSpace(expression)
	if preset, ok := presets[strings.ToLower(text)]; ok {
		text = preset
	}
	texts := strings.Fields(strings.ToUpper(text))
	if len(texts) == 0 {
		return nil, errors.New("the schedule is empty: write five fields, such as 0 9 * * 1-5")
	}
	switch {
	case strings.HasPrefix(texts[0], "TZ=") || strings.HasPrefix(texts[0], "CRON_TZ="):
		return nil, fmt.Errorf("the schedule %q names its time zone: say it as timezone, beside the schedule", expression)
	case strings.HasPrefix(texts[0], "@"):
		return nil, fmt.Errorf("the schedule %q is not known: write @yearly, @monthly, @weekly, @daily, @hourly, or five fields such as */5 * * * *", expression)
	case len(texts) != len(fields):
		return nil, fmt.Errorf("the schedule %q has %d fields: write five, minute, hour, day of the month, month and day of the week; seconds and years are none of them",
			expression, len(texts))
	}
	return texts, nil
}

// check refuses what cron reads in more than one way, or reads as something that nobody means. gronx accepts some of it, and some
// only at some times of the day.
func (f field) check(text string) error {
	if text == "?" && f.special != nil {
		return nil
	}
	for one := range strings.SplitSeq(text, ",") {
		if one == "*" && text != "*" {
			return fmt.Errorf("%q lists every value and others besides: write * alone", text)
		}
		if err := f.checkPart(one); err != nil {
			return err
		}
	}
	return nil
}

func (f field) checkPart(text string) error {
	for _, form := range f.special {
		if found := form.FindStringSubmatch(text); found != nil {
			_, err := f.value(append(found, "")[1])
			return err
		}
	}
	found := part.FindStringSubmatch(text)
	if found == nil {
		return fmt.Errorf("%q can't be read: write *, a number from %d to %d, a range (%[2]d-%[3]d), a list (%[2]d,%[3]d) or a step (*/2)%s", text, f.min, f.max, f.also)
	}
	first, err := f.value(found[1])
	if err != nil {
		return err
	}
	last, err := f.value(found[2])
	if err != nil {
		return err
	}
	if found[2] != "" && last < first {
		return fmt.Errorf("%q runs backwards: write a list of what is before and what is after the turn, such as %d-%d,%d-%d", text, first, f.max, f.min, last)
	}
	if found[3] == "" {
		return nil
	}
	step, _ := strconv.Atoi(found[3]) // at most three digits
	if found[1] != "" && found[2] == "" {
		return fmt.Errorf("%q has a step and no end: write %d-%d/%d", text, first, f.max, step)
	}
	if step < 1 || step > f.max {
		return fmt.Errorf("%q has a step of %d: it can be 1 to %d, since the count starts again where the field does; for longer pauses list the times", text, step, f.max)
	}
	return nil
}

// value reads a number or a name; no text is 0.
func (f field) value(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	if at := strings.Index(f.names, text); at >= 0 && len(text) == len("JAN") {
		return f.min + at/len("JAN "), nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < f.min || n > f.max {
		return 0, fmt.Errorf("%s is not one of its values: write %d to %d%s", text, f.min, f.max, f.also)
	}
	return n, nil
}

// values returns the set of a field's values that a segment matches.
func (f field) values(segment string) (set uint64, err error) {
	var checker gronx.SegmentChecker
	for n := f.min; n <= f.max; n++ {
		// A leap year, and a month that has every day: only the field in question changes.
		at := [5]int{0, 0, 1, 1, 0}
		at[f.position-1] = n
		checker.SetRef(time.Date(2000, time.Month(at[3]), at[2], at[1], at[0], 0, 0, time.UTC))
		due, err := checker.CheckDue(segment, f.position)
		if err != nil {
			return 0, err
		}
		if due {
			set |= 1 << n
		}
	}
	return set, nil
}
