package core

import (
	"testing"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// Rule W9.
func TestSavedEntriesAreShownInTheOrderOfTheHistoryWhateverIsAskedFirst(t *testing.T) {
	b := playing(t, wire.Call{Steps: wire.Steps{Entries: []wire.Entry{
		{Entry: 1, Kind: "run", Name: "late", Number: 1, Status: "completed"}, {Entry: 2, Kind: "run", Name: "early", Number: 1, Status: "completed"},
	}}}, Config{})
	b.want("code")
	b.m.Fork(b.m.Root(), &Fork{Size: 2}, b.now)
	left := b.branch("branch 0")
	b.askOn(left, "early")
	right := b.branch("branch 1")
	b.askOn(right, "late")
	b.want("release late1") // H1: and nothing more, until the code rests again
	b.askOn(right, "next")
	b.want("release early1") // nothing new starts before what is saved was shown
	b.askOn(left, "next")
	b.want("body next1", "body next2")
}
