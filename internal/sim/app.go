package sim

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
)

// service is an app as its operators see it: an address, behind which processes come and go.
type service struct {
	world   *world
	name    string
	url     string
	started int
	version int      // of its code, as it is deployed now
	current *process // nil while none listens; world.mu guards it
	// described is when each version of its code said what it has; world.mu guards it.
	described map[int]described
}

// process is one process of an app, with the real SDK in it.
type process struct {
	actor
	service *service
	version int
	app     *nelkap.App
}

// start starts a process with the service's code as it is deployed now, in the place of the one before.
func (s *service) start() {
	w := s.world
	p := s.process()
	p.open(newLine(w, &p.actor))
	w.mu.Lock()
	defer w.mu.Unlock()
	s.current = p
	w.processes = append(w.processes, p)
	w.trace.add(p.name, "starts", fmt.Sprintf("version %d", p.version))
}

// process makes a process that does nothing yet.
func (s *service) process() *process {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.started++
	p := &process{actor: newActor(s.world, fmt.Sprintf("%s%d", s.name, s.started)), service: s, version: s.version}
	p.actor.app = s.name
	return p
}

// open makes the process an app that reaches the server by the given way.
func (p *process) open(way http.RoundTripper) {
	p.app = nelkap.New(nelkap.Options{
		App: p.service.name, URL: serverURL, APIKey: apiKey, SigningKey: signingKey,
		HTTPClient: &http.Client{Transport: way}, Logger: slog.New(slog.DiscardHandler),
	})
	for _, f := range p.world.plan.workflows {
		if f.app == p.service.name {
			p.declare(f)
		}
	}
}

func (p *process) declare(f *workflowPlan) {
	options := []nelkap.WorkflowOption{nelkap.Retries(f.retries), nelkap.Lease(f.lease)}
	if f.timeout > 0 {
		options = append(options, nelkap.Timeout(f.timeout))
	}
	if f.event != "" {
		options = append(options, nelkap.OnEvent(f.event))
	}
	if f.webhook != "" {
		options = append(options, nelkap.OnWebhook(f.webhook))
	}
	if s := f.scheduleOf(p.version); s.expression != "" {
		options = append(options, nelkap.OnSchedule(s.expression, nelkap.CatchUp(s.catchUp)))
	}
	if f.cancelOn != "" {
		options = append(options, nelkap.CancelOn(f.cancelOn))
	}
	options = append(options, p.closers(f)...)
	if f.once {
		options = append(options, nelkap.Once(onceKey))
	}
	nelkap.NewWorkflow(p.app, f.name, func(ctx context.Context, in payload) (string, error) {
		return p.play(ctx, f, in)
	}, options...)
}

// processAt is the process that listens at an address; nil if none does.
func (w *world) processAt(url string) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.services {
		if s.url == url {
			return s.current
		}
	}
	return nil
}

// take lets the process handle a delivery.
func (p *process) take(t delivery) {
	rest(t.after)
	enter(&p.takes, &p.actor, t.x)
	defer leave(&p.takes, &p.actor, t.x)
	if !p.pass(t.dice.between(1, 20_000)) {
		return
	}
	w := p.world
	w.trace.add(p.name, "takes "+t.m.id, "")
	ctx, cancel := t.x.arrive()
	defer cancel()
	a := newAnswer()
	p.app.ServeHTTP(a, t.m.request(ctx))
	if !p.pass(t.dice.between(1, 20_000)) {
		return
	}
	w.trace.add(p.name, "answers "+t.m.id, fmt.Sprint(a.status))
	switch {
	case t.m.kind == "describe":
		p.service.describes(p.version)
	case t.m.call == "":
	case a.status == http.StatusOK:
		w.witness.ends(t.m.call)
	case a.status == http.StatusServiceUnavailable:
		w.witness.refuses(t.m.call)
	}
	if !t.answered {
		return
	}
	rest(latency(t.dice, fine))
	t.x.settle(result{answer: a})
}

// stop stops the current process gracefully, as a deploy does, and starts the next one after a while. At most patience is waited
// for calls that are played; then it is killed.
func (s *service) stop(patience, away time.Duration) {
	w := s.world
	w.mu.Lock()
	p := s.current
	w.mu.Unlock()
	if p == nil || p.isDead() {
		return
	}
	w.trace.add(p.name, "stops", "")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	p.app.Shutdown(ctx) //nolint:errcheck // what is left then is cut off
	cancel()
	p.kill(false)
	s.vacate(p)
	rest(away)
	s.start()
}

// crash kills the current process, and starts the next one after a while.
func (s *service) crash(silent bool, away time.Duration) {
	s.world.mu.Lock()
	p := s.current
	s.world.mu.Unlock()
	if p == nil || p.isDead() {
		return
	}
	s.world.trace.add(p.name, "crashes", fmt.Sprintf("silent %v", silent))
	p.kill(silent)
	s.vacate(p)
	rest(away)
	s.start()
}

// described is when a version first said what it has, and when it last did.
type described struct{ first, last time.Time }

// startIfVacant starts a process where none listens.
func (s *service) startIfVacant() {
	s.world.mu.Lock()
	vacant := s.current == nil
	s.world.mu.Unlock()
	if vacant && !s.world.isOver() {
		s.start()
	}
}

// describes is told that a version of the code has said what it has.
func (s *service) describes(version int) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	d, known := s.described[version]
	if d.last = time.Now(); !known {
		d.first = d.last
	}
	s.described[version] = d
}

func (s *service) vacate(p *process) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	if s.current == p {
		s.current = nil
	}
}
