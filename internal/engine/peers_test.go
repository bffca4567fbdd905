package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/store"
)

// Rule C1: "I do not hear it" counts only where it was said after the question. A look that was under way at the question shows nothing of that.
func TestWhatWasSaidBeforeAQuestionAnswersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers("a")
		shows := func(l look, beat int64) {
			t.Helper()
			if err := p.learn(l, []store.Node{{ID: "b", Beat: beat, State: []byte(`{}`)}}, nil, true); err != nil {
				t.Fatal(err)
			}
		}
		shows(p.look(), 1)
		underWay := p.look()
		asked, _ := p.looked()
		// The heartbeats 2 and 3 come before the question, or after what the look has read; 4 is written after a look that began later.
		shows(underWay, 2)
		shows(p.look(), 3)
		if p.spoken(asked) {
			t.Error("what the look under way, or the one after it, showed is taken for an answer")
		}
		shows(p.look(), 4)
		if p.spoken(asked) {
			t.Error("what may have been gathered before the question is taken for an answer")
		}
		shows(p.look(), 4)
		if p.spoken(asked) {
			t.Error("a heartbeat that was seen before is taken for another")
		}
		shows(p.look(), 5)
		if !p.spoken(asked) {
			t.Error("the answer is not taken")
		}
	})
}

// A node that was away for so long that another may have found it lost takes nothing until that one has seen it, also where it looked at the
// others before its own heartbeat was written.
func TestWhoWasAwayTakesNothingAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers("a")
		shows := func(beat int64, beaten bool) {
			t.Helper()
			if err := p.learn(p.look(), []store.Node{{ID: "b", Beat: beat, State: []byte(`{}`)}}, nil, beaten); err != nil {
				t.Fatal(err)
			}
		}
		beat := int64(0)
		for range 10 {
			time.Sleep(beatEvery)
			beat++
			shows(beat, true)
		}
		app := appID{"default", "app"}
		if room := p.room(app, 4); room != 2 {
			t.Fatalf("it takes %d of four", room)
		}
		time.Sleep(lostAfter)
		beat += int64(lostAfter / beatEvery)
		shows(beat, false)
		shows(beat, true)
		if room := p.room(app, 4); room != 0 {
			t.Errorf("it takes %d of four, which the other may have taken", room)
		}
		for passed := time.Duration(0); passed <= settleTime; passed += beatEvery {
			time.Sleep(beatEvery)
			beat++
			shows(beat, true)
		}
		if room := p.room(app, 4); room != 2 {
			t.Errorf("once the other has seen it, it takes %d of four", room)
		}
	})
}
