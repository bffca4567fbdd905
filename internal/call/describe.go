package call

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"time"

	"github.com/nelkap/nelkap/internal/wire"
)

const (
	// describeTimeout bounds one look at an app. An SDK answers from memory; the rest is a cold start.
	describeTimeout = 10 * time.Second
	// manifestBytesMax holds ten thousand workflows with long names.
	manifestBytesMax = 4 << 20
	workflowsMax     = 10_000
	triggersMax      = 100 // of one workflow
	triggerBytesMax  = 4 << 10
	leaseMsMin       = 5_000 // a shorter lease is refused (C7)
)

// Describe asks an app for its manifest, within describeTimeout. The manifest is nil unless the outcome is Answered; one that
// breaks the protocol is Unusable, with a reason that names what is wrong.
func (c *Caller) Describe(ctx context.Context, target Target) (*wire.Manifest, Outcome) {
	limited, cancel := context.WithTimeout(ctx, c.describeTimeout)
	defer cancel()
	body, err := wire.Encode(wire.Describe{Type: "describe"})
	if err != nil {
		return nil, notSent(err)
	}
	outcome := c.do(limited, Request{Target: target, Body: body}, manifestBytesMax)
	if outcome.Kind == Ended && ctx.Err() == nil {
		outcome = Outcome{Kind: Silent, Reason: fmt.Sprintf("the app did not describe itself within %v: see its log", c.describeTimeout), Err: outcome.Err}
	}
	if outcome.Kind != Answered {
		return nil, outcome
	}
	manifest, err := decodeManifest(outcome.Body)
	if err != nil {
		return nil, Outcome{
			Kind: Unusable, Status: outcome.Status, SDK: outcome.SDK,
			Reason: fmt.Sprintf("the app's manifest can't be used: %v", err),
		}
	}
	return manifest, outcome
}

// decodeManifest reads a manifest and checks everything that the server relies on.
func decodeManifest(body []byte) (*wire.Manifest, error) {
	var manifest wire.Manifest
	if err := wire.Decode(body, &manifest); err != nil {
		return nil, err
	}
	var text struct {
		Workflows jsontext.Value `json:"workflows"`
	}
	if err := wire.Decode(body, &text); err != nil {
		return nil, err
	}
	switch sum := sha256.Sum256(text.Workflows); {
	case manifest.Protocol != wire.Version:
		return nil, fmt.Errorf("it speaks version %d of the protocol, and this server speaks %d: update the older of the two", manifest.Protocol, wire.Version)
	case !isName(manifest.App):
		return nil, fmt.Errorf("the app's name must have between 1 and %d bytes", wire.NameBytesMax)
	case text.Workflows.Kind() != jsontext.KindBeginArray:
		return nil, errors.New("it has no list of workflows")
	case len(manifest.Workflows) > workflowsMax:
		return nil, fmt.Errorf("it has %d workflows; the most is %d", len(manifest.Workflows), workflowsMax)
	case manifest.Hash != hex.EncodeToString(sum[:]):
		return nil, errors.New("its hash is not that of its workflows: is something between changing the app's answers?")
	}
	if err := checkWorkflows(manifest.Workflows); err != nil {
		return nil, err
	}
	return &manifest, nil
}

func checkWorkflows(workflows []wire.Workflow) error {
	seen := make(map[string]bool, len(workflows))
	for _, workflow := range workflows {
		if !isName(workflow.Name) {
			return fmt.Errorf("a workflow's name must have between 1 and %d bytes", wire.NameBytesMax)
		}
		name := excerpt(workflow.Name)
		switch {
		case seen[workflow.Name]:
			return fmt.Errorf("it has two workflows named %q: name them apart", name)
		case workflow.Retries != nil && *workflow.Retries < 0, workflow.TimeoutMs < 0:
			return fmt.Errorf("workflow %q has retries or a timeout below zero", name)
		case workflow.TimeoutMs > wire.DurationMsMax, workflow.LeaseMs > wire.DurationMsMax:
			return fmt.Errorf("workflow %q has a timeout or a lease of more than %d ms, which is 100 years", name, int64(wire.DurationMsMax))
		case workflow.LeaseMs != 0 && workflow.LeaseMs < leaseMsMin:
			return fmt.Errorf("workflow %q has a lease of %d ms; the least is %d", name, workflow.LeaseMs, leaseMsMin)
		case len(workflow.Triggers) > triggersMax:
			return fmt.Errorf("workflow %q has %d triggers; the most is %d", name, len(workflow.Triggers), triggersMax)
		}
		for _, trigger := range workflow.Triggers {
			if err := checkTrigger(trigger); err != nil {
				return fmt.Errorf("workflow %q: %w", name, err)
			}
		}
		seen[workflow.Name] = true
	}
	return nil
}

// checkTrigger checks a trigger's shape. Whether its schedule and its filter can be read is for those who read them.
func checkTrigger(trigger wire.Trigger) error {
	kinds := 0
	for _, text := range []string{trigger.Event, trigger.Webhook, trigger.Schedule} {
		if text == "" {
			continue
		}
		kinds++
		if !isName(text) {
			return fmt.Errorf("a trigger's event, webhook or schedule has more than %d bytes", wire.NameBytesMax)
		}
	}
	if kinds != 1 {
		return errors.New("a trigger has exactly one of event, webhook and schedule")
	}
	if len(trigger.If)+len(trigger.Timezone)+len(trigger.CatchUp) > triggerBytesMax {
		return fmt.Errorf("a trigger's options have more than %d bytes", triggerBytesMax)
	}
	return nil
}

func isName(text string) bool { return text != "" && len(text) <= wire.NameBytesMax }
