package play

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/nelkap/nelkap/sdk/go/internal/contact"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// StageURL is where a stage's server is. Nobody lives there: only the stage's client knows it.
const StageURL = "http://nelkaptest.invalid"

// Stage stands in for the server, and may stand in for bodies, where package nelkaptest plays runs in memory. There is none in
// production. It comes with the context of a request, which code of this module alone can give it.
type Stage interface {
	// Client speaks to the stage's server.
	Client() *http.Client
	// Process is the contact of the process that the call is played in.
	Process() *contact.Process
	// Met is called with the app and its name, before it sends something outside a run.
	Met(app http.Handler, name string)
	// Began is called once a call is played; that may already be over.
	Began(p *Playing)
	// Done is called once, when nothing of the playing is left. Locks are held: it must not call back.
	Done()
	// Attempt runs a request's check or its body, or what stands in for it.
	Attempt(ctx context.Context, a *Attempt, r *Request, check bool) (output json.RawMessage, ended bool, err error)
}

type stageKey struct{}

// WithStage is a context whose requests are a stage's.
func WithStage(ctx context.Context, s Stage) context.Context {
	return context.WithValue(ctx, stageKey{}, s)
}

// StageOf is the stage that ctx belongs to, by its run or as WithStage made it; nil in production.
func StageOf(ctx context.Context) Stage {
	if f := From(ctx); f != nil {
		return f.Playing.config.Stage
	}
	s, _ := ctx.Value(stageKey{}).(Stage)
	return s
}

// Tell gives the playing news, as the answer to a poll does.
func (p *Playing) Tell(n *wire.News) { p.news(n) }

// attempt runs the check or the body of one attempt. Where a check finds nothing, ended is false.
func (p *Playing) attempt(ctx context.Context, a *Attempt, r *Request, check bool) (output json.RawMessage, ended bool, err error) {
	if s := p.config.Stage; s != nil {
		return s.Attempt(ctx, a, r, check)
	}
	return r.Perform(ctx, check)
}

// Perform runs the request's own check or body.
func (r *Request) Perform(ctx context.Context, check bool) (output json.RawMessage, ended bool, err error) {
	if check {
		return r.Check(ctx)
	}
	output, err = r.Body(ctx)
	return output, true, err
}
