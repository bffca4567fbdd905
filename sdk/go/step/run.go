package step

import (
	"context"
	"errors"
	"fmt"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/value"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// InvokeOption is an option of Invoke.
type InvokeOption interface{ invokeOption(*waitOptions) }

func (t TimeoutOption) invokeOption(o *waitOptions) { t.waitOption(o) }
func (w WasOption) invokeOption(o *waitOptions)     { w.waitOption(o) }

// Invoke starts one child run of wf and waits for its output. However often the code runs, it is one.
//
// Its error is a *nelkap.StepError that holds the child's *nelkap.RunError. errors.Is finds nelkap.ErrSkipped where another run owns
// the child's key, nelkap.ErrCancelled where the child was cancelled, and nelkap.ErrTimeout where the time of Timeout ran out, which
// cancels the child.
func Invoke[In, Out any](ctx context.Context, name string, wf *nelkap.Workflow[In, Out], payload In, opts ...InvokeOption) (Out, error) {
	var out Out
	terms := &wire.Terms{Op: wire.OpWait, Kind: wire.KindInvoke}
	o := waitOptions{request: play.Request{Name: name, Terms: terms}}
	f := play.From(ctx)
	switch {
	case f == nil:
		return out, notInRun(name)
	case wf == nil:
		o.fail(errors.New("nelkap: Invoke needs a workflow of NewWorkflow or Ref; workflows at package level that name each other need Ref"))
	default:
		terms.Workflow, terms.App = wf.Name(), wf.AppSeenFrom(f)
	}
	raw, err := value.Encode("payload", &payload)
	if err != nil {
		o.fail(fmt.Errorf("nelkap: the payload of the child run can't be sent: %w", err))
	}
	terms.Payload = raw
	for _, option := range opts {
		option.invokeOption(&o)
	}
	output, err := o.ask(ctx)
	if err == nil {
		err = decode(name, output, &out)
	}
	return out, err
}

// ClaimOption is an option of Claim.
type ClaimOption interface{ claimOption(*waitOptions) }

type claimOption func(*waitOptions)

func (c claimOption) claimOption(o *waitOptions) { c(o) }

func (w WasOption) claimOption(o *waitOptions) { w.waitOption(o) }

// Claim tells whether this run owns key: the first run of the workflow that claims it under that name does, for ever unless an
// option says otherwise, and no other can. A run that asks again is answered as before.
func Claim(ctx context.Context, name, key string, opts ...ClaimOption) (bool, error) {
	o := waitOptions{request: play.Request{Name: name, Terms: &wire.Terms{Op: wire.OpClaim, Kind: wire.KindClaim, Key: key}}}
	o.fail(play.CheckKey("a claim", key))
	for _, option := range opts {
		option.claimOption(&o)
	}
	output, err := o.ask(ctx)
	if err != nil {
		return false, err
	}
	var owned bool
	return owned, decode(name, output, &owned)
}

// UntilFailed frees the key when its owner fails, so that another run may take over.
func UntilFailed() ClaimOption {
	return claimOption(func(o *waitOptions) { o.request.Terms.FreedWhen = "failed" })
}

// forMax is the longest that a claim keeps its key after its owner's end: the protocol's 100 years.
const forMax = 3_155_760_000_000 * time.Millisecond

// For frees the key so long after its owner's end, 100 years at most.
func For(d time.Duration) ClaimOption {
	return claimOption(func(o *waitOptions) {
		if d <= 0 || d > forMax {
			o.fail(fmt.Errorf("nelkap: For can't be %v: leave it out for a key that is kept for ever", d))
		}
		o.request.Terms.For = d
	})
}
