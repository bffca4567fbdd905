package sim

import (
	"encoding/json/v2"
	"net/http"

	"github.com/nelkap/nelkap/internal/wire"
)

// grave answers a message of a process that has died, once the simulation is over: whatever it still plays is superseded, so that its
// goroutines end.
func (w *world) grave(m *message) *answer {
	a := newAnswer()
	a.header.Set("Content-Type", "application/json")
	now := wire.At(w.now())
	var body any
	switch m.kind {
	case "save":
		var sent wire.Saves
		json.Unmarshal(m.body, &sent) //nolint:errcheck // the SDK wrote it
		out := wire.SavesAnswer{Time: now, Saves: []wire.SaveOutcome{}}
		for _, s := range sent.Saves {
			out.Saves = append(out.Saves, wire.SaveOutcome{Call: s.Call, Status: wire.Superseded})
		}
		body = out
	case "poll":
		var sent wire.Heartbeat
		json.Unmarshal(m.body, &sent) //nolint:errcheck // the SDK wrote it
		out := wire.HeartbeatAnswer{Time: now, Calls: []wire.News{}}
		for _, f := range sent.Calls {
			out.Calls = append(out.Calls, wire.News{Call: f.Call, Nonce: f.Nonce, Status: wire.Superseded})
		}
		body = out
	case "end":
		var sent wire.Ends
		json.Unmarshal(m.body, &sent) //nolint:errcheck // the SDK wrote it
		out := wire.EndsAnswer{Time: now, Ends: []wire.EndOutcome{}}
		for _, e := range sent.Ends {
			out.Ends = append(out.Ends, wire.EndOutcome{Call: e.Call, Status: wire.Superseded})
		}
		body = out
	default:
		a.header.Set("Content-Type", "application/problem+json")
		a.WriteHeader(http.StatusConflict)
		a.body.WriteString(`{"code":"superseded"}`)
		return a
	}
	text, err := wire.Encode(body)
	if err != nil {
		panic("sim: " + err.Error())
	}
	a.WriteHeader(http.StatusOK)
	a.body.Write(text)
	return a
}
