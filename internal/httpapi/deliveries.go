package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/webhook"
)

type redeliverBody struct {
	ID         string `json:"id,omitempty" minLength:"1" doc:"dlv_…, drawn by the client before its first try, so that a try again finds the redelivery"`
	Unverified bool   `json:"unverified,omitempty" doc:"true: also a delivery that was rejected; only if you know who sent it"`
}

type (
	deliveriesInput struct {
		PageInput
		Hook   string `query:"hook" doc:"only deliveries to this hook"`
		Status string `query:"status" enum:"verified,duplicate,rejected,unverified"`
	}
	deliveriesOutput struct {
		Body apitype.List[apitype.Delivery]
	}
	deliveryInput struct {
		ID string `path:"id"`
	}
	deliveryOutput struct {
		Status   int
		Replayed string `header:"Idempotent-Replayed"`
		Body     apitype.Delivery
	}
	redeliverInput struct {
		RequestKey
		ID   string         `path:"id"`
		Body *redeliverBody `required:"false"`
	}
)

func (a *api) deliveries(h huma.API) {
	huma.Register(h, huma.Operation{
		OperationID: "listDeliveries", Method: http.MethodGet, Path: "/v1/deliveries", Summary: "List deliveries to configured hooks, newest first",
		Description: "Without their requests. Rejected ones, whose signature was wrong, emitted nothing.",
	}, a.listDeliveries)
	huma.Register(h, huma.Operation{OperationID: "getDelivery", Method: http.MethodGet, Path: "/v1/deliveries/{id}", Summary: "Get a delivery, with its request as it came"}, a.getDelivery)
	huma.Register(h, huma.Operation{
		OperationID: "redeliver", Method: http.MethodPost, Path: "/v1/deliveries/{id}/redeliver", Summary: "Emit a delivery's events again, as new ones", DefaultStatus: http.StatusCreated,
		Description: "The redelivery is a delivery of its own. It is never a duplicate of the first. A rejected delivery is redelivered only with unverified: true.",
	}, a.redeliver)
}

func (a *api) listDeliveries(ctx context.Context, in *deliveriesInput) (*deliveriesOutput, error) {
	before, err := in.number()
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	list, err := a.Reader.Deliveries(ctx, store.DeliveryQuery{Env: engine.DefaultEnv, Hook: in.Hook, Status: store.DeliveryStatus(in.Status), Before: before, Limit: in.Limit + 1})
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	out := &deliveriesOutput{apitype.List[apitype.Delivery]{Data: []apitype.Delivery{}}}
	for _, d := range list[:min(in.Limit, len(list))] {
		out.Body.Data = append(out.Body.Data, deliveryOf(d))
	}
	if len(list) > in.Limit {
		out.Body.NextCursor = cursor(strconv.FormatInt(list[in.Limit-1].Position, 10))
	}
	return out, nil
}

func (a *api) getDelivery(ctx context.Context, in *deliveryInput) (*deliveryOutput, error) {
	d, err := a.Reader.Delivery(ctx, engine.DefaultEnv, in.ID)
	if err != nil {
		return nil, a.deliveryError(ctx, in.ID, err)
	}
	whole, err := wholeDelivery(d)
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	return &deliveryOutput{Status: http.StatusOK, Body: whole}, nil
}

func (a *api) redeliver(ctx context.Context, in *redeliverInput) (*deliveryOutput, error) {
	b := redeliverBody{}
	if in.Body != nil {
		b = *in.Body
	}
	if b.ID != "" {
		if err := id.Check(id.Delivery, b.ID); err != nil {
			return nil, a.errorOf(ctx, problem(http.StatusUnprocessableEntity, "invalid", err.Error()))
		}
	}
	original, err := a.Reader.Delivery(ctx, engine.DefaultEnv, in.ID)
	if err != nil {
		return nil, a.deliveryError(ctx, in.ID, err)
	}
	request, err := a.redelivery(original, b)
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	request.Request = in.key("POST /v1/deliveries/"+in.ID+"/redeliver", in.Body)
	delivered, err := a.Engine.Deliver(ctx, request)
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	if delivered.Delivery.RedeliveryOf != in.ID {
		return nil, a.errorOf(ctx, problem(http.StatusUnprocessableEntity, "invalid", "the id is that of another delivery: draw a new one for each redelivery"))
	}
	whole, err := wholeDelivery(delivered.Delivery)
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	out := &deliveryOutput{Status: http.StatusCreated, Body: whole}
	if delivered.Replayed {
		out.Replayed = "true"
	}
	return out, nil
}

// redelivery makes a new delivery of one that is kept. Its signature is not checked again: whether it was right when it came is known,
// and its time is over by now.
func (a *api) redelivery(original store.Delivery, b redeliverBody) (engine.DeliverRequest, error) {
	d := original
	d.ID, d.RedeliveryOf, d.Events, d.Status, d.Reason = b.ID, original.ID, nil, store.DeliveryVerified, ""
	var sent webhookRequest
	if err := json.Unmarshal(original.Request, &sent); err != nil {
		return engine.DeliverRequest{}, fmt.Errorf("reading the request of delivery %s: %w", original.ID, err)
	}
	event := ""
	switch original.Status {
	case store.DeliveryRejected, store.DeliveryUnverified:
		if !b.Unverified {
			return engine.DeliverRequest{}, problem(http.StatusConflict, "unverified",
				`nobody has verified this delivery: if you know who sent it, redeliver it with {"unverified": true} (nelkap deliveries redeliver --unverified). Why it was rejected: `+reasonOf(original))
		}
		d.Status, d.Reason = store.DeliveryUnverified, original.Reason
		event = a.eventOfUnverified(original, sent)
	default:
		if len(original.Events) > 0 && original.Events[0].Event != webhookEvent(original.Hook) {
			event = original.Events[0].Event
		}
	}
	events, err := eventsOf(original.Hook, event, sent, original.Body)
	return engine.DeliverRequest{Delivery: d, Events: events}, err
}

func reasonOf(d store.Delivery) string {
	if d.Reason == "" {
		return "not known"
	}
	return d.Reason
}

// eventOfUnverified is the provider's event that a rejected delivery would have been, if its hook is there still and can read it.
func (a *api) eventOfUnverified(d store.Delivery, sent webhookRequest) string {
	h, ok := a.Hooks[d.Hook]
	if !ok || h.Provider != d.Provider {
		return ""
	}
	header := map[string][]string{}
	for name, value := range sent.Headers {
		header[name] = []string{value}
	}
	reading, err := h.Read(webhook.Request{Header: header, Body: d.Body})
	if err != nil {
		return ""
	}
	return reading.Event
}

func (a *api) deliveryError(ctx context.Context, deliveryID string, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		err = problem(http.StatusNotFound, "not_found", fmt.Sprintf("there is no delivery %q: GET /v1/deliveries lists those that are kept", strings.ToValidUTF8(deliveryID, "�")))
	}
	return a.errorOf(ctx, err)
}

func deliveryOf(d store.Delivery) apitype.Delivery {
	out := apitype.Delivery{
		ID: d.ID, Hook: d.Hook, Provider: d.Provider, Status: string(d.Status), Reason: optional(d.Reason), ProviderID: optional(d.ProviderID),
		RedeliveryOf: optional(d.RedeliveryOf), Events: []apitype.DeliveryEvent{}, ReceivedAt: apitype.At(d.ReceivedAt),
	}
	for _, e := range d.Events {
		out.Events = append(out.Events, apitype.DeliveryEvent{ID: e.ID, Event: e.Event, Runs: e.Runs})
	}
	return out
}

// wholeDelivery is a delivery with its request.
func wholeDelivery(d store.Delivery) (apitype.Delivery, error) {
	var sent webhookRequest
	if err := json.Unmarshal(d.Request, &sent); err != nil {
		return apitype.Delivery{}, fmt.Errorf("reading the request of delivery %s: %w", d.ID, err)
	}
	out := deliveryOf(d)
	out.Request = &apitype.DeliveryRequest{Method: sent.Method, Query: sent.Query, Headers: sent.Headers, Body: d.Body}
	if out.Request.Body == nil {
		out.Request.Body = []byte{}
	}
	return out, nil
}
