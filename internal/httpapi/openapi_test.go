package httpapi_test

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nelkap/nelkap/internal/apptest"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/httpapi"
)

const committed = "../../api/openapi.json"

func TestTheCommittedDescriptionIsWhatTheServerGives(t *testing.T) {
	want, err := httpapi.OpenAPIFile()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(committed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("api/openapi.json is not what the code describes: run go generate ./internal/httpapi\n%s", diff)
	}
	s := start(t)
	served := s.do(raw{method: http.MethodGet, path: "/openapi.json"})
	var a, b map[string]any
	if json.Unmarshal([]byte(served.body), &a) != nil || json.Unmarshal(got, &b) != nil {
		t.Fatalf("%d %s", served.status, served.body)
	}
	if a["info"].(map[string]any)["version"] != "test" {
		t.Errorf("the server's version is not in it: %v", a["info"])
	}
	a["info"], b["info"] = nil, nil
	if diff := cmp.Diff(b, a); diff != "" {
		t.Error(diff)
	}
}

// schema is what is looked at of one.
type schema struct {
	Ref        string            `json:"$ref"`
	Type       any               `json:"type"`
	Properties map[string]schema `json:"properties"`
	Required   []string          `json:"required"`
	Items      *schema           `json:"items"`
	AnyOf      []schema          `json:"anyOf"`
}

type operation struct {
	OperationID string                 `json:"operationId"`
	Security    *[]map[string][]string `json:"security"`
	Responses   map[string]struct {
		Description string `json:"description"`
		Content     map[string]struct {
			Schema schema `json:"schema"`
		} `json:"content"`
	} `json:"responses"`
}

type description struct {
	OpenAPI    string                          `json:"openapi"`
	Security   []map[string][]string           `json:"security"`
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas map[string]schema `json:"schemas"`
	} `json:"components"`
}

func readDescription(t *testing.T) (description, string) {
	t.Helper()
	text, err := os.ReadFile(committed)
	if err != nil {
		t.Fatal(err)
	}
	var d description
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d, string(text)
}

func TestTheDescriptionIsWhole(t *testing.T) {
	d, text := readDescription(t)
	if !strings.HasPrefix(d.OpenAPI, "3.1.") || len(d.Security) == 0 {
		t.Errorf("version %q, security %v", d.OpenAPI, d.Security)
	}
	for _, route := range []string{
		"post /v1/runs", "get /v1/runs", "get /v1/runs/{id}", "get /v1/runs/{id}/steps", "post /v1/runs/{id}/replay", "post /v1/runs/{id}/cancel",
		"post /v1/events", "get /v1/events", "get /v1/workflows", "get /v1/apps", "put /v1/apps", "post /hooks/{name}", "get /livez", "get /healthz", "get /health", "get /readyz",
	} {
		method, path, _ := strings.Cut(route, " ")
		o, ok := d.Paths[path][method]
		if !ok || o.OperationID == "" || len(o.Responses) == 0 {
			t.Errorf("%s is missing", route)
		}
		if open := o.Security != nil && len(*o.Security) == 0; open == strings.HasPrefix(path, "/v1") {
			t.Errorf("%s: needs a key: %v", route, !open)
		}
		for status, response := range o.Responses {
			if response.Description == "" || len(response.Content) == 0 {
				t.Errorf("%s: %s says nothing", route, status)
			}
		}
	}
	for _, found := range regexp.MustCompile(`"\$ref": "([^"]*)"`).FindAllStringSubmatch(text, -1) {
		name, ok := strings.CutPrefix(found[1], "#/components/schemas/")
		if _, there := d.Components.Schemas[name]; !ok || !there {
			t.Errorf("%s points nowhere", found[1])
		}
	}
}

func TestTheShapesAreThoseThatAreAskedFor(t *testing.T) {
	d, _ := readDescription(t)
	for name, fields := range map[string]string{
		"Run":     "id workflow app status payload output error event eventId key replayOf attempt createdAt startedAt endedAt cancelRequestedAt waitingFor",
		"Step":    "name number kind status output error attempts",
		"Attempt": "startedAt endedAt error",
		"Error":   "name message stack cause",
		"ListRun": "data nextCursor", "ListEvent": "data nextCursor", "ListStep": "data nextCursor", "ListApp": "data nextCursor", "ListWorkflow": "data nextCursor",
		"WaitingFor": "reason nextAt", "StartedRun": "id created payloadDiffers", "EmittedEvent": "id event payload createdAt created payloadDiffers",
		"Problem": "type title status code detail requestId errors",
	} {
		for _, field := range strings.Fields(fields) {
			if _, ok := d.Components.Schemas[name].Properties[field]; !ok {
				t.Errorf("%s has no %s", name, field)
			}
		}
	}
}

// What is answered is what is described.
func TestAnswersAreAsDescribed(t *testing.T) {
	d, _ := readDescription(t)
	s := start(t)
	s.app("shop", apptest.On("echo", echo, "order.paid"))
	run := s.ended(s.start(client.StartRun{Workflow: "echo", Payload: []byte(`1`)}).ID)
	if _, err := s.Emit(t.Context(), client.Event{Event: "order.paid"}); err != nil {
		t.Fatal(err)
	}
	for path, name := range map[string]string{
		"/v1/runs": "ListRun", "/v1/runs/" + run.ID: "Run", "/v1/runs/" + run.ID + "/steps": "ListStep", "/v1/events": "ListEvent",
		"/v1/apps": "ListApp", "/v1/workflows": "ListWorkflow",
	} {
		var value any
		if err := json.Unmarshal([]byte(s.do(raw{method: http.MethodGet, path: path}).body), &value); err != nil {
			t.Fatal(err)
		}
		d.fits(t, path, value, schema{Ref: "#/components/schemas/" + name})
	}
	var p any
	if err := json.Unmarshal([]byte(s.post("/v1/runs", `{}`).body), &p); err != nil {
		t.Fatal(err)
	}
	d.fits(t, "a problem", p, schema{Ref: "#/components/schemas/Problem"})
}

// fits checks a value's fields and types against a schema, as far as they go.
func (d description) fits(t *testing.T, where string, value any, s schema) {
	t.Helper()
	if s.Ref != "" {
		s = d.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	}
	if len(s.AnyOf) > 0 {
		if value != nil {
			d.fits(t, where, value, s.AnyOf[0])
		}
		return
	}
	kind := map[bool]string{true: "null"}[value == nil]
	switch value := value.(type) {
	case map[string]any:
		kind = "object"
		for _, name := range s.Required {
			if _, ok := value[name]; !ok {
				t.Errorf("%s lacks %s", where, name)
			}
		}
		for name, field := range value {
			property, ok := s.Properties[name]
			if s.Properties != nil && !ok {
				t.Errorf("%s has %s, which is not described", where, name)
			}
			d.fits(t, where+"."+name, field, property)
		}
	case []any:
		kind = "array"
		for _, item := range value {
			d.fits(t, where+"[]", item, *s.Items)
		}
	case string:
		kind = "string"
	case bool:
		kind = "boolean"
	case float64:
		kind = "integer"
	}
	switch allowed := s.Type.(type) {
	case string:
		if allowed != kind && allowed != "number" {
			t.Errorf("%s is %s, and described as %s", where, kind, allowed)
		}
	case []any:
		if !slices.Contains(allowed, any(kind)) {
			t.Errorf("%s is %s, and described as %v", where, kind, allowed)
		}
	}
}
