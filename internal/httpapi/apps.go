package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/wire"
)

type (
	appsOutput      struct{ Body apitype.List[apitype.App] }
	workflowsOutput struct {
		Body apitype.List[apitype.Workflow]
	}
	appOutput   struct{ Body apitype.App }
	putAppInput struct {
		Body struct {
			URL         string `json:"url" minLength:"1" maxLength:"2048" doc:"where the app answers, such as https://shop.example.com/api/nelkap"`
			Concurrency int    `json:"concurrency,omitempty" minimum:"1" maximum:"10000" doc:"how many calls it gets at once"`
		}
	}
	removeAppInput struct {
		Name string `path:"name" maxLength:"256"`
	}
	workflowsInput struct {
		App string `query:"app"`
	}
)

func (a *api) apps(h huma.API) {
	huma.Register(h, huma.Operation{OperationID: "listApps", Method: http.MethodGet, Path: "/v1/apps", Summary: "List apps, and the addresses at which one is expected"}, a.listApps)
	huma.Register(h, huma.Operation{
		OperationID: "putApp", Method: http.MethodPut, Path: "/v1/apps", Summary: "Register an app, or read its manifest again now",
		Description: "Asks the app at the address what it is. What it no longer has is forgotten at once.",
	}, a.putApp)
	huma.Register(h, huma.Operation{
		OperationID: "removeApp", Method: http.MethodDelete, Path: "/v1/apps/{name}", Summary: "Remove an app that is no longer there", DefaultStatus: http.StatusNoContent,
		Description: "Nothing starts its workflows any more, and its address is forgotten. Its runs that live wait, until it is registered again.",
	}, a.removeApp)
	huma.Register(h, huma.Operation{OperationID: "listWorkflows", Method: http.MethodGet, Path: "/v1/workflows", Summary: "List workflows"}, a.listWorkflows)
}

func (a *api) listApps(context.Context, *struct{}) (*appsOutput, error) {
	out := &appsOutput{apitype.List[apitype.App]{Data: []apitype.App{}}}
	for _, app := range a.Engine.Apps(engine.DefaultEnv) {
		out.Body.Data = append(out.Body.Data, appOf(app))
	}
	return out, nil
}

func (a *api) putApp(ctx context.Context, in *putAppInput) (*appOutput, error) {
	app, err := a.Engine.PutApp(ctx, engine.DefaultEnv, engine.AppRequest{URL: in.Body.URL, Concurrency: in.Body.Concurrency}, a.Dev)
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	return &appOutput{appOf(app)}, nil
}

func (a *api) removeApp(ctx context.Context, in *removeAppInput) (*struct{}, error) {
	if err := a.Engine.RemoveApp(ctx, engine.DefaultEnv, in.Name); err != nil {
		return nil, a.errorOf(ctx, err)
	}
	return nil, nil
}

func (a *api) listWorkflows(_ context.Context, in *workflowsInput) (*workflowsOutput, error) {
	out := &workflowsOutput{apitype.List[apitype.Workflow]{Data: []apitype.Workflow{}}}
	for _, app := range a.Engine.Apps(engine.DefaultEnv) {
		if in.App == "" || in.App == app.Name {
			out.Body.Data = append(out.Body.Data, workflowsOf(app)...)
		}
	}
	return out, nil
}

func appOf(app engine.AppInfo) apitype.App {
	out := apitype.App{
		Name: optional(app.Name), URL: app.URL, Status: "ready", Reason: optional(app.Reason), NextLookAt: apitype.At(app.NextLookAt),
		SeenAt: apitype.At(app.SeenAt), Concurrency: app.Concurrency, Workflows: workflowsOf(app), Problems: append([]string{}, app.Problems...),
	}
	if app.Reason != "" {
		out.Status = "unusable"
	}
	if app.SDK.Language != "" {
		out.SDK = &apitype.SDK{Language: app.SDK.Language, Version: app.SDK.Version}
	}
	return out
}

func workflowsOf(app engine.AppInfo) []apitype.Workflow {
	list := []apitype.Workflow{}
	for _, w := range app.Workflows {
		list = append(list, workflowOf(app.Name, w, app.Gone[w.Name]))
	}
	return list
}

func workflowOf(app string, w wire.Workflow, gone time.Time) apitype.Workflow {
	out := apitype.Workflow{Name: w.Name, App: app, Triggers: []apitype.Trigger{}, Retries: w.Retries, GoneSince: apitype.At(gone)}
	for _, t := range w.Triggers {
		out.Triggers = append(out.Triggers, apitype.Trigger{Event: t.Event, Webhook: t.Webhook, Schedule: t.Schedule, Timezone: t.Timezone, CatchUp: t.CatchUp, If: t.If})
	}
	if w.TimeoutMs > 0 {
		out.TimeoutMs = &w.TimeoutMs
	}
	if w.LeaseMs > 0 {
		out.LeaseMs = &w.LeaseMs
	}
	return out
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }
