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
	other := &Branch{}
	b.m.busy++ // a second line of the code runs beside the first
	b.ask("early")
	b.want()
	ask := func(name string) {
		if _, err := b.m.Ask(other, name, AskOptions{}, nil, b.now); err != nil {
			t.Fatal(err)
		}
	}
	ask("late")
	b.want("release late1") // H1: and nothing more, until the code rests again
	ask("next")
	b.want("body next1", "release early1")
}
