package httpapi

import (
	"encoding/json/jsontext"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/nelkap/nelkap/internal/apitype"
)

// OpenAPI is the description of the public API, as /openapi.json gives it.
func OpenAPI(version string) ([]byte, error) {
	a := &api{Options: Options{Version: version}, mux: http.NewServeMux()}
	return a.public().OpenAPI().MarshalJSON()
}

// OpenAPIFile is OpenAPI as the committed copy, api/openapi.json, has it: indented, and without a version, which each build has of
// its own.
//
//go:generate go run ./openapi ../../api/openapi.json
func OpenAPIFile() ([]byte, error) {
	text, err := OpenAPI("0.0.0")
	if err != nil {
		return nil, err
	}
	value := jsontext.Value(text)
	if err := value.Indent(jsontext.WithIndent("  ")); err != nil {
		return nil, err
	}
	return append(value, '\n'), nil
}

// complete describes what huma can't see: routes that are plain handlers, values that may be null, and the bodies that come in two
// forms.
func complete(h huma.API) {
	document := h.OpenAPI()
	for _, t := range []reflect.Type{
		typeOf[apitype.Run](), typeOf[apitype.StartedRun](), typeOf[apitype.WaitingFor](), typeOf[apitype.Step](), typeOf[apitype.Attempt](),
		typeOf[apitype.Event](), typeOf[apitype.EmittedEvent](), typeOf[apitype.App](), typeOf[apitype.Workflow](),
		typeOf[apitype.Delivery](),
	} {
		nullable(document.Components.Schemas.Map()[t.Name()], t)
	}
	for name, schema := range document.Components.Schemas.Map() {
		if !strings.Contains(name, "Body") && schema.AdditionalProperties != nil { // an answer: a later version may add to it
			schema.AdditionalProperties = nil
		}
	}
	one := document.Components.Schemas.Schema(typeOf[eventBody](), true, "NewEvent")
	emit := document.Paths["/v1/events"].Post
	emit.RequestBody.Content["application/json"].Schema = oneOrMany(one)
	for path, what := range map[string]string{"/v1/runs": "The run that was there already", "/v1/runs/{id}/replay": "The run that was there already"} {
		responses := document.Paths[path].Post.Responses
		there := *responses["201"]
		there.Description = what
		responses["200"] = &there
	}
	for _, operation := range plain(h) {
		document.AddOperation(operation)
	}
}

// plain describes the public routes that are plain handlers. They need no key.
func plain(h huma.API) []*huma.Operation {
	nobody := []map[string][]string{}
	content := func(s *huma.Schema) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{"application/json": {Schema: s}}
	}
	problems := &huma.Response{Description: "Error", Content: map[string]*huma.MediaType{"application/problem+json": {Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}}}}
	alive := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{"status": {Type: huma.TypeString}}, Required: []string{"status"}}
	ready := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{
		"status": {Type: huma.TypeString}, "version": {Type: huma.TypeString},
		"held": {Type: huma.TypeBoolean, Description: "the store was restored from a backup: only reads and cancels are answered"},
	}, Required: []string{"status"}}
	health := func(id, path string) *huma.Operation {
		return &huma.Operation{
			OperationID: id, Method: http.MethodGet, Path: path, Summary: "Whether the server runs, whatever its store does", Security: nobody,
			Responses: map[string]*huma.Response{"200": {Description: "It runs", Content: content(alive)}},
		}
	}
	emitted := h.OpenAPI().Components.Schemas.Schema(typeOf[apitype.EmittedEvent](), true, "EmittedEvent")
	return []*huma.Operation{
		{
			OperationID: "hook", Method: http.MethodPost, Path: "/hooks/{name}", Summary: "Take a webhook in, as an event webhook.{name}", Security: nobody,
			Description: "A configured hook's signature is checked first: it is answered 401 where it is wrong. Its delivery is kept, and is the provider's event too.",
			Parameters:  []*huma.Param{{Name: "name", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}}},
			RequestBody: &huma.RequestBody{Description: "anything, at most 512 KiB, and 1 MiB as the event's payload; it is kept as it came", Content: map[string]*huma.MediaType{"*/*": {}}},
			Responses:   map[string]*huma.Response{"200": {Description: "The event, stored", Content: content(emitted)}, "default": problems},
		},
		health("liveness", "/livez"), health("health", "/healthz"), health("healthOnHosts", "/health"),
		{
			OperationID: "readiness", Method: http.MethodGet, Path: "/readyz", Summary: "Whether the server takes requests, and which version it is", Security: nobody,
			Description: "503 while the store can't be read or written, and from when the server is told to stop: send requests elsewhere then.",
			Responses:   map[string]*huma.Response{"200": {Description: "It does", Content: content(ready)}, "default": problems},
		},
	}
}

// nullable says of a type's pointers that they may be null, and of its times what they are.
func nullable(schema *huma.Schema, t reflect.Type) {
	for _, field := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		property := schema.Properties[name]
		switch {
		case property == nil || field.Type.Kind() != reflect.Pointer:
		case field.Type == typeOf[*apitype.Time]():
			property.Format = "date-time"
		case property.Ref != "" && options == "":
			schema.Properties[name] = &huma.Schema{AnyOf: []*huma.Schema{{Ref: property.Ref}, {Type: "null"}}, Description: property.Description}
		}
	}
}
