package core

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

const transcripts = "../../../../protocol/transcripts"

// ignored are the fields that transcripts leave out of every comparison.
var ignored = []string{"at", "startedAt", "endedAt", "createdAt", "time", "sentAt", "process", "manifest", "stack", "url", "limits"}

type transcript struct {
	Title    string
	Workflow string
	Retries  *int
	Lines    []line
}

type line struct {
	SDK, Server, App, World string
	Name                    string
	Number, Attempt         int
	Message                 json.RawMessage
	Lost                    string
	Output                  json.RawMessage
	Error                   *wire.Error
	Retriable               *bool
	RetryAfterMs            *int64
	After, Ms               int64
}

func thrownBy(e *wire.Entry) *thrown {
	if e.Error == nil {
		return nil
	}
	return &thrown{e.Error, true}
}

func text(s string) json.RawMessage { return wire.AppendString(nil, s) }

// steps runs the steps of names, one after the other, and gives the list of their results.
func steps(names ...string) function {
	return func(c *code) (json.RawMessage, *thrown) {
		var values [][]byte
		for _, name := range names {
			values = append(values, c.run(name).Output)
		}
		return list(values...), nil
	}
}

func list(values ...[]byte) json.RawMessage {
	return slices.Concat([]byte("["), bytes.Join(values, []byte(",")), []byte("]"))
}

// messageOf gives the message of what the step threw, or its result.
func messageOf(step func(c *code) *wire.Entry) function {
	return func(c *code) (json.RawMessage, *thrown) {
		e := step(c)
		if e.Error != nil {
			return text(e.Error.Message), nil
		}
		return e.Output, nil
	}
}

// resultOf gives the step's result, or lets what it threw pass.
func resultOf(step func(c *code) *wire.Entry) function {
	return func(c *code) (json.RawMessage, *thrown) {
		e := step(c)
		return e.Output, thrownBy(e)
	}
}

func step(name string) func(c *code) *wire.Entry {
	return func(c *code) *wire.Entry { return c.run(name) }
}

func child(c *code) *wire.Entry {
	return c.ask("child", AskOptions{Terms: &wire.Terms{
		Op: wire.OpWait, Kind: wire.KindInvoke, Workflow: "one step", Payload: json.RawMessage("7"),
	}})
}

// undoing asks for undos, then runs the step b.
func undoing(first ...func(c *code) *wire.Entry) function {
	return func(c *code) (json.RawMessage, *thrown) {
		for _, step := range first {
			if e := step(c); e.Error != nil {
				return nil, thrownBy(e)
			}
		}
		return resultOf(step("b"))(c)
	}
}

func undo(name string) func(c *code) *wire.Entry {
	return func(c *code) *wire.Entry { return c.undo(name) }
}

// lastly is a sleep that is the last step of its branch.
func lastly(name string, d time.Duration) function {
	return resultOf(func(c *code) *wire.Entry {
		return c.ask(name, AskOptions{Terms: &wire.Terms{Op: wire.OpWait, Kind: wire.KindSleep, Delay: d}, Last: true})
	})
}

func minute(c *code) (json.RawMessage, *thrown) {
	c.sleep("nap", time.Minute)
	return text("slept"), nil
}

// both runs functions side by side and gives the list of their results.
func both(functions ...function) function {
	return func(c *code) (json.RawMessage, *thrown) {
		var values [][]byte
		for _, b := range c.fork(&Fork{}, functions...).branches {
			values = append(values, b.Shell.(*code).output)
		}
		return list(values...), nil
	}
}

// first gives the result of the function that ends first.
func first(functions ...function) function {
	return func(c *code) (json.RawMessage, *thrown) {
		return decidedBy(c.fork(&Fork{Join: JoinRace}, functions...)).output, nil
	}
}

// fixtures are the workflows of the transcripts.
var fixtures = map[string]function{
	"one step":     resultOf(step("a")),
	"two steps":    steps("a", "b"),
	"same name":    steps("a", "a", "a"),
	"caught":       messageOf(step("a")),
	"nothing":      func(*code) (json.RawMessage, *thrown) { return nil, nil },
	"side by side": both(resultOf(step("a")), resultOf(step("b"))),
	"race":         first(resultOf(step("a")), resultOf(step("b"))),
	"sleep beside": both(resultOf(step("a")), minute),
	"sleep race":   first(resultOf(step("a")), minute),
	"invoke":       resultOf(child),
	"throws": func(c *code) (json.RawMessage, *thrown) {
		c.run("a")
		return nil, &thrown{&wire.Error{Name: "Error", Message: "no"}, false}
	},
	"renamed": func(c *code) (json.RawMessage, *thrown) {
		x := c.ask("b", AskOptions{Retries: c.r.retries, Was: "a"})
		return list(x.Output, c.run("a").Output), nil
	},
	"undo renamed": func(c *code) (json.RawMessage, *thrown) {
		c.ask("b", AskOptions{Terms: &wire.Terms{Op: wire.OpUndo, Kind: wire.KindUndo}, Undo: "its body", Was: "a"})
		return c.run("a").Output, nil
	},
	"sleep": func(c *code) (json.RawMessage, *thrown) {
		x := c.run("a")
		c.sleep("nap", time.Hour)
		return list(x.Output, c.run("b").Output), nil
	},
	"wait for event": func(c *code) (json.RawMessage, *thrown) {
		e := c.ask("approved", AskOptions{Terms: &wire.Terms{
			Op: wire.OpWait, Kind: wire.KindEvent, Events: []string{"order.approved"}, Timeout: new(time.Hour),
			Match: []wire.Match{{Path: "payload.id", Value: text("o_1")}},
		}})
		var event *struct{ Payload json.RawMessage }
		if err := json.Unmarshal(e.Output, &event); err != nil || event == nil {
			return json.RawMessage("null"), nil
		}
		return event.Payload, nil
	},
	"invoke caught": messageOf(child),
	"claim":         resultOf(func(c *code) *wire.Entry { return c.claim("one", "k1") }),
	"callback": func(c *code) (json.RawMessage, *thrown) {
		made := c.ask("approval", AskOptions{Terms: &wire.Terms{Op: wire.OpCallback, Kind: wire.KindCallback, Timeout: new(time.Hour)}})
		end := c.ask("approval", AskOptions{Terms: &wire.Terms{Op: wire.OpWait, Kind: wire.KindCallback, Of: made.Number}})
		var url, posted struct{ Token, Payload json.RawMessage }
		if json.Unmarshal(made.Output, &url) != nil || json.Unmarshal(end.Output, &posted) != nil {
			panic("the outputs are none of a callback's")
		}
		return list(url.Token, posted.Payload), nil
	},
	"check":      resultOf(func(c *code) *wire.Entry { return c.ask("a", AskOptions{Retries: 4, Check: true}) }),
	"undo":       undoing(step("a"), undo("give back")),
	"undo both":  undoing(undo("one"), undo("two")),
	"on failure": resultOf(step("a")),
	"restart": func(c *code) (json.RawMessage, *thrown) {
		c.run("a")
		if string(c.r.payload) == "0" {
			c.restart("1")
		}
		return c.r.payload, nil
	},
	"log": func(c *code) (json.RawMessage, *thrown) {
		c.log(wire.LevelInfo, "before", `{"n":1}`)
		c.run("a")
		c.log(wire.LevelInfo, "after", "")
		return nil, nil
	},
	"all sleeps": func(c *code) (json.RawMessage, *thrown) {
		_, err := both(lastly("x", time.Minute), lastly("y", 2*time.Minute))(c)
		return text("both"), err
	},
	"at most once": func(c *code) (json.RawMessage, *thrown) {
		e := c.ask("a", AskOptions{Once: true})
		if e.Error != nil {
			return text(e.Error.Name), nil
		}
		return e.Output, nil
	},
}

// handlers are what the fixtures have for a failure.
var handlers = map[string]function{"on failure": resultOf(step("tell"))}

// bodyLines are written by the bodies of a fixture's steps.
var bodyLines = map[string]string{"log": "inside"}

// player plays the SDK's side of one transcript.
type player struct {
	t      *testing.T
	script transcript
	now    time.Time
	m      *Machine
	nonces int
	code   *runner
	queue  []Output // what the machine wants done and no line has asked for
	bodies map[stepKey]*Step
	save   *wire.Save
}

func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(transcripts, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts in %s: %v", transcripts, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var script transcript
			if err := json.Unmarshal(text, &script); err != nil {
				t.Fatal(err)
			}
			if fixtures[script.Workflow] == nil {
				t.Fatalf("no fixture %q", script.Workflow)
			}
			p := &player{t: t, script: script, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
			for i := range script.Lines {
				p.play(i, &script.Lines[i])
			}
			p.wantNothing("the end")
		})
	}
}

func (p *player) play(i int, l *line) {
	at := fmt.Sprintf("line %d", i+1)
	switch {
	case l.SDK != "":
		p.sdk(at, l)
	case l.Server != "":
		p.wantNothing(at)
		p.server(at, l)
	case l.App != "":
		p.wantNothing(at)
		p.app(l)
	case l.World != "":
		p.world(at, l)
	}
	p.pump()
}

// sdk checks that the machine wants what the line says.
func (p *player) sdk(at string, l *line) {
	p.t.Helper()
	if len(p.queue) == 0 {
		p.t.Fatalf("%s: the SDK does nothing, want %s", at, l.SDK)
	}
	o := p.queue[0]
	p.queue = p.queue[1:]
	switch {
	case l.SDK == "body" && o.Do == DoBody, l.SDK == "check" && o.Do == DoCheck:
		got := fmt.Sprint(o.Step.Name, o.Step.Number, o.Step.Attempt)
		if want := fmt.Sprint(l.Name, l.Number, l.Attempt); got != want {
			p.t.Fatalf("%s: %s %s, want %s", at, l.SDK, got, want)
		}
		p.bodies[o.Step.key()] = o.Step
		if said := bodyLines[p.script.Workflow]; said != "" {
			p.code.log(o.Step, wire.LevelWarn, said, "")
		}
	case l.SDK == "save" && o.Do == DoSave:
		p.same(at, o.Save.AppendJSON(nil), l.Message)
		p.save = o.Save
		if l.Lost != "" {
			p.m.SaveFailed(o.Save, p.now)
		}
	case l.SDK == "fetch" && o.Do == DoFetch:
		if o.After != l.After {
			p.t.Fatalf("%s: fetches after %d, want %d", at, o.After, l.After)
		}
	case l.SDK == "answer" && o.Do == DoAnswer:
		p.same(at, o.Answer.AppendJSON(nil), l.Message)
	case l.SDK == "end" && o.Do == DoEnd:
		end := &wire.End{Call: "$call1", Token: "$token1", Nonce: o.Answer.Nonce, End: o.Answer}
		p.same(at, end.AppendJSON(nil), l.Message)
	case l.SDK == "verified" && o.Do == DoVerified:
		p.sameButFor(at, o.Verified.AppendJSON(nil), l.Message, "message") // of an error only the name counts
	default:
		p.t.Fatalf("%s: output %d, want %s", at, o.Do, l.SDK)
	}
}

func (p *player) server(at string, l *line) {
	switch l.Server {
	case "call":
		p.call(l.Message)
	case "verify":
		p.begin(l.Message, Config{Verify: true, LateAt: p.now.Add(5 * time.Second)})
	case "saved":
		var o wire.Outcome
		p.decode(l.Message, &o)
		p.m.Saved(p.save, &o, p.now)
	case "page":
		var page wire.Page
		p.decode(l.Message, &page)
		p.m.Page(&page, p.now)
	case "ended":
		var o wire.EndOutcome
		p.decode(l.Message, &o)
		p.m.EndOutcome(o.Status, p.now)
	case "news":
		var n wire.News
		p.decode(l.Message, &n)
		p.m.News(&n, p.now)
	case "run":
	default:
		p.t.Fatalf("%s: unknown line of the server: %s", at, l.Server)
	}
}

// call begins a new playing, in a new process.
func (p *player) call(message json.RawMessage) {
	p.nonces++
	p.begin(message, Config{Nonce: fmt.Sprintf("$nonce%d", p.nonces)})
}

func (p *player) begin(message json.RawMessage, config Config) {
	call := wire.Call{Run: wire.Run{ID: "$run", Attempt: 1}, Call: wire.CallInfo{LeaseMs: 300000, HeartbeatMs: 5000}}
	p.decode(message, &call)
	p.bodies = map[stepKey]*Step{}
	config.Retries = 4
	handler := handlers[p.script.Workflow]
	if call.Ending != nil && handler != nil {
		config.Handler = OnFailurePrefix
	}
	p.m = New(&call, config, p.now)
	retries := 4
	if p.script.Retries != nil {
		retries = *p.script.Retries
	}
	p.code = &runner{
		m: p.m, now: &p.now, retries: retries, payload: call.Run.Payload, function: fixtures[p.script.Workflow],
		handler: handler, prefix: config.Handler,
	}
	p.m.Begin(p.now)
}

func (p *player) app(l *line) {
	s := p.bodies[stepKey{l.Name, l.Number}]
	end := Settled{Output: l.Output, Err: l.Error, Retriable: l.Retriable == nil || *l.Retriable, RetryAfter: -1}
	if l.RetryAfterMs != nil {
		end.RetryAfter = ms(*l.RetryAfterMs)
	}
	if l.App == "found" && l.Output == nil {
		p.m.CheckFoundNothing(s, s.Attempt, p.now)
		return
	}
	p.m.BodyEnded(s, s.Attempt, end, p.now)
}

func (p *player) world(at string, l *line) {
	switch l.World {
	case "connection closed":
		p.wantNothing(at)
		if p.m != nil {
			p.m.Closed(p.now)
		}
	case "process killed":
		p.m = nil
	case "time":
		p.wantNothing(at)
		p.now = p.now.Add(ms(l.Ms))
		if p.m != nil {
			p.m.Tick(p.now)
		}
	case "api unreachable":
		p.unreachable(ms(l.Ms))
	}
}

// unreachable lets every try fail for so long.
func (p *player) unreachable(d time.Duration) {
	p.wantNothing("api unreachable")
	until := p.now.Add(d)
	for {
		wake := p.m.Wake(p.now)
		if wake.IsZero() || wake.After(until) {
			break
		}
		if pause := wake.Sub(p.now); pause > 2500*time.Millisecond {
			p.t.Fatalf("a pause of %v between tries", pause)
		}
		p.now = wake
		p.m.Tick(p.now)
		p.pump()
		for len(p.queue) > 0 && p.queue[0].Do == DoSave {
			save := p.queue[0].Save
			p.queue = p.queue[1:]
			p.m.SaveFailed(save, p.now)
			p.pump()
		}
		if len(p.queue) > 0 {
			return
		}
	}
	p.now = until
	p.m.Tick(p.now)
}

// pump runs the workflow's code as far as it gets, and queues what the lines must ask for.
func (p *player) pump() {
	for p.m != nil {
		outs := slices.Clone(p.m.Take())
		if len(outs) == 0 {
			return
		}
		for _, o := range outs {
			if !p.code.act(o) {
				p.queue = append(p.queue, o)
			}
		}
	}
}

func (p *player) wantNothing(at string) {
	p.t.Helper()
	if len(p.queue) > 0 {
		p.t.Fatalf("%s: the SDK also does %d (%+v)", at, p.queue[0].Do, p.queue[0])
	}
}

func (p *player) decode(text []byte, v any) {
	p.t.Helper()
	if err := json.Unmarshal(text, v); err != nil {
		p.t.Fatal(err)
	}
}

func (p *player) same(at string, got, want []byte) {
	p.t.Helper()
	p.sameButFor(at, got, want)
}

// sameButFor compares, but for the ignored fields and those that are named.
func (p *player) sameButFor(at string, got, want []byte, fields ...string) {
	p.t.Helper()
	fields = append(fields, ignored...)
	var g, w any
	p.decode(got, &g)
	p.decode(want, &w)
	if diff := cmp.Diff(strip(w, fields), strip(g, fields)); diff != "" {
		p.t.Fatalf("%s (-want +got):\n%s", at, diff)
	}
}

// strip takes fields out of v.
func strip(v any, fields []string) any {
	switch v := v.(type) {
	case map[string]any:
		for key, field := range v {
			if slices.Contains(fields, key) {
				delete(v, key)
				continue
			}
			strip(field, fields)
		}
	case []any:
		for _, item := range v {
			strip(item, fields)
		}
	}
	return v
}
