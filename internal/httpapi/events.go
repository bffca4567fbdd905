package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/json/jsontext"
	jsonv2 "encoding/json/v2"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
)

// Limits of events.
const (
	eventsMax       = 1_000   // in one request
	emitBytesMax    = 8 << 20 // one request
	eventIDBytesMax = 256
)

type eventBody struct {
	Event   string          `json:"event" minLength:"1" maxLength:"256" doc:"its name"`
	Payload json.RawMessage `json:"payload,omitempty" doc:"any JSON, at most 1 MiB"`
	ID      *string         `json:"id,omitempty" minLength:"1" maxLength:"256" doc:"any text, unique for 90 days under its name: emitted again it is the same event"`
	At      *time.Time      `json:"at,omitempty" doc:"when it is emitted, at most a year from now; past is at once"`
	Send    *sendBody       `json:"send,omitempty" doc:"where a step emits it; the SDKs fill it in"`
}

type (
	emitInput struct {
		RequestKey
		ContentType string `header:"Content-Type" hidden:"true"`
		RawBody     []byte `contentType:"application/json"`
	}
	emitOutput struct {
		Replayed string `header:"Idempotent-Replayed"`
		Body     any
	}
	eventsInput struct {
		PageInput
		Event string `query:"event" doc:"only events of this name"`
	}
	eventsOutput struct{ Body apitype.List[apitype.Event] }
)

func (a *api) events(h huma.API) {
	emitted := h.OpenAPI().Components.Schemas.Schema(typeOf[apitype.EmittedEvent](), true, "EmittedEvent")
	huma.Register(h, huma.Operation{
		OperationID: "emit", Method: http.MethodPost, Path: "/v1/events", Summary: "Emit an event, or several, all or none",
		Description:  "Stores the event and starts the runs that it triggers, in one transaction. An id that is there already answers its event, with created: false.",
		MaxBodyBytes: emitBytesMax, BodyReadTimeout: bodyTimeout,
		SkipValidateBody: true, // readEvents does, for one and for many
		Responses:        map[string]*huma.Response{"200": {Description: "The event, or the events in their order", Content: map[string]*huma.MediaType{"application/json": {Schema: oneOrMany(emitted)}}}},
	}, a.emit)
	huma.Register(h, huma.Operation{OperationID: "listEvents", Method: http.MethodGet, Path: "/v1/events", Summary: "List events, newest first"}, a.listEvents)
}

func oneOrMany(s *huma.Schema) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{s, {Type: huma.TypeArray, Items: s}}}
}

func (a *api) emit(ctx context.Context, in *emitInput) (*emitOutput, error) {
	if kind, _, err := mime.ParseMediaType(in.ContentType); in.ContentType != "" && (err != nil || kind != "application/json") {
		return nil, a.errorOf(ctx, problem(http.StatusUnsupportedMediaType, "bad_content_type", "an event is JSON: "+sendJSON))
	}
	events, many, err := readEvents(in.RawBody)
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	var request *engine.RequestKey
	if in.IdempotencyKey != "" {
		sum := sha256.Sum256(in.RawBody)
		request = &engine.RequestKey{Scope: "POST /v1/events", Key: in.IdempotencyKey, Hash: hex.EncodeToString(sum[:16])}
	}
	emitted, replayed, err := a.Engine.Emit(ctx, engine.DefaultEnv, events, request)
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	list := []apitype.EmittedEvent{}
	for _, e := range emitted {
		list = append(list, apitype.EmittedEvent{Event: eventOf(e.Event), Created: e.Created, PayloadDiffers: e.PayloadDiffers})
	}
	out := &emitOutput{Body: list}
	if !many {
		out.Body = list[0]
	}
	if replayed {
		out.Replayed = "true"
	}
	return out, nil
}

// readEvents reads one event or an array of them.
func readEvents(body []byte) (events []engine.NewEvent, many bool, err error) {
	body = bytes.TrimSpace(body)
	many = len(body) > 0 && body[0] == '['
	var list []eventBody
	if many {
		err = decodeStrict(body, &list, noMoreEvents())
	} else {
		list = make([]eventBody, 1)
		err = decodeStrict(body, &list[0])
	}
	if err != nil {
		return nil, many, err
	}
	if len(list) == 0 {
		return nil, many, problem(http.StatusUnprocessableEntity, "invalid", errEventCount.Error())
	}
	seen := map[[2]string]bool{}
	for i, e := range list {
		if err := checkEvent(e, i); err != nil {
			return nil, many, err
		}
		id := ""
		if e.ID != nil {
			id = *e.ID
			if seen[[2]string{e.Event, id}] {
				return nil, many, problem(http.StatusUnprocessableEntity, "invalid", fmt.Sprintf("event %d has the name and the id of one before it: give each an id of its own", i))
			}
			seen[[2]string{e.Event, id}] = true
		}
		at, err := dueAt(e.At)
		if err != nil {
			return nil, many, err
		}
		events = append(events, engine.NewEvent{Name: e.Event, Payload: e.Payload, ID: id, Send: e.Send.wire(), At: at})
	}
	return events, many, nil
}

var errEventCount = fmt.Errorf("a request emits 1 to %d events", eventsMax)

// noMoreEvents ends the reading at the first event too many: what is only `{}` takes fifty times its bytes once it is read.
func noMoreEvents() *jsonv2.Unmarshalers {
	n := 0
	return jsonv2.UnmarshalFromFunc(func(*jsontext.Decoder, *eventBody) error {
		if n++; n > eventsMax {
			return errEventCount
		}
		return errors.ErrUnsupported
	})
}

// wholeTexts refuses names and ids with half a character; payloads are no texts, but JSON as it came.
var wholeTexts = jsonv2.UnmarshalFunc(func(text []byte, into *string) error {
	whole, err := jsontext.AppendUnquote(nil, text)
	if err != nil && text[0] == '"' {
		return errHalf
	}
	*into = string(whole)
	return err
})

// decodeStrict reads our own fields: one that is misspelt would lose what it says.
func decodeStrict(body []byte, into any, also ...*jsonv2.Unmarshalers) error {
	if !utf8.Valid(body) {
		return problem(http.StatusBadRequest, "bad_request", "the body is not valid UTF-8")
	}
	unmarshalers := jsonv2.WithUnmarshalers(jsonv2.JoinUnmarshalers(append(also, wholeTexts)...))
	err := jsonv2.Unmarshal(body, into, unmarshalers, jsonv2.RejectUnknownMembers(true), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	var place *jsonv2.SemanticError
	switch {
	case errors.Is(err, jsonv2.ErrUnknownName) && errors.As(err, &place):
		return problem(http.StatusUnprocessableEntity, "invalid", fmt.Sprintf("an event has event, payload, id and at, and nothing else: %s is not known", place.JSONPointer))
	case errors.Is(err, errEventCount):
		return problem(http.StatusUnprocessableEntity, "invalid", errEventCount.Error())
	case errors.Is(err, errHalf) && errors.As(err, &place):
		return problem(http.StatusBadRequest, "bad_request", fmt.Sprintf("%v in %s", errHalf, place.JSONPointer))
	case errors.As(err, &place):
		return problem(http.StatusBadRequest, "bad_request", notAnEvent(place))
	case err != nil:
		return problem(http.StatusBadRequest, "bad_request", "the body is not the JSON that is expected here: "+err.Error())
	}
	return nil
}

// notAnEvent says what does not fit, in the words of the API and not of Go.
func notAnEvent(place *jsonv2.SemanticError) string {
	if place.JSONPointer.LastToken() == "at" && place.JSONKind == jsontext.KindString {
		return fmt.Sprintf("%s is no time: give one such as 2027-01-31T09:00:00Z", place.JSONPointer)
	}
	where := "the body"
	if place.JSONPointer != "" {
		where = string(place.JSONPointer)
	}
	return fmt.Sprintf(`%s is a JSON %s, which does not fit: an event is {"event":"order.paid","payload":…}, or an array of such`, where, place.JSONKind)
}

func checkEvent(e eventBody, i int) error {
	switch {
	case e.Event == "" || len(e.Event) > wire.NameBytesMax:
		return problem(http.StatusUnprocessableEntity, "invalid", fmt.Sprintf("event %d: event must be its name, of 1 to %d bytes", i, wire.NameBytesMax))
	case e.ID != nil && (*e.ID == "" || len(*e.ID) > eventIDBytesMax):
		return problem(http.StatusUnprocessableEntity, "invalid", fmt.Sprintf("event %d: id has %d bytes, and may have 1 to %d", i, len(*e.ID), eventIDBytesMax))
	}
	return checkPayload(e.Payload, eventBytesMax)
}

func (a *api) listEvents(ctx context.Context, in *eventsInput) (*eventsOutput, error) {
	before, err := in.number()
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	q := store.EventQuery{Env: engine.DefaultEnv, Name: in.Event, Before: before}
	events, more, err := gather(in.Limit, func(last *store.Event, limit int) ([]store.Event, error) {
		if q.Limit = limit; last != nil {
			q.Before = last.Position
		}
		return a.Reader.Events(ctx, q)
	}, func(e *store.Event) int { return len(e.Payload) })
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	out := &eventsOutput{apitype.List[apitype.Event]{Data: []apitype.Event{}}}
	for _, e := range events {
		out.Body.Data = append(out.Body.Data, eventOf(e))
	}
	if more {
		out.Body.NextCursor = cursor(strconv.FormatInt(events[len(events)-1].Position, 10))
	}
	return out, nil
}

func eventOf(e store.Event) apitype.Event {
	return apitype.Event{ID: e.ID, Event: e.Name, Payload: e.Payload, CreatedAt: apitype.At(e.CreatedAt), Runs: e.Runs}
}
