package call

import (
	"context"
	"fmt"
	"time"

	"github.com/nelkap/nelkap/internal/wire"
)

const (
	// VerifyLimit is how long the code may take to come to rest: saved steps answer at once.
	VerifyLimit = 5 * time.Second
	// verifyTimeout adds a cold start.
	verifyTimeout    = VerifyLimit + 10*time.Second
	verifiedBytesMax = 1 << 20
)

// Verify has an app play a run's code against its history without acting (D3). What was verified is nil unless the outcome is Answered.
func (c *Caller) Verify(ctx context.Context, target Target, message wire.Verify) (*wire.Verified, Outcome) {
	limited, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	body, err := wire.Encode(message)
	if err != nil {
		return nil, notSent(err)
	}
	outcome := c.do(limited, Request{Target: target, Body: body}, verifiedBytesMax)
	if outcome.Kind == Ended && ctx.Err() == nil {
		outcome = Outcome{Kind: Silent, Reason: fmt.Sprintf("the app did not answer within %v", verifyTimeout), Err: outcome.Err}
	}
	if outcome.Kind != Answered {
		return nil, outcome
	}
	var verified wire.Verified
	if err := wire.Decode(outcome.Body, &verified); err != nil || verified.Type != "verified" {
		return nil, Outcome{
			Kind: Unusable, Status: outcome.Status, SDK: outcome.SDK,
			Reason: "the app's answer is not that of a verify: its SDK may be older than this server",
		}
	}
	return &verified, outcome
}
