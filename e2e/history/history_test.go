package history

import (
	"strings"
	"testing"
	"time"
)

// span is a time in which something was asked and answered, in whatever unit.
func span(asked, heard int64) Span { return Span{asked, heard} }

// ended is what a read shows of a run that has ended.
func ended(status string) Seen {
	return Seen{Found: true, CancelAsked: status == cancelled, Status: status, Final: status + " at noon"}
}

var (
	open    = Seen{Found: true, Status: "running"}
	asking  = Seen{Found: true, Status: "running", CancelAsked: true}
	absent  = Seen{}
	one     = Step{"run_1", "one"}
	created = &Claimed{ID: "run_1", Created: true}
	found   = &Claimed{ID: "run_1"}
)

// stories are histories by hand. Each one that is wrong differs from one that is right in a single thing.
var stories = []struct {
	name  string
	wrong bool
	tell  func(h *History)
}{
	{"the second claim of a key is answered with the first one's run", false, func(h *History) {
		h.Claim(span(1, 2), "key", Claim{ID: "run_1", Drawn: true}, created)
		h.Claim(span(3, 4), "key", Claim{ID: "run_2", Drawn: true}, found)
	}},
	{"a key has two runs", true, func(h *History) {
		h.Claim(span(1, 2), "key", Claim{ID: "run_1", Drawn: true}, created)
		h.Claim(span(3, 4), "key", Claim{ID: "run_2", Drawn: true}, &Claimed{ID: "run_2", Created: true})
	}},
	{"the same request again is answered as the first time", false, func(h *History) {
		h.Claim(span(1, 2), "key", Claim{ID: "run_1", Drawn: true}, created)
		h.Claim(span(3, 4), "key", Claim{ID: "run_2", Drawn: true}, found)
		h.Claim(span(5, 6), "key", Claim{ID: "run_1", Drawn: true}, created)
	}},
	{"the same request again is answered otherwise", true, func(h *History) {
		h.Claim(span(1, 2), "key", Claim{ID: "run_1", Drawn: true}, created)
		h.Claim(span(3, 4), "key", Claim{ID: "run_1", Drawn: true}, found)
	}},
	{"a key's run is created by two", true, func(h *History) {
		h.Claim(span(1, 2), "key", Claim{ID: "run_1", Drawn: true}, created)
		h.Claim(span(3, 4), "key", Claim{ID: "run_2", Drawn: true}, created)
	}},
	{"an event is created twice", true, func(h *History) {
		h.Claim(span(1, 2), "event", Claim{ID: "event"}, &Claimed{ID: "event", Created: true})
		h.Claim(span(3, 4), "event", Claim{ID: "event"}, &Claimed{ID: "event", Created: true})
	}},
	{"a key's run is created by nobody", true, func(h *History) {
		h.Claim(span(1, 2), "key", Claim{ID: "run_1", Drawn: true}, found)
		h.Claim(span(3, 4), "key", Claim{ID: "run_2", Drawn: true}, found)
	}},
	{"a claim without an answer may have created the run", false, func(h *History) {
		h.Claim(span(1, 2), "key", Claim{ID: "run_1", Drawn: true}, nil)
		h.Claim(span(3, 4), "key", Claim{ID: "run_2", Drawn: true}, found)
	}},
	{"a claim without an answer may have done nothing", false, func(h *History) {
		h.Claim(span(1, 2), "key", Claim{ID: "run_2", Drawn: true}, nil)
		h.Claim(span(3, 4), "key", Claim{ID: "run_1", Drawn: true}, created)
	}},
	{"a claim without an answer may be late", false, func(h *History) {
		h.Claim(span(1, 2), "key", Claim{ID: "run_1", Drawn: true}, nil)
		h.Claim(span(3, 4), "other", Claim{ID: "run_2", Drawn: true}, &Claimed{ID: "run_2", Created: true})
		h.Claim(span(5, 6), "key", Claim{ID: "run_3", Drawn: true}, found)
	}},
	{"a run is answered before anyone has asked for it", true, func(h *History) {
		h.Claim(span(1, 2), "key", Claim{ID: "run_2", Drawn: true}, found)
		h.Claim(span(3, 4), "key", Claim{ID: "run_1", Drawn: true}, nil)
	}},
	{"of two claims at a time either may be first", false, func(h *History) {
		h.Claim(span(1, 5), "key", Claim{ID: "run_2", Drawn: true}, found)
		h.Claim(span(2, 4), "key", Claim{ID: "run_1", Drawn: true}, created)
	}},
	{"an event's second payload differs, and the answer says so", false, func(h *History) {
		h.Claim(span(1, 2), "event", Claim{ID: "event", Value: "a"}, &Claimed{ID: "event", Created: true})
		h.Claim(span(3, 4), "event", Claim{ID: "event", Value: "b"}, &Claimed{ID: "event", Differs: true})
	}},
	{"an event's second payload differs, and the answer does not say so", true, func(h *History) {
		h.Claim(span(1, 2), "event", Claim{ID: "event", Value: "a"}, &Claimed{ID: "event", Created: true})
		h.Claim(span(3, 4), "event", Claim{ID: "event", Value: "b"}, &Claimed{ID: "event"})
	}},

	{"a run goes on and ends", false, func(h *History) {
		h.Read(span(1, 2), "run_1", absent)
		h.Start(span(3, 4), "run_1", true)
		h.Read(span(5, 6), "run_1", open)
		h.Read(span(7, 8), "run_1", ended("completed"))
		h.Read(span(9, 10), "run_1", ended("completed"))
	}},
	{"an acknowledged run is lost", true, func(h *History) {
		h.Start(span(3, 4), "run_1", true)
		h.Read(span(5, 6), "run_1", absent)
	}},
	{"a run that nobody acknowledged may not be there", false, func(h *History) {
		h.Start(span(3, 4), "run_1", false)
		h.Read(span(5, 6), "run_1", absent)
	}},
	{"a run that was there is gone", true, func(h *History) {
		h.Start(span(1, 2), "run_1", false)
		h.Read(span(3, 4), "run_1", open)
		h.Read(span(5, 6), "run_1", absent)
	}},
	{"an ended run goes on", true, func(h *History) {
		h.Read(span(1, 2), "run_1", ended("completed"))
		h.Read(span(3, 4), "run_1", open)
	}},
	{"a final status changes", true, func(h *History) {
		h.Read(span(1, 2), "run_1", ended("completed"))
		h.Read(span(3, 4), "run_1", ended("failed"))
	}},
	{"reads at a time may overtake one another", false, func(h *History) {
		h.Read(span(1, 4), "run_1", ended("completed"))
		h.Read(span(3, 5), "run_1", open)
	}},
	{"a run is cancelled", false, func(h *History) {
		h.Cancel(span(1, 2), "run_1", true)
		h.Read(span(1, 2), "run_1", asking)
		h.Read(span(3, 4), "run_1", ended("cancelled"))
	}},
	{"an acknowledged cancellation is forgotten", true, func(h *History) {
		h.Cancel(span(1, 2), "run_1", true)
		h.Read(span(3, 4), "run_1", open)
	}},
	{"a run completes after its cancellation was acknowledged", true, func(h *History) {
		h.Cancel(span(1, 2), "run_1", true)
		h.Read(span(1, 2), "run_1", asking)
		h.Read(span(3, 4), "run_1", ended("completed"))
	}},
	{"a cancellation comes after the end", false, func(h *History) {
		h.Cancel(span(1, 2), "run_1", true)
		h.Read(span(1, 2), "run_1", ended("completed"))
		h.Read(span(3, 4), "run_1", ended("completed"))
	}},
	{"a run is cancelled and nobody asked for it", true, func(h *History) {
		h.Read(span(3, 4), "run_1", ended("cancelled"))
	}},
	{"a cancellation without an answer may come late", false, func(h *History) {
		h.Cancel(span(1, 2), "run_1", false)
		h.Read(span(3, 4), "run_1", open)
		h.Read(span(5, 6), "run_1", asking)
		h.Read(span(7, 8), "run_1", ended("cancelled"))
	}},

	{"a step is saved and passed", false, func(h *History) {
		h.Saved(span(1, 2), one, "")
		h.Begins(span(3, 3), one)
		h.Begins(span(4, 4), one)
		h.Passed(span(5, 5), one)
		h.Saved(span(6, 7), one, "a")
		h.Saved(span(8, 9), one, "a")
	}},
	{"a saved result changes", true, func(h *History) {
		h.Saved(span(1, 2), one, "a")
		h.Saved(span(3, 4), one, "b")
	}},
	{"a saved result is lost", true, func(h *History) {
		h.Saved(span(1, 2), one, "a")
		h.Saved(span(3, 4), one, "")
	}},
	{"a body begins after its step was seen saved", true, func(h *History) {
		h.Saved(span(1, 2), one, "a")
		h.Begins(span(3, 3), one)
	}},
	{"a body begins while a read is under way", false, func(h *History) {
		h.Saved(span(1, 4), one, "a")
		h.Begins(span(3, 3), one)
	}},
	{"a body begins after the code has gone on", true, func(h *History) {
		h.Passed(span(1, 1), one)
		h.Begins(span(3, 3), one)
	}},
	{"the code goes on past a step that is not saved", true, func(h *History) {
		h.Passed(span(1, 1), one)
		h.Saved(span(3, 4), one, "")
	}},
}

func TestWrongHistoriesAreFound(t *testing.T) {
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			h := New()
			story.tell(h)
			v := h.Check()
			if wrong := len(v.Violations) > 0; wrong != story.wrong {
				t.Errorf("wrong: %v, want %v: %v", wrong, story.wrong, v.Violations)
			}
		})
	}
}

func TestOneWrongPartAmongManyIsNamed(t *testing.T) {
	h := New()
	for i := range 100 {
		name := "key " + string(rune('a'+i))
		h.Claim(span(1, 2), name, Claim{ID: "run_1", Drawn: true}, created)
		h.Claim(span(3, 4), name, Claim{ID: "run_2", Drawn: true}, found)
	}
	h.Claim(span(5, 6), "key b", Claim{ID: "run_3", Drawn: true}, &Claimed{ID: "run_3", Created: true})
	v := h.Check()
	if len(v.Violations) != 1 || !strings.Contains(v.Violations[0], "claim key b") || !strings.Contains(v.Violations[0], "run_3") {
		t.Errorf("the violations: %v", v.Violations)
	}
	if v.Parts != 100 || v.Operations["claim"] != 201 || v.Lost != 0 {
		t.Errorf("counted: %+v", v)
	}
}

// A server that is away makes many requests of no answer; the check must stay fast with them.
func TestManyLostAnswersAreDecided(t *testing.T) {
	h := New()
	const lost = 1_000
	for i := range lost {
		h.Claim(span(int64(i), 0), "key", Claim{ID: "run_1", Drawn: true}, nil)
		h.Cancel(span(int64(i), 0), "run_1", false)
	}
	h.Claim(span(lost, lost+1), "key", Claim{ID: "run_2", Drawn: true}, &Claimed{ID: "run_2", Created: true})
	h.Claim(span(lost+2, lost+3), "key", Claim{ID: "run_1", Drawn: true}, created)
	begun := time.Now()
	v := h.Check()
	if len(v.Violations) != 1 || v.Lost != 2 {
		t.Errorf("lost %d, violations: %v", v.Lost, v.Violations)
	}
	t.Logf("decided in %v", time.Since(begun))
}
