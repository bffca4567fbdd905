package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/engine"
)

type (
	verifyInput struct {
		Body struct {
			URL    string `json:"url" minLength:"1" maxLength:"2048" doc:"where the app with the new code answers; it need not be registered"`
			Limit  int    `json:"limit,omitempty" minimum:"1" maximum:"100" default:"20"`
			Cursor string `json:"cursor,omitempty" doc:"the nextCursor of the page before"`
			// NewSteps are what a deploy is meant to add.
			NewSteps []string `json:"newSteps,omitempty" maxItems:"100" doc:"names of steps that the code is meant to have now: that one of them comes before saved steps is no divergence"`
		}
	}
	verifyOutput struct{ Body apitype.Verification }
)

func (a *api) verifications(h huma.API) {
	huma.Register(h, huma.Operation{
		OperationID: "verify", Method: http.MethodPost, Path: "/v1/verify", Summary: "Play live runs against new code, without acting",
		Description: "Calls the app at the address with the history of each run of that app that has not ended. Saved steps answer, nothing runs and nothing is written. It says which runs would diverge, and where. Newest first.",
	}, a.verify)
}

func (a *api) verify(ctx context.Context, in *verifyInput) (*verifyOutput, error) {
	before, err := PageInput{Cursor: in.Body.Cursor}.run()
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	limit := in.Body.Limit
	if limit == 0 {
		limit = listStd
	}
	page, err := a.Engine.Verify(ctx, engine.VerifyRequest{Env: engine.DefaultEnv, URL: in.Body.URL, Before: before, Limit: limit, NewSteps: in.Body.NewSteps}, a.Dev)
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	out := &verifyOutput{apitype.Verification{App: page.App, List: apitype.List[apitype.VerifiedRun]{Data: []apitype.VerifiedRun{}}}}
	for _, v := range page.Runs {
		run := apitype.VerifiedRun{RunID: v.Run.ID, Workflow: v.Run.Workflow, Status: string(v.Run.Status), Diverges: len(v.Problems) > 0, Problems: append([]string{}, v.Problems...), Skipped: optional(v.Skipped), Asks: []apitype.PlannedStep{}}
		for _, s := range v.Asks {
			run.Asks = append(run.Asks, apitype.PlannedStep{Name: s.Name, Number: s.Number, Kind: s.Kind})
		}
		out.Body.Data = append(out.Body.Data, run)
	}
	if page.Next != "" {
		out.Body.NextCursor = cursor(page.Next)
	}
	return out, nil
}
