package wire

import (
	"encoding/json"
	"time"
)

// Terms are what a step without a body asks of the server. Kind says which of the fields count; what is zero is not sent, but
// for a sleep's Delay and a claim's Key.
type Terms struct {
	Op   string // OpWait, OpClaim, OpCallback or OpUndo
	Kind string

	// Of a sleep: until an instant, or where that is zero for Delay from its registration.
	Until time.Time
	Delay time.Duration

	// Of a wait for an event. Since is "run" where it is empty.
	Events []string
	Match  []Match
	If     string
	Since  string

	// Of an invoke: the child's workflow, its app where it is another one, and its payload.
	Workflow string
	App      string
	Payload  json.RawMessage

	// Of a claim. Once is a workflow's own (K4).
	Key       string
	FreedWhen string // "failed", or empty
	For       time.Duration
	Once      bool

	Of      int            // of the wait for a callback: the number of the step that made it
	Timeout *time.Duration // of all but sleeps and claims; nil: none, and 0: only what is there already
}

// Match is a path of an event and the value that it must have there.
type Match struct {
	Path  string
	Value json.RawMessage
}

// milliseconds are d rounded up: nothing is over before its time.
func milliseconds(d time.Duration) int64 {
	n := d.Milliseconds()
	if d > time.Duration(n)*time.Millisecond {
		n++
	}
	return n
}

func appendDuration(b []byte, field string, d time.Duration) []byte {
	if d == 0 {
		return b
	}
	return appendInt(b, field, milliseconds(d))
}

func appendGiven(b []byte, field, s string) []byte {
	if s == "" {
		return b
	}
	return appendText(b, field, s)
}

// appendFields appends the fields of the kind, each with a comma before it.
func (t *Terms) appendFields(b []byte) []byte {
	switch t.Kind {
	case KindSleep:
		if t.Until.IsZero() {
			return appendInt(b, `,"delayMs":`, milliseconds(t.Delay))
		}
		return appendTime(b, `,"until":`, t.Until.Add(time.Millisecond-1))
	case KindEvent:
		b = t.appendEvent(b)
	case KindInvoke:
		b = appendText(b, `,"workflow":`, t.Workflow)
		b = appendGiven(b, `,"app":`, t.App)
		b = appendRaw(b, `,"payload":`, t.Payload)
	case KindClaim:
		b = appendText(b, `,"key":`, t.Key)
		b = appendGiven(b, `,"until":`, t.FreedWhen)
		b = appendDuration(b, `,"forMs":`, t.For)
		if t.Once {
			b = append(b, `,"once":true`...)
		}
	}
	if t.Of > 0 {
		b = appendInt(b, `,"of":`, int64(t.Of))
	}
	if t.Timeout != nil {
		b = appendInt(b, `,"timeoutMs":`, milliseconds(*t.Timeout))
	}
	return b
}

func (t *Terms) appendEvent(b []byte) []byte {
	b = append(b, `,"events":[`...)
	for i, name := range t.Events {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(b, name)
	}
	b = append(b, ']')
	for i, m := range t.Match {
		opening := `,"match":{`
		if i > 0 {
			opening = `,`
		}
		b = append(append(appendText(b, opening, m.Path), ':'), m.Value...)
	}
	if len(t.Match) > 0 {
		b = append(b, '}')
	}
	b = appendGiven(b, `,"if":`, t.If)
	return appendGiven(b, `,"since":`, t.Since)
}

// size is about how many bytes the terms take in a request; those of a body are none.
func (t *Terms) size() int {
	if t == nil {
		return 0
	}
	size := 128 + len(t.If) + len(t.Workflow) + len(t.App) + len(t.Payload) + len(t.Key)
	for _, name := range t.Events {
		size += 8 + len(name)
	}
	for _, m := range t.Match {
		size += 8 + len(m.Path) + len(m.Value)
	}
	return size
}
