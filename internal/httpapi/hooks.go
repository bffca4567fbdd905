package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/webhook"
	"github.com/nelkap/nelkap/internal/wire"
)

// webhookPayload is the payload of a webhook's event. Body is the raw text; where it is not UTF-8, its base64 in bodyBase64
// stands beside an empty body.
type webhookPayload struct {
	Webhook string `json:"webhook"`
	webhookRequest
	Body       string          `json:"body"`
	BodyBase64 string          `json:"bodyBase64,omitempty"`
	JSON       json.RawMessage `json:"json,omitempty"`
}

// webhookRequest is a webhook's request without its body. Of a configured hook's it is stored so.
type webhookRequest struct {
	Method  string            `json:"method"`
	Query   map[string]string `json:"query"`
	Headers map[string]string `json:"headers"`
}

// webhookEvent is the event that every webhook becomes.
func webhookEvent(hook string) string { return "webhook." + hook }

// hook takes a webhook in: the request as it came, as an event webhook.{name}, acknowledged once it is durable. A configured hook's is
// checked first, and is the provider's event too.
func (a *api) hook(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	event := webhookEvent(name)
	if len(event) > wire.NameBytesMax || !utf8.ValidString(event) {
		a.fail(w, r, problem(http.StatusNotFound, "not_found", fmt.Sprintf("a webhook's name is a text of at most %d bytes: check the address that its sender has", wire.NameBytesMax-len(webhookEvent("")))))
		return
	}
	body, done, err := a.readBody(w, r, eventBytesMax/2)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	defer done()
	if h, ok := a.Hooks[name]; ok {
		a.configuredHook(w, r, h, body)
		return
	}
	payload, err := payloadText(name, requestOf(r), body)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	emitted, _, err := a.Engine.Emit(r.Context(), engine.DefaultEnv, []engine.NewEvent{{Name: event, Payload: payload}}, nil)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	e := emitted[0].Event
	writeJSON(w, apitype.EmittedEvent{Event: apitype.Event{ID: e.ID, Event: e.Name, CreatedAt: apitype.At(e.CreatedAt), Runs: e.Runs}, Created: true})
}

// configuredHook takes a delivery of a provider in: verified, kept, and acknowledged once its events are durable. One whose signature
// is wrong is kept apart, and starts nothing.
func (a *api) configuredHook(w http.ResponseWriter, r *http.Request, h webhook.Hook, body []byte) {
	request := webhook.Request{Header: r.Header, Body: body}
	kept := requestOf(r)
	text, err := json.Marshal(kept)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	d := store.Delivery{Env: engine.DefaultEnv, Hook: h.Name, Provider: h.Provider, Status: store.DeliveryVerified, Request: text, Body: body}
	if err := h.Verify(request, time.Now()); err != nil {
		a.reject(w, r, d, problem(http.StatusUnauthorized, "bad_signature", err.Error()))
		return
	}
	reading, err := h.Read(request)
	switch {
	case err != nil:
		a.reject(w, r, d, problem(http.StatusUnprocessableEntity, "bad_delivery", err.Error()))
		return
	case reading.Challenge != "":
		writeJSON(w, map[string]string{"challenge": reading.Challenge})
		return
	}
	d.ProviderID = reading.ID
	events, err := eventsOf(h.Name, reading.Event, kept, body)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	delivered, err := a.Engine.Deliver(r.Context(), engine.DeliverRequest{Delivery: d, Events: events, Dedupe: h.Dedupe})
	if err != nil {
		a.fail(w, r, err)
		return
	}
	e := delivered.Delivery.Events[0]
	writeJSON(w, apitype.EmittedEvent{
		Event:   apitype.Event{ID: e.ID, Event: e.Event, Runs: e.Runs, CreatedAt: a.emittedAt(r, delivered, e)},
		Created: delivered.Created, DeliveryID: delivered.Delivery.ID,
	})
}

// emittedAt is when a delivery's event was emitted; null for one of a first delivery that is not kept any more.
func (a *api) emittedAt(r *http.Request, d engine.Delivered, e store.DeliveryEvent) *apitype.Time {
	if d.Created {
		return apitype.At(d.Delivery.ReceivedAt)
	}
	stored, err := a.Reader.Event(r.Context(), d.Delivery.Env, e.Event, e.ID)
	if err != nil {
		return nil
	}
	return apitype.At(stored.CreatedAt)
}

// reject keeps a delivery apart and answers why. What can't be kept is refused all the same.
func (a *api) reject(w http.ResponseWriter, r *http.Request, d store.Delivery, p *apitype.Problem) {
	d.Reason = p.Detail
	if err := a.Engine.Reject(d); err != nil && !errors.Is(err, engine.ErrBusy) {
		a.Logger.Warn("a rejected delivery could not be kept", "hook", d.Hook, "requestId", requestID(r.Context()), "error", err)
	}
	a.fail(w, r, p)
}

// eventsOf are the events of a delivery: the provider's, if the delivery names one, and the hook's own, with one payload.
func eventsOf(hook, event string, request webhookRequest, body []byte) ([]engine.NewEvent, error) {
	payload, err := payloadText(hook, request, body)
	if err != nil {
		return nil, err
	}
	var events []engine.NewEvent
	if event != "" {
		events = append(events, engine.NewEvent{Name: event, Payload: payload})
	}
	return append(events, engine.NewEvent{Name: webhookEvent(hook), Payload: payload}), nil
}

// secretHeaders are not stored: they are for this server, not for a workflow.
var secretHeaders = map[string]bool{"cookie": true, "authorization": true, "proxy-authorization": true}

func requestOf(r *http.Request) webhookRequest {
	request := webhookRequest{Method: r.Method, Query: first(r.URL.Query()), Headers: map[string]string{}}
	for header, values := range r.Header {
		if lower := strings.ToLower(header); !secretHeaders[lower] {
			request.Headers[lower] = strings.ToValidUTF8(strings.Join(values, ", "), "�")
		}
	}
	return request
}

// payloadText is the payload of a webhook's events, within an event's limit. Of a body it has up to six times as much where that is
// characters which JSON must escape, and twice as much where it is JSON.
func payloadText(name string, request webhookRequest, body []byte) (json.RawMessage, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // a body of HTML or XML would be several times as large
	if err := encoder.Encode(payloadOf(name, request, body)); err != nil {
		return nil, err
	}
	payload := bytes.TrimSuffix(text.Bytes(), []byte("\n"))
	if len(payload) > eventBytesMax {
		return nil, problem(http.StatusRequestEntityTooLarge, "payload_too_large", fmt.Sprintf(
			"the event of this webhook, which has its body as a text and, if it is JSON, as JSON, has %d bytes, and may have %d at most: have its sender send less, or a reference", len(payload), eventBytesMax))
	}
	return payload, nil
}

func payloadOf(name string, request webhookRequest, body []byte) webhookPayload {
	p := webhookPayload{Webhook: name, webhookRequest: request}
	if !utf8.Valid(body) {
		p.BodyBase64 = base64.StdEncoding.EncodeToString(body)
		return p
	}
	p.Body = string(body)
	if json.Valid(body) && wire.Depth(body) < wire.DepthMax {
		p.JSON = body
	}
	return p
}

// first gives a query's first values by name.
func first(query url.Values) map[string]string {
	out := map[string]string{}
	for name := range maps.Keys(query) {
		out[strings.ToValidUTF8(name, "�")] = strings.ToValidUTF8(query.Get(name), "�")
	}
	return out
}
