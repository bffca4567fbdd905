package schedule_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nelkap/nelkap/internal/schedule"
)

// What can't be used is refused with a sentence that says what to do.
func TestWhatCannotBeUsedIsRefused(t *testing.T) {
	tests := []struct{ expression, timezone, want string }{
		{"", "", "is empty: write five fields"},
		{" \t\n", "", "is empty"},
		{"0 9 * *", "", "has 4 fields: write five"},
		{"0 0 9 * * 1-5", "", "has 6 fields: write five, minute, hour, day of the month, month and day of the week; seconds"},
		{"0 9 1 1 * 2027", "", "has 6 fields"},
		{"TZ=Europe/Berlin 0 9 * * *", "", "say it as timezone"},
		{"CRON_TZ=UTC", "", "say it as timezone"},
		{"tz=", "", "say it as timezone"},
		{"@reboot", "", "write @yearly"},
		{"@every 5m", "", "or five fields such as */5 * * * *"},
		{"@everysecond", "", "is not known"},
		{"60 * * * *", "", "in the minute, 60 is not one of its values: write 0 to 59"},
		{"0 24 * * *", "", "in the hour, 24 is not one of its values: write 0 to 23"},
		{"0 0 0 * *", "", "in the day of the month, 0 is not one of its values: write 1 to 31, L (the last day)"},
		{"0 0 32W * *", "", "in the day of the month, 32 is not"},
		{"0 0 1 13 *", "", "in the month, 13 is not"},
		{"0 0 1 ABC *", "", "ABC is not one of its values: write 1 to 12, JAN to DEC"},
		{"0 0 1 AN_ *", "", "can't be read"},
		{"0 0 1 N F *", "", "6 fields"},
		{"MON * * * *", "", "in the minute, MON is not"},
		{"0 0 * * 8", "", "in the day of the week, 8 is not"},
		{"0 0 * * MONDAY", "", `"MONDAY" can't be read`},
		{"0 0 * * 1#6", "", `"1#6" can't be read`},
		{"0 0 * * 8L", "", `"8L" can't be read`},
		{"0 0 * * XYZL", "", "XYZ is not"},
		{"0 0 * * L", "", `"L" can't be read`},
		{"L * * * *", "", `"L" can't be read`},
		{"? * * * *", "", `"?" can't be read`},
		{"0 0 LW * *", "", `"LW" can't be read`},
		{"0 0 L-3 * *", "", `"L-3" can't be read`},
		{"0 0 * * FRI-MON", "", `"FRI-MON" runs backwards: write a list of what is before and what is after the turn, such as 5-7,0-1`},
		{"50-10 * * * *", "", "such as 50-59,0-10"},
		{"5/15 * * * *", "", "has a step and no end: write 5-59/15"},
		{"*/90 * * * *", "", "a step of 90: it can be 1 to 59"},
		{"*/0 * * * *", "", "a step of 0"},
		{"0 */24 * * *", "", "a step of 24: it can be 1 to 23"},
		{"1,* * * * *", "", "write * alone"},
		{"1,,2 * * * *", "", `"" can't be read`},
		{"1-2-3 * * * *", "", `"1-2-3" can't be read`},
		{"*/5/3 * * * *", "", "can't be read"},
		{"+5 * * * *", "", "can't be read"},
		{"-5 * * * *", "", "can't be read"},
		{"1,99 * * * *", "", "99 is not"}, // also at a minute that the list holds
		{"\x000 9 * * *", "", "can't be read"},
		{"٣ 9 * * *", "", "can't be read"},
		{"0 0 30 2 *", "", "never ticks"},
		{"0 0 31 4,6,9,11 ?", "", "never ticks"},
		{"0 0 30W 2 *", "", "never ticks"},
		{"0 0 " + strings.Repeat("1,", 200) + "1 * *", "", "has 409 bytes: use at most 256"},
		{"0 9 * * *", "Europe/Belin", `the timezone "Europe/Belin" is not known: use a name of the IANA database, such as Europe/Berlin, or leave it out for UTC`},
		{"0 9 * * *", "Local", "is not known"},
		{"0 9 * * *", "posixrules", "is not known"},
		{"0 9 * * *", "right/UTC", "is not known"},
		{"0 9 * * *", "../../etc/passwd", "is not known"},
		{"0 9 * * *", "/etc/localtime", "is not known"},
		{"0 9 * * *", "+02:00", "is not known"},
		{"0 9 * * *", strings.Repeat("x", 65), "has 65 bytes"},
	}
	for _, test := range tests {
		_, err := schedule.Parse(test.expression, test.timezone)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q in %q: %v, want … %s …", test.expression, test.timezone, err, test.want)
		}
	}
}

func TestExpressionsThatMeanTheSameTickTogether(t *testing.T) {
	tests := []struct{ one, other string }{
		{"@midnight", "0 0 * * *"},
		{"  @DAILY ", "0  0\t* *\n*"},
		{"@annually", "0 0 1 jan ?"},
		{"0 9 * * 1-5", "00 09 ? * Mon-Fri"},
		{"0 9 * * 7", "0 9 * * SUN"},
		{"0 9 * * 0-2", "0 9 * * 7,1,2"},
		{"0 9 * * 5-7", "0 9 * * 5,6,0"},
		{"0-30/10 * * * *", "0,10,20,30 * * * *"},
		{"*/1 * * * *", "* * * * *"},
		{"0 0 31 1,3,5,7,8,10,12 *", "0 0 L JAN,MAR,MAY,JUL,AUG,OCT,DEC *"},
	}
	for _, test := range tests {
		one, other := parse(t, test.one, ""), parse(t, test.other, "UTC")
		after := at(t, "2026-01-01T00:00:00Z")
		for range 1000 {
			a, _ := one.Next(after)
			b, _ := other.Next(after)
			if !a.Equal(b) {
				t.Fatalf("%q ticks at %v, %q at %v", test.one, a, test.other, b)
			}
			after = a
		}
	}
}

// FuzzParse: what is accepted ticks, soon enough, in order, on whole minutes of its zone or when its clock is changed; what is refused is
// refused with a sentence.
func FuzzParse(f *testing.F) {
	for _, expression := range expressions {
		f.Add(expression, "Europe/Berlin", int64(1_790_000_000))
	}
	for _, expression := range []string{
		"@daily", "TZ=UTC 0 0 * * *", "0 0 30 2 *", "1-2-3 * * * *", "5/5 * * * *", "*/61 * * * *", "0 0 * * 1#5,6L", "59 23 31 12 7", "1,99 * * * *", "0 0 0 0 0",
	} {
		f.Add(expression, "Australia/Lord_Howe", int64(1_775_000_000))
	}
	f.Add("30 2 * * *", "America/New_York", int64(2_240_600_000)) // the last day of a leap year beyond every table
	f.Add("0 0 29 2 7", "right/UTC", int64(-1<<62))
	f.Fuzz(func(t *testing.T, expression, timezone string, seconds int64) {
		s, err := schedule.Parse(expression, timezone)
		if err != nil {
			if text := err.Error(); !strings.HasPrefix(text, "the ") || !utf8.ValidString(text) || len(text) > 2_000 || strings.ContainsAny(text, "\n\x00") {
				t.Errorf("no sentence: %q", text)
			}
			return
		}
		place, err := time.LoadLocation(timezone)
		if err != nil {
			t.Fatalf("%q is accepted: %v", timezone, err)
		}
		after := time.Unix(seconds, 0)
		if !after.Before(time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)) {
			return
		}
		previous := after
		for range 50 {
			tick, ok := s.Next(previous)
			if !ok || !tick.After(previous) || tick.Location() != time.UTC {
				t.Fatalf("%q in %s: after %v comes %v (%v)", expression, timezone, previous, tick, ok)
			}
			if start, _ := tick.In(place).ZoneBounds(); tick.In(place).Second() != 0 && !tick.Equal(start) {
				t.Fatalf("%q in %s ticks at %v", expression, timezone, tick.In(place))
			}
			// Nothing was passed over: from just before it, the same tick is found, whatever part of the zone's past is looked at.
			if again, ok := s.Next(tick.Add(-time.Nanosecond)); !ok || !again.Equal(tick) {
				t.Fatalf("%q in %s: %v, and from just before it %v", expression, timezone, tick, again)
			}
			previous = tick
		}
	})
}
