package engine

import (
	"testing"
	"testing/synctest"

	"github.com/nelkap/nelkap/internal/store"
)

// Rule C1: "I do not hear it" counts only where it was said after the question. A look that was under way at the question shows nothing of that.
func TestWhatWasSaidBeforeAQuestionAnswersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers("a")
		shows := func(look, beat int64) {
			t.Helper()
			if err := p.learn(look, []store.Node{{ID: "b", Beat: beat, State: []byte(`{}`)}}, nil, true); err != nil {
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
