// Package apptest is an app for tests: a handler that speaks the app's side of the protocol (protocol/SPEC.md) as plainly as can be. A
// workflow is a Go function that gets the call and says how it ended. It retries nothing, sends no heartbeats and checks no
// signature: what the SDKs do for an app is tested with the SDKs. Only tests import it.
package apptest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/nelkap/nelkap/internal/wire"
)

// Play is a workflow's function. ctx ends when the server closes the call's connection.
type Play func(ctx context.Context, c *Call) wire.End

// Workflow is what an app declares, and what it does.
type Workflow struct {
	wire.Workflow
	Play  Play
	Steps []string // that it asks for when it is verified
}

// App is an http.Handler.
type App struct {
	name      string
	workflows []Workflow
	process   string
}

// New makes an app.
func New(name string, workflows ...Workflow) *App {
	slices.SortFunc(workflows, func(a, b Workflow) int { return strings.Compare(a.Name, b.Name) })
	return &App{name: name, workflows: workflows, process: rand.Text()}
}

// On makes a workflow that events of the given names start.
func On(name string, play Play, events ...string) Workflow {
	w := Workflow{Workflow: wire.Workflow{Name: name}, Play: play}
	for _, event := range events {
		w.Triggers = append(w.Triggers, wire.Trigger{Event: event})
	}
	return w
}

// Call is one call of the app.
type Call struct {
	wire.Call
	nonce   string
	process string
}

// Fence is the call's right to speak.
func (c *Call) Fence() wire.Fence {
	return wire.Fence{Call: c.Call.Call.ID, Token: c.Call.Call.Token, Nonce: c.nonce}
}

// Save saves items through the API, and gives their outcome.
func (c *Call) Save(ctx context.Context, items ...wire.Item) (wire.SaveOutcome, error) {
	seen := int64(len(c.Steps.Entries))
	body, err := wire.Encode(wire.Saves{Process: c.process, Saves: []wire.Save{{Fence: c.Fence(), Seen: seen, Items: items}}})
	if err != nil {
		return wire.SaveOutcome{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/v1/saves", bytes.NewReader(body))
	if err != nil {
		return wire.SaveOutcome{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return wire.SaveOutcome{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, wire.CallBytesMax))
	if err != nil {
		return wire.SaveOutcome{}, err
	}
	var answer wire.SavesAnswer
	if err := wire.Decode(text, &answer); err != nil || len(answer.Saves) != 1 {
		return wire.SaveOutcome{}, fmt.Errorf("the save was answered %s: %s", response.Status, text)
	}
	return answer.Saves[0], nil
}

// Step is an item that saves a step's output.
func Step(name string, output jsontext.Value) wire.Item {
	return wire.Item{Op: wire.OpCompleted, Kind: "run", Name: name, Number: 1, Attempt: 1, Output: output}
}

// Completed ends a call with an output; nil is undefined.
func Completed(output jsontext.Value) wire.End { return wire.End{Type: wire.Completed, Output: output} }

// Failed ends a call with an error that is not tried again.
func Failed(name, message string) wire.End {
	return wire.End{Type: wire.Failed, Error: &wire.Error{Name: name, Message: message}}
}

// ServeHTTP answers the server.
func (a *App) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(wire.HeaderSDK, "apptest/0")
	if r.Method == http.MethodGet {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"nelkap":true}`)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, wire.CallBytesMax))
	c := &Call{nonce: rand.Text(), process: a.process}
	if err == nil {
		err = wire.Decode(body, &c.Call)
	}
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case c.Type == "describe":
		a.answer(w, a.manifest())
	case c.Type == "verify":
		a.verify(w, c)
	default:
		a.play(w, r, c)
	}
}

func (a *App) play(w http.ResponseWriter, r *http.Request, c *Call) {
	for _, workflow := range a.workflows {
		if workflow.Name == c.Run.Workflow {
			end := workflow.Play(r.Context(), c)
			end.Nonce = c.nonce
			a.answer(w, end)
			return
		}
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusNotFound)
	fmt.Fprint(w, `{"status":404,"code":"workflow_unknown","detail":"no such workflow"}`)
}

// verify answers as code that asks for nothing but the steps that its workflow names.
func (a *App) verify(w http.ResponseWriter, c *Call) {
	v := wire.Verified{Type: "verified", Unasked: []wire.Waiting{}, Asked: []wire.Waiting{}}
	for _, workflow := range a.workflows {
		for _, e := range c.Steps.Entries {
			if workflow.Name == c.Run.Workflow && !slices.Contains(workflow.Steps, e.Name) {
				v.Unasked = append(v.Unasked, wire.Waiting{Kind: e.Kind, Name: e.Name, Number: e.Number})
			}
		}
	}
	a.answer(w, v)
}

// manifest gives the app's manifest, with the hash of its workflows' JSON.
func (a *App) manifest() any {
	list := []wire.Workflow{}
	for _, workflow := range a.workflows {
		list = append(list, workflow.Workflow)
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic("apptest: a workflow that is not JSON: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return struct {
		App       string         `json:"app"`
		SDK       wire.SDK       `json:"sdk"`
		Protocol  int            `json:"protocol"`
		Hash      string         `json:"hash"`
		Workflows jsontext.Value `json:"workflows"`
	}{a.name, wire.SDK{Language: "apptest", Version: "0"}, wire.Version, hex.EncodeToString(sum[:]), text}
}

func (a *App) answer(w http.ResponseWriter, message any) {
	body, err := wire.Encode(message)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", wire.ContentType)
	w.Write(body)
}
