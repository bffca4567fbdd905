package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
)

// transcript is one file of protocol/transcripts; its README says how it is played.
type transcript struct {
	Title    string           `json:"title"`
	Workflow string           `json:"workflow"`
	SDKOnly  bool             `json:"sdkOnly"`
	Lines    []map[string]any `json:"lines"`
}

func TestTheServerHoldsTheTranscripts(t *testing.T) {
	files, err := filepath.Glob("../../protocol/transcripts/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	played := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var tr transcript
		if err := json.Unmarshal(data, &tr); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if tr.SDKOnly {
			continue
		}
		played++
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newPlayer(t, tr).play() })
		})
	}
	if played == 0 {
		t.Fatal("no transcript was played")
	}
}

// player is the app's side of a transcript.
type player struct {
	*testing.T
	tr      transcript
	app     *app
	store   *memory.Store
	node    *node
	run     string
	call    *sentCall
	values  map[string]any // what texts that start with $ stand for
	polling context.CancelFunc
}

func newPlayer(t *testing.T, tr transcript) *player {
	p := &player{T: t, tr: tr, app: newApp(wire.Workflow{Name: tr.Workflow, OnFailure: tr.Workflow == "on failure"}), store: memory.New(), values: map[string]any{}}
	for i := range 9 {
		p.values[fmt.Sprintf("$nonce%d", i+1)] = fmt.Sprintf("nonce-%d", i+1)
	}
	p.node = startNode(t, p.store, p.app, engine.Options{})
	p.node.know(t)
	started, err := p.node.StartRun(context.Background(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: tr.Workflow, Payload: p.payload()})
	if err != nil {
		t.Fatal(err)
	}
	p.run = started.Run.ID
	return p
}

// payload is what the first call gives the run.
func (p *player) payload() jsontext.Value {
	message, _ := p.tr.Lines[0]["message"].(map[string]any)
	run, _ := message["run"].(map[string]any)
	if payload, given := run["payload"]; given {
		return p.encode(payload)
	}
	return jsontext.Value(`null`)
}

func (p *player) play() {
	var last map[string]any // the server's answer to the line before
	for i, line := range p.tr.Lines {
		switch {
		case line["server"] == "call":
			p.receive(line)
		case line["server"] == "run":
			p.checkRun(line)
		case line["server"] != nil:
			p.compare(fmt.Sprintf("line %d", i+1), line["message"], last)
		case line["world"] != nil:
			p.world(line)
		case line["sdk"] == "save" && line["lost"] != "request":
			last = p.save(line)
		case line["sdk"] == "end" && line["lost"] != "request":
			last = p.end(line)
		case line["sdk"] == "answer":
			p.stopPolling()
			p.call.answer <- call.Outcome{Kind: call.Answered, Body: p.encode(line["message"])}
			synctest.Wait()
		}
	}
	p.app.none(p.T, 100*time.Millisecond)
	p.stopPolling()
}

func (p *player) receive(line map[string]any) {
	p.stopPolling()
	p.call = p.app.next(p.T, 10*time.Second)
	got := map[string]any{}
	p.decode(p.encode(p.call.Call), &got)
	p.compareSome("call", line["message"].(map[string]any), got)
}

func (p *player) world(line map[string]any) {
	switch line["world"] {
	case "time":
		time.Sleep(time.Duration(line["ms"].(float64)) * time.Millisecond)
		synctest.Wait()
	case "cancel":
		if _, err := p.node.Cancel(context.Background(), engine.DefaultEnv, p.run, false); err != nil {
			p.Fatal(err)
		}
	case "connection closed":
		select {
		case <-p.call.ctx.Done(): // the restart closed it already
		default:
			p.call.lose()
		}
		p.poll()
	case "event":
		p.node.emit(p.T, engine.NewEvent{Name: line["event"].(string), Payload: p.encode(line["payload"])})
		synctest.Wait()
	case "process killed":
		p.stopPolling()
		p.call.lose()
	case "restart":
		p.stopPolling()
		p.node.stop()
		p.node = startNode(p.T, p.store, p.app, engine.Options{})
	case "api unreachable":
	default:
		p.Fatalf("no such world: %v", line["world"])
	}
}

// poll names the call for as long as its process plays it, as an SDK does whose connection is gone.
func (p *player) poll() {
	ctx, cancel := context.WithCancel(context.Background())
	p.polling = cancel
	f := p.call.fence(p.values[fmt.Sprintf("$nonce%d", p.call.Call.Call.Epoch)].(string))
	go func() {
		for ctx.Err() == nil {
			if _, err := p.node.Heartbeat(ctx, wire.Heartbeat{Process: "process", Calls: []wire.Named{{Fence: f}}, WaitMs: 5000}); err != nil {
				return
			}
		}
	}()
	synctest.Wait()
}

func (p *player) stopPolling() {
	if p.polling != nil {
		p.polling()
		p.polling = nil
	}
}

func (p *player) save(line map[string]any) map[string]any {
	var save wire.Save
	p.decode(p.encode(line["message"]), &save)
	answer := p.node.Save(context.Background(), wire.Saves{Process: "process", Saves: []wire.Save{save}})
	return p.object(answer.Saves[0])
}

func (p *player) end(line map[string]any) map[string]any {
	var end wire.SentEnd
	p.decode(p.encode(line["message"]), &end)
	answer := p.node.End(context.Background(), wire.Ends{Process: "process", Ends: []wire.SentEnd{end}})
	p.stopPolling()
	synctest.Wait()
	return p.object(answer.Ends[0])
}

func (p *player) checkRun(line map[string]any) {
	synctest.Wait()
	r := p.node.run(p.T, p.run)
	got := map[string]any{"status": string(r.Status)}
	if r.Output != nil {
		var output any
		p.decode(r.Output, &output)
		got["output"] = output
	}
	if _, wanted := line["message"].(map[string]any)["error"]; wanted {
		var thrown any
		p.decode(r.Error, &thrown)
		got["error"] = thrown
	}
	p.compare("run", line["message"], got)
}

// encode writes a message with its variables put in.
func (p *player) encode(message any) []byte {
	b, err := json.Marshal(p.put(message))
	if err != nil {
		p.Fatal(err)
	}
	return b
}

func (p *player) decode(data []byte, into any) {
	if err := wire.Decode(data, into); err != nil {
		p.Fatalf("%v: %s", err, data)
	}
}

func (p *player) object(message any) map[string]any {
	out := map[string]any{}
	b, err := wire.Encode(message)
	if err != nil {
		p.Fatal(err)
	}
	p.decode(b, &out)
	return out
}

func (p *player) put(v any) any {
	switch v := v.(type) {
	case string:
		if known, ok := p.values[v]; ok {
			return known
		}
		return v
	case map[string]any:
		out := map[string]any{}
		for name, field := range v {
			out[name] = p.put(field)
		}
		return out
	case []any:
		out := []any{}
		for _, element := range v {
			out = append(out, p.put(element))
		}
		return out
	}
	return v
}

// left are the fields that transcripts leave out of every comparison.
var left = map[string]bool{"startedAt": true, "endedAt": true, "createdAt": true, "time": true, "sentAt": true, "process": true, "manifest": true, "stack": true, "url": true, "limits": true}

// compare checks a whole message. Empty lists and nulls may be absent.
func (p *player) compare(what string, want, got any) {
	p.Helper()
	p.bind(want, got)
	if diff := cmp.Diff(clean(p.put(want)), clean(got)); diff != "" {
		p.Fatalf("%s: (-want +got)\n%s", what, diff)
	}
}

// compareSome checks the fields that the transcript gives.
func (p *player) compareSome(what string, want, got map[string]any) {
	p.Helper()
	for name, field := range want {
		if inner, ok := field.(map[string]any); ok && got[name] != nil {
			p.compareSome(what+"."+name, inner, got[name].(map[string]any))
			continue
		}
		p.compare(what+"."+name, field, got[name])
	}
}

// bind learns what the server's values are.
func (p *player) bind(want, got any) {
	switch want := want.(type) {
	case string:
		if strings.HasPrefix(want, "$") && p.values[want] == nil {
			p.values[want] = got
		}
	case map[string]any:
		if got, ok := got.(map[string]any); ok {
			for name, field := range want {
				p.bind(field, got[name])
			}
		}
	case []any:
		if got, ok := got.([]any); ok {
			for i := range min(len(want), len(got)) {
				p.bind(want[i], got[i])
			}
		}
	}
}

func clean(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, field := range v {
			cleaned := clean(field)
			if list, ok := cleaned.([]any); left[name] || cleaned == nil || (ok && len(list) == 0) {
				continue
			}
			out[name] = cleaned
		}
		return out
	case []any:
		out := []any{}
		for _, element := range v {
			out = append(out, clean(element))
		}
		return out
	}
	return v
}
