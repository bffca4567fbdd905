// Command go is the app of the Go SDK in the tests: it carries out plans (package plan) and leaves marks. Tests start, freeze and kill
// it; it ends by itself only on SIGTERM, as a deploy would have it.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/nelkap/nelkap/e2e/plan"
	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"
)

const (
	// gateEvery is how often a body looks at its gate.
	gateEvery = 10 * time.Millisecond
	// stopWithin is how long a deploy waits for running bodies.
	stopWithin = 30 * time.Second
)

func main() {
	a := &app{
		app:     nelkap.New(nelkap.Options{}),
		name:    os.Getenv("NELKAP_APP"),
		gates:   os.Getenv(plan.EnvGates),
		version: os.Getenv(plan.EnvVersion),
	}
	if err := a.run(); err != nil {
		log.Fatal(err)
	}
}

type app struct {
	app     *nelkap.App
	name    string
	gates   string
	version string
	marks   *os.File
	planned *nelkap.Workflow[plan.Plan, plan.Output]
}

func (a *app) run() error {
	marks, err := os.OpenFile(os.Getenv(plan.EnvMarks), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer marks.Close()
	a.marks = marks
	a.declare(os.Getenv(plan.EnvWithout))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	server := &http.Server{Addr: os.Getenv(plan.EnvAddr), Handler: a.app, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	if err := a.app.Shutdown(limited); err != nil {
		return err
	}
	if err := server.Shutdown(limited); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (a *app) declare(without string) {
	if without != plan.Planned {
		a.planned = nelkap.NewWorkflow(a.app, plan.Planned, a.play)
	}
	nelkap.NewWorkflow(a.app, plan.Heard, a.play, nelkap.OnEvent(plan.Event(a.name)))
	nelkap.NewWorkflow(a.app, plan.Hooked, func(ctx context.Context, hook struct {
		JSON plan.Plan `json:"json"`
	},
	) (plan.Output, error) {
		return a.play(ctx, hook.JSON)
	}, nelkap.OnWebhook(a.name))
}

// play is the function of every workflow.
func (a *app) play(ctx context.Context, p plan.Plan) (plan.Output, error) {
	run, _ := nelkap.CurrentRun(ctx)
	steps := p.Steps
	if a.version == "2" {
		steps = append([]plan.Step{{Name: plan.Added}}, steps...)
	}
	out := plan.Output{PID: os.Getpid()}
	one := func(s plan.Step) error {
		if a.version == "3" {
			s.Name = plan.Renamed + s.Name
		}
		out.Steps++
		return a.one(ctx, run.ID, s)
	}
	for _, s := range steps {
		if err := one(s); err != nil {
			return out, err
		}
	}
	for i := range p.Repeat {
		if err := one(plan.Step{Name: "step " + strconv.Itoa(i+1)}); err != nil {
			return out, err
		}
	}
	if p.Gate != "" {
		a.mark(plan.Mark{Kind: plan.MarkOutside, Run: run.ID})
		a.wait(ctx, p.Gate, 0)
	}
	return out, nil
}

// one does one step.
func (a *app) one(ctx context.Context, run string, s plan.Step) (err error) {
	switch {
	case s.SleepsMs > 0:
		err = step.Sleep(ctx, s.Name, time.Duration(s.SleepsMs)*time.Millisecond)
	case s.WaitsFor != "":
		_, _, err = step.WaitForEvent[any](ctx, s.Name, s.WaitsFor)
	case len(s.Invokes) > 0:
		_, err = step.Invoke(ctx, s.Name, a.planned, plan.Plan{Steps: s.Invokes, Parent: run})
	case s.Calls:
		err = a.callback(ctx, run, s.Name)
	case len(s.Beside) > 0:
		var branches []func(context.Context) error
		for _, each := range s.Beside {
			branches = append(branches, func(ctx context.Context) error { return a.one(ctx, run, each) })
		}
		err = step.Parallel(ctx, branches...)
	default:
		_, err = step.Run(ctx, s.Name, func(ctx context.Context) (plan.Result, error) { return a.body(ctx, run, s) })
	}
	return err
}

// callback waits for what is posted at an address that it leaves in a mark.
func (a *app) callback(ctx context.Context, run, name string) error {
	made, err := step.NewCallback[any](ctx, name)
	if err != nil {
		return err
	}
	a.mark(plan.Mark{Kind: plan.MarkAddress, Run: run, Step: name, URL: made.URL})
	_, _, err = made.Wait(ctx)
	return err
}

// body is every step's body.
func (a *app) body(ctx context.Context, run string, s plan.Step) (plan.Result, error) {
	mine := plan.Mark{Kind: plan.MarkBody, Run: run, Step: s.Name, Attempt: step.Attempt(ctx), ID: rand.Text()}
	a.mark(mine)
	if s.TakesMs > 0 {
		time.Sleep(time.Duration(s.TakesMs) * time.Millisecond)
	}
	if s.Gate != "" && !a.wait(ctx, s.Gate, mine.Attempt) {
		aborted := mine
		aborted.Kind, aborted.Why = plan.MarkAborted, context.Cause(ctx).Error()
		a.mark(aborted)
	}
	if s.Fails != "" {
		return plan.Result{}, nelkap.NonRetriable(errors.New(s.Fails))
	}
	if mine.Attempt <= s.Throws {
		return plan.Result{}, nelkap.RetryAfter(fmt.Errorf("attempt %d throws", mine.Attempt), 20*time.Millisecond)
	}
	result := plan.Result{ID: mine.ID, PID: os.Getpid()}
	small := plan.Plan{Steps: []plan.Step{{Name: "small"}}, Parent: run}
	if s.Child {
		child, err := nelkap.Run(ctx, a.planned, small)
		if err != nil {
			return result, err
		}
		result.Child = child.ID
	}
	if s.Emit {
		emitted, err := a.app.Emit(ctx, nelkap.Event{Name: plan.Event(a.name), Payload: small})
		if err != nil {
			return result, err
		}
		result.Event = emitted[0].ID
	}
	if s.Gate != "" {
		mine.Kind = plan.MarkEnded
		a.mark(mine)
	}
	return result, nil
}

// wait waits until a gate is open for this process, or for this attempt. It is false when ctx ended first.
func (a *app) wait(ctx context.Context, gate string, attempt int) bool {
	tick := time.NewTicker(gateEvery)
	defer tick.Stop()
	file := filepath.Join(a.gates, gate)
	for {
		for _, name := range []string{file, file + "." + strconv.Itoa(os.Getpid()), file + ".attempt" + strconv.Itoa(attempt)} {
			if _, err := os.Stat(name); err == nil {
				return true
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// mark appends a line, in one write: a kill leaves whole lines.
func (a *app) mark(m plan.Mark) {
	m.PID, m.At = os.Getpid(), float64(time.Now().UnixMicro())/1000
	line, err := json.Marshal(m)
	if err == nil {
		_, err = a.marks.Write(append(line, '\n'))
	}
	if err != nil {
		log.Fatal("leaving a mark: ", err)
	}
}
