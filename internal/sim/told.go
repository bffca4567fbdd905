package sim

import (
	"bytes"
	"time"

	"github.com/nelkap/nelkap/internal/wire"
)

// told is what a call's process has heard of its end; zero: nothing.
type told struct {
	over   time.Time // it may save nothing more
	ending time.Time // its run is ending
}

// heard is told of an answer that has reached an app's process.
func (t *witness) heard(m *message, a *answer) {
	if a.status >= 300 || m.kind != "save" && m.kind != "poll" {
		return
	}
	body := a.body.Bytes()
	if !bytes.Contains(body, []byte(`"superseded"`)) && !bytes.Contains(body, []byte(`"ended"`)) && !bytes.Contains(body, []byte(`"ending"`)) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.kind == "save" {
		var sent wire.Saves
		var got wire.SavesAnswer
		if wire.Decode(m.body, &sent) != nil || wire.Decode(body, &got) != nil || len(got.Saves) != len(sent.Saves) {
			return // answered says so
		}
		for i := range got.Saves {
			t.hears(sent.Saves[i].Call, sent.Saves[i].Nonce, got.Saves[i].Status, got.Saves[i].Ending)
		}
		return
	}
	var got wire.HeartbeatAnswer
	wire.Decode(body, &got) //nolint:errcheck // likewise
	for i := range got.Calls {
		t.hears(got.Calls[i].Call, got.Calls[i].Nonce, got.Calls[i].Status, got.Calls[i].Ending)
	}
}

// hears takes in what a playing is told. Of one that has saved nothing it is not known whether it is the one whose code plays.
func (t *witness) hears(call, nonce, status string, ending *wire.EndingInfo) {
	c := t.calls[call]
	if c == nil || c.nonce != nonce {
		return
	}
	if (status == wire.Superseded || status == wire.Ended) && c.told.over.IsZero() {
		c.told.over = time.Now()
	}
	if ending != nil && c.closing == nil && c.told.ending.IsZero() {
		c.told.ending = time.Now()
	}
}

// over tells whether the one playing of a call has heard before now that it may go no further, and what it has heard.
func (c *callRecord) over() (heard string, is bool) {
	now := time.Now()
	switch {
	case c == nil || !c.alone() || c.doubled:
	case !c.told.over.IsZero() && now.After(c.told.over):
		return "may save nothing more", true
	case !c.told.ending.IsZero() && now.After(c.told.ending):
		return "is of a run that is ending", true
	}
	return "", false
}

// alone tells whether a call has one playing. One of a closing plays the function and its handler.
func (c *callRecord) alone() bool { return max(c.handlers, c.playings-c.handlers) == 1 }

// worked is told that a step's body has done its work: if its playing has heard that it is over, so has its context (promise 4, Z1).
func (p *playing) worked(id stepID, ended bool) {
	t := p.witness
	t.mu.Lock()
	defer t.mu.Unlock()
	if heard, over := t.calls[p.call].over(); over && !ended {
		t.broken("Z1", "%s: its context goes on, and its playing has heard that call %s %s", id, p.call, heard)
	} else if over {
		t.world.report.reached(bodyAborted)
	}
}
