package schedule_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nelkap/nelkap/internal/schedule"
)

// instants are times of the first of March 2026, such as 09:30:00.
func instants(t testing.TB, texts ...string) []time.Time {
	t.Helper()
	var all []time.Time
	for _, text := range texts {
		all = append(all, at(t, "2026-03-01T"+text+"Z"))
	}
	return all
}

// D2, and C5 of the scenarios: a server was away, or slow, and comes back at some moment.
func TestTicksThatWereMissedFollowTheRule(t *testing.T) {
	const every15 = "*/15 * * * *"
	tests := []struct {
		story, expression, cursor, now string
		rule                           schedule.CatchUp
		ticks                          []string
		skipped                        int
		movesTo                        string
	}{
		{"nothing has passed", every15, "09:00:00", "09:14:59", schedule.CatchUpAll, nil, 0, "09:00:00"},
		{"a tick is due at its instant", every15, "09:00:00", "09:15:00", schedule.CatchUpNone, []string{"09:15:00"}, 0, "09:15:00"},
		{"a busy second is no miss", every15, "09:00:00", "09:15:59", schedule.CatchUpNone, []string{"09:15:00"}, 0, "09:15:00"},
		{"a minute later it is one", every15, "09:00:00", "09:16:00", schedule.CatchUpNone, nil, 1, "09:15:00"},
		{"none starts only what is on time", every15, "09:00:00", "10:00:10", schedule.CatchUpNone, []string{"10:00:00"}, 3, "10:00:00"},
		{"last makes up one", every15, "09:00:00", "10:10:00", schedule.CatchUpLast, []string{"10:00:00"}, 3, "10:00:00"},
		{"last is on time as well", every15, "09:00:00", "09:15:00", schedule.CatchUpLast, []string{"09:15:00"}, 0, "09:15:00"},
		{"all makes up each", every15, "09:00:00", "10:10:00", schedule.CatchUpAll, []string{"09:15:00", "09:30:00", "09:45:00", "10:00:00"}, 0, "10:00:00"},
		{"the cursor's own tick was had", every15, "09:15:00", "09:15:00", schedule.CatchUpAll, nil, 0, "09:15:00"},
		{"a cursor between ticks, as of a first registration", every15, "09:07:12", "09:15:01", schedule.CatchUpAll, []string{"09:15:00"}, 0, "09:15:00"},
		{"a first registration catches nothing up", every15, "09:20:00", "09:20:00", schedule.CatchUpAll, nil, 0, "09:20:00"},
		{"90 s away, each minute, none", "* * * * *", "09:00:00", "09:01:30", schedule.CatchUpNone, []string{"09:01:00"}, 0, "09:01:00"},
		{"ten minutes away, each minute, none", "* * * * *", "09:00:00", "09:10:30", schedule.CatchUpNone, []string{"09:10:00"}, 9, "09:10:00"},
		{"an unknown rule starts nothing that is late", every15, "09:00:00", "09:20:00", "", nil, 1, "09:15:00"},
	}
	for _, test := range tests {
		moments := instants(t, test.cursor, test.now, test.movesTo)
		got := parse(t, test.expression, "").Due(moments[0], moments[1], test.rule)
		want := schedule.Due{Ticks: instants(t, test.ticks...), Skipped: test.skipped, Cursor: moments[2]}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", test.story, diff)
		}
		if again := parse(t, test.expression, "").Due(got.Cursor, moments[1], test.rule); len(again.Ticks) > 0 || again.Skipped > 0 || !again.Cursor.Equal(got.Cursor) {
			t.Errorf("%s: and once more: %+v", test.story, again)
		}
	}
}

// D2: what is made up is bounded, and it is the latest of what was missed.
func TestAllIsBounded(t *testing.T) {
	cursor, now := at(t, "2026-03-01T00:00:00Z"), at(t, "2026-03-03T00:00:30Z")
	due := parse(t, "* * * * *", "").Due(cursor, now, schedule.CatchUpAll)
	if len(due.Ticks) != schedule.TicksMax || due.Skipped != schedule.TicksMax {
		t.Fatalf("%d ticks and %d skipped, want 1,000 of each: 2,880 have passed, and counting stops", len(due.Ticks), due.Skipped)
	}
	if first, last := due.Ticks[0], due.Ticks[len(due.Ticks)-1]; !last.Equal(at(t, "2026-03-03T00:00:00Z")) || last.Sub(first) != 999*time.Minute || !due.Cursor.Equal(last) {
		t.Errorf("from %v to %v, and the cursor at %v", first, last, due.Cursor)
	}
	due = parse(t, "0 * * * *", "").Due(time.Time{}, now, schedule.CatchUpLast)
	if len(due.Ticks) != 1 || due.Skipped != schedule.TicksMax {
		t.Errorf("from a cursor that was never set: %d ticks, %d skipped", len(due.Ticks), due.Skipped)
	}
}

// D2: a schedule whose cursor is ahead of the clock can be reported, and starts nothing until the clock is there.
func TestACursorAheadOfTheClockIsToldAndStartsNothing(t *testing.T) {
	s, moments := parse(t, "* * * * *", ""), instants(t, "10:00:00", "09:00:00")
	due := s.Due(moments[0], moments[1], schedule.CatchUpAll)
	if diff := cmp.Diff(schedule.Due{Cursor: moments[0], Ahead: time.Hour}, due); diff != "" {
		t.Error(diff)
	}
}

// Promise 11: however often and whenever a node looks, and whatever the rule, no tick comes twice; with all, none is lost.
func TestLooksAtAnyMomentsGiveEachTickOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"Europe/Berlin", "Australia/Lord_Howe", "Asia/Beirut", "UTC"}).Draw(t, "zone")
		s, err := schedule.Parse(drawExpression(t), name)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Date(2026, time.Month(rapid.SampledFrom([]int{3, 4, 10}).Draw(t, "month")), 1, 0, 0, 0, 0, time.UTC)
		begin = begin.Add(time.Duration(rapid.Int64Range(0, int64(30*24*time.Hour)).Draw(t, "begin")))
		rule := rapid.SampledFrom([]schedule.CatchUp{schedule.CatchUpAll, schedule.CatchUpLast, schedule.CatchUpNone}).Draw(t, "rule")
		cursor, now := begin, begin
		var got []time.Time
		skipped := 0
		for range rapid.IntRange(1, 20).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(12*time.Hour)).Draw(t, "pause")))
			due := s.Due(cursor, now, rule)
			got, cursor, skipped = append(got, due.Ticks...), due.Cursor, skipped+due.Skipped
		}
		want := between(s, begin.Add(1), now.Add(1))
		if rule == schedule.CatchUpAll && skipped == 0 && cmp.Diff(want, got) != "" {
			t.Fatalf("all: %v", cmp.Diff(want, got))
		}
		if len(got)+skipped != len(want) {
			t.Fatalf("%d ticks and %d skipped of %d", len(got), skipped, len(want))
		}
		for i := range got {
			if i > 0 && !got[i].After(got[i-1]) {
				t.Fatalf("%v after %v", got[i], got[i-1])
			}
		}
	})
}

func TestRulesOfCatchingUp(t *testing.T) {
	for text, want := range map[string]schedule.CatchUp{"": schedule.CatchUpNone, "none": schedule.CatchUpNone, "last": schedule.CatchUpLast, "all": schedule.CatchUpAll} {
		if got, err := schedule.ParseCatchUp(text); got != want || err != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if _, err := schedule.ParseCatchUp("every"); err == nil || err.Error() != `catchUp can't be "every": write none, last or all` {
		t.Errorf("got %v", err)
	}
}
