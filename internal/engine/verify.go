package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// The bounds of a verification.
const (
	verifySide     = 4        // runs played at once
	verifyBytesMax = 12 << 20 // of a history: beside it, payload and names fit into a call's message
)

// VerifyRequest asks for live runs to be played against the code at an address.
type VerifyRequest struct {
	Env    string
	URL    string
	Before string // only runs with ids below this one
	Limit  int
	// NewSteps are names of steps that the code is meant to have now: that such a one comes before saved steps is no divergence.
	NewSteps []string
}

// VerifyPage is what came of some of the live runs, newest first.
type VerifyPage struct {
	App  string
	Runs []VerifiedRun
	Next string // the last run's id where there may be more; else empty
}

// VerifiedRun is what new code would do with a run.
type VerifiedRun struct {
	Run      workflow.Run
	Problems []string       // where it would diverge, as sentences; empty: nowhere
	Skipped  string         // why it was not played; empty: it was
	Asks     []wire.Waiting // the steps that it would ask for next
}

// Verify plays live runs against the code at an address, without acting (D3): no epoch grows, and nothing is written. The address must be
// public unless an operator has named it, or one that differs from it by the port alone. ErrAppUnusable says why the app there can't be used.
func (e *Engine) Verify(ctx context.Context, r VerifyRequest, private bool) (VerifyPage, error) {
	target := call.Target{URL: r.URL, Private: private || e.apps.isPrivate(r.URL) || e.apps.isBeside(r.URL)}
	manifest, outcome := e.caller.Describe(ctx, target)
	if manifest == nil {
		if !target.Private && errors.Is(outcome.Err, call.ErrAddress) {
			return VerifyPage{}, fmt.Errorf("%w: %s. New code there is verified at the host and the path of an app that nelkap serve was started with (its --app), at any port", ErrAppUnusable, reasonOf(outcome))
		}
		return VerifyPage{}, fmt.Errorf("%w: %s", ErrAppUnusable, reasonOf(outcome))
	}
	page := VerifyPage{App: manifest.App}
	runs, err := e.store.Runs(ctx, store.RunQuery{Env: r.Env, App: manifest.App, Live: true, Before: r.Before, Limit: r.Limit})
	if err != nil {
		return page, err
	}
	known := map[string]bool{}
	for _, w := range manifest.Workflows {
		known[w.Name] = true
	}
	page.Runs = make([]VerifiedRun, len(runs))
	errs := make([]error, len(runs))
	slots := make(chan struct{}, verifySide)
	var group sync.WaitGroup
	for i := range runs {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			page.Runs[i], errs[i] = e.verify(ctx, target, &runs[i], known, r.NewSteps)
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return page, err
		}
	}
	if len(runs) == r.Limit {
		page.Next = runs[len(runs)-1].ID
	}
	return page, nil
}

// isBeside tells whether an address is, but for its port, one that an operator has named: new code is started beside the old. Host and path
// are the operator's then, so that who has an API key can't have the server ask anything else that is in its network.
func (r *registry) isBeside(address string) bool {
	asked, err := url.Parse(address)
	if err != nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sources {
		named, err := url.Parse(s.url)
		if s.private && err == nil && strings.EqualFold(named.Hostname(), asked.Hostname()) && cmp.Or(named.EscapedPath(), "/") == cmp.Or(asked.EscapedPath(), "/") {
			return true
		}
	}
	return false
}

// verify plays one run.
func (e *Engine) verify(ctx context.Context, target call.Target, record *store.RunRecord, known map[string]bool, meant []string) (VerifiedRun, error) {
	out := VerifiedRun{Run: record.Run}
	switch {
	case record.Closing():
		out.Skipped = "it is closing: its code is over"
		return out, nil
	case !known[record.Workflow]:
		out.Problems = []string{fmt.Sprintf("the app has no workflow %q: the run would wait for it", record.Workflow)}
		return out, nil
	}
	_, history, err := e.store.Load(ctx, record.ID)
	if err != nil {
		return out, err
	}
	if history.Bytes > verifyBytesMax {
		out.Skipped = fmt.Sprintf("its history has %d bytes, and at most %d can be played", history.Bytes, verifyBytesMax)
		return out, nil
	}
	message, err := e.verifyMessage(ctx, record.Run)
	if err != nil {
		return out, err
	}
	verified, outcome := e.caller.Verify(ctx, target, message)
	if verified == nil {
		return out, fmt.Errorf("%w: %s", ErrAppUnusable, reasonOf(outcome))
	}
	out.Asks = verified.Asked
	out.Problems = diverges(verified, &message, meant)
	return out, nil
}

func (e *Engine) verifyMessage(ctx context.Context, run workflow.Run) (wire.Verify, error) {
	m := wire.Verify{Type: "verify", Steps: wire.Steps{Entries: []wire.Entry{}, Retrying: []wire.Retrying{}}, Limits: limits(), LimitMs: call.VerifyLimit.Milliseconds()}
	f, err := e.reload(ctx, run, &m.Steps)
	if err != nil {
		return m, err
	}
	m.Run = wireRun(run, f)
	for m.Steps.Next != nil {
		var page []wire.Entry
		if page, m.Steps.Next, err = e.page(ctx, run.ID, *m.Steps.Next); err != nil {
			return m, err
		}
		m.Steps.Entries = append(m.Steps.Entries, page...)
	}
	return m, nil
}

// diverges tells where code left a run's history, as sentences. meant are names of steps that are meant to be new.
func diverges(v *wire.Verified, m *wire.Verify, meant []string) []string {
	problems := unaskedFor(v, m, meant)
	asked := map[wire.StepRef]bool{}
	for _, s := range v.Asked {
		asked[wire.StepRef{Name: s.Name, Number: s.Number}] = true
	}
	for _, s := range m.Steps.Retrying {
		if !asked[wire.StepRef{Name: s.Name, Number: s.Number}] {
			problems = append(problems, fmt.Sprintf("it does not ask for the step %s, which threw and is due again", shown(wire.Waiting{Kind: workflow.KindRun, Name: s.Name, Number: s.Number})))
		}
	}
	for _, s := range m.Steps.Waiting {
		if !asked[wire.StepRef{Name: s.Name, Number: s.Number}] {
			problems = append(problems, fmt.Sprintf("it does not wait for %s, for which the run waits", shown(s)))
		}
	}
	switch {
	case v.End == wire.VerifiedThrew && v.Error != nil:
		problems = append(problems, fmt.Sprintf("it throws %s: %s", v.Error.Name, v.Error.Message))
	case v.End == wire.VerifiedThrew:
		problems = append(problems, "it throws")
	case v.End == wire.VerifiedLate:
		problems = append(problems, fmt.Sprintf("it did not come to rest within %v: does it wait outside steps?", call.VerifyLimit))
	}
	return problems
}

// unaskedFor tells of saved steps that the code did not ask for. Behind a step that is not saved nothing can be seen: there it may come to
// them still, or have renamed the first of them.
func unaskedFor(v *wire.Verified, m *wire.Verify, meant []string) (problems []string) {
	open := map[wire.StepRef]bool{}
	for _, s := range m.Steps.Retrying {
		open[wire.StepRef{Name: s.Name, Number: s.Number}] = true
	}
	for _, s := range m.Steps.Waiting {
		open[wire.StepRef{Name: s.Name, Number: s.Number}] = true
	}
	isNew := false
	for _, s := range v.Asked {
		if open[wire.StepRef{Name: s.Name, Number: s.Number}] || len(v.Unasked) == 0 {
			continue
		}
		isNew = true
		if !slices.Contains(meant, s.Name) {
			problems = append(problems, fmt.Sprintf("it asks for %s, which is not saved, before it has asked for %s, which is: a new step runs there, a renamed one says so with was", shown(s), shown(v.Unasked[0])))
		}
	}
	if isNew {
		return problems
	}
	for _, s := range v.Unasked {
		problems = append(problems, fmt.Sprintf("it does not ask for the saved step %s: removed steps stay as they are, a renamed one says so with was%s", shown(s), shifted(s.Number)))
	}
	return problems
}

func shown(s wire.Waiting) string {
	if s.Number > 1 {
		return fmt.Sprintf("%q (%s, number %d)", s.Name, s.Kind, s.Number)
	}
	return fmt.Sprintf("%q (%s)", s.Name, s.Kind)
}

// shifted warns of names that are repeated: a step that is gone among them shifts those after it (S7).
func shifted(number int) string {
	if number > 1 {
		return "; its name is repeated, and repeated names shift with their count"
	}
	return ""
}
