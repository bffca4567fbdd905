package httpapi_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/apptest"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/id"
)

func TestAnEventStartsEachWorkflowThatListens(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("invoice", echo, "order.paid"), apptest.On("ship", echo, "order.paid", "order.shipped"), apptest.On("deaf", echo))
	emitted := decode[apitype.EmittedEvent](t, s.post("/v1/events", `{"event":"order.paid","payload":{"id":"o_1"}}`), http.StatusOK)
	if !emitted.Created || emitted.Runs != 2 || emitted.Event.Event != "order.paid" || string(emitted.Payload) != `{"id":"o_1"}` || id.Check(id.Event, emitted.ID) != nil {
		t.Fatalf("%+v", emitted)
	}
	list, err := s.Runs(t.Context(), client.RunQuery{})
	if err != nil || len(list.Data) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, run := range list.Data {
		ended := s.ended(run.ID)
		if *ended.Event != "order.paid" || *ended.EventID != emitted.ID || string(ended.Payload) != `{"id":"o_1"}` || string(ended.Output) != `{"id":"o_1"}` {
			t.Errorf("%+v", ended)
		}
	}
}

// Rule K4.
func TestAnEventsIDIsEmittedOnce(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("invoice", echo, "order.paid"))
	emit := func(e client.Event) apitype.EmittedEvent {
		t.Helper()
		emitted, err := s.Emit(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		return emitted
	}
	first := emit(client.Event{Event: "order.paid", Payload: []byte(`1`), ID: "any text, 0 up to 256 bytes ✓"})
	if !first.Created || first.Runs != 1 {
		t.Fatalf("%+v", first)
	}
	if again := emit(client.Event{Event: "order.paid", Payload: []byte(`1`), ID: first.ID}); again.Created || again.PayloadDiffers || again.ID != first.ID || again.Runs != 1 {
		t.Errorf("again: %+v", again)
	}
	if differs := emit(client.Event{Event: "order.paid", Payload: []byte(`2`), ID: first.ID}); differs.Created || !differs.PayloadDiffers || string(differs.Payload) != "1" {
		t.Errorf("another payload: %+v", differs)
	}
	if other := emit(client.Event{Event: "order.shipped", ID: first.ID}); !other.Created {
		t.Errorf("an id is of its event's name: %+v", other)
	}
	drawn := id.New(id.Event)
	for range 2 { // a drawn id that comes again is its first try (K6)
		if e := emit(client.Event{Event: "order.paid", ID: drawn}); !e.Created || e.ID != drawn {
			t.Errorf("drawn: %+v", e)
		}
	}
	if list, err := s.Runs(t.Context(), client.RunQuery{}); err != nil || len(list.Data) != 2 {
		t.Errorf("%d runs, %v", len(list.Data), err)
	}
}

func TestAnArrayOfEventsIsAllOrNone(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("invoice", echo, "a"))
	list, err := s.EmitAll(t.Context(), []client.Event{{Event: "a", ID: "1"}, {Event: "b"}, {Event: "a", Payload: []byte(`null`)}})
	if err != nil || len(list) != 3 || list[0].ID != "1" || list[1].Event.Event != "b" || list[1].Runs != 0 || string(list[2].Payload) != "null" || list[0].Payload != nil {
		t.Fatalf("%+v, %v", list, err)
	}
	list, err = s.EmitAll(t.Context(), []client.Event{{Event: "a", ID: "1"}, {Event: "a", ID: "2"}})
	if err != nil || list[0].Created || !list[1].Created {
		t.Errorf("one is there already: %+v, %v", list, err)
	}
	before, _ := s.Events(t.Context(), "", client.Page{Limit: 100})
	for name, body := range map[string]string{
		"a bad one":      `[{"event":"a"},{"event":""}]`,
		"no event":       `[]`,
		"the same twice": `[{"event":"a","id":"x"},{"event":"a","id":"x"}]`,
		"a long id":      `[{"event":"a","id":"` + strings.Repeat("x", 257) + `"}]`,
		"a long name":    `[{"event":"` + strings.Repeat("x", 257) + `"}]`,
		"a wrong field":  `[{"event":"a","paylod":1}]`,
		"too many":       "[" + strings.Repeat(`{"event":"a"},`, 1000) + `{"event":"a"}]`,
		"far too many":   "[" + strings.Repeat(`{"event":"a"},`, 1001) + "and what is never read",
	} {
		t.Run(name, func(t *testing.T) {
			a := s.post("/v1/events", body)
			a.problem(t, http.StatusUnprocessableEntity, "invalid")
		})
	}
	if after, err := s.Events(t.Context(), "", client.Page{Limit: 100}); err != nil || len(after.Data) != len(before.Data) {
		t.Errorf("a refused request left %d events, %v", len(after.Data)-len(before.Data), err)
	}
}

func TestEventsAreListedInPages(t *testing.T) {
	s := start(t)
	for n := range 5 {
		if _, err := s.Emit(t.Context(), client.Event{Event: "a", Payload: json.RawMessage(fmt.Sprint(n))}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Emit(t.Context(), client.Event{Event: "b"}); err != nil {
			t.Fatal(err)
		}
	}
	got, page := "", client.Page{Limit: 2}
	for range 5 {
		list, err := s.Events(t.Context(), "a", page)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Data {
			got += string(e.Payload)
		}
		if list.NextCursor == nil {
			break
		}
		page.Cursor = *list.NextCursor
	}
	if got != "43210" {
		t.Errorf("got %s", got)
	}
}

// hookPayload is the payload of a webhook's event.
type hookPayload struct {
	Webhook, Method, Body, BodyBase64 string
	Query, Headers                    map[string]string
	JSON                              json.RawMessage
}

// hooked sends a webhook without a key, and gives the event that it became.
func (s *server) hooked(r raw) (apitype.Event, hookPayload) {
	s.t.Helper()
	r.method = http.MethodPost
	if r.header == nil {
		r.header = map[string]string{}
	}
	if _, ok := r.header["Authorization"]; !ok {
		r.header["Authorization"] = ""
	}
	e := decode[apitype.EmittedEvent](s.t, s.do(r), http.StatusOK)
	list, err := s.Events(s.t.Context(), e.Event.Event, client.Page{Limit: 1})
	if err != nil || len(list.Data) != 1 || list.Data[0].ID != e.ID || !e.Created {
		s.t.Fatalf("%+v, %+v, %v", e, list, err)
	}
	var p hookPayload
	if err := json.Unmarshal(list.Data[0].Payload, &p); err != nil {
		s.t.Fatal(err)
	}
	return list.Data[0], p
}

func TestAWebhookBecomesAnEvent(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("hook", echo, "webhook.shop"))
	e, p := s.hooked(raw{path: "/hooks/shop?a=1&a=2&b=%FF", body: `{"id": 1.0}`, header: map[string]string{
		"Authorization": "Bearer " + apiKey, "Cookie": "session=" + apiKey, "Proxy-Authorization": "Basic " + apiKey, "X-Custom": "v",
	}})
	if e.Event != "webhook.shop" || e.Runs != 1 {
		t.Errorf("%+v", e)
	}
	if p.Webhook != "shop" || p.Method != http.MethodPost || p.Body != `{"id": 1.0}` || string(p.JSON) != `{"id":1.0}` && string(p.JSON) != `{"id": 1.0}` {
		t.Errorf("%+v", p)
	}
	if p.Query["a"] != "1" || p.Query["b"] != "�" || p.Headers["x-custom"] != "v" || p.Headers["content-type"] != "application/json" {
		t.Errorf("%+v", p)
	}
	for _, secret := range []string{"cookie", "authorization", "proxy-authorization"} {
		if _, ok := p.Headers[secret]; ok {
			t.Errorf("the header %s is stored", secret)
		}
	}
	if strings.Contains(string(e.Payload), apiKey) {
		t.Error("a key is stored")
	}
}

func TestAWebhooksBodyIsKeptAsItCame(t *testing.T) {
	s := start(t)
	if _, p := s.hooked(raw{path: "/hooks/raw", body: "a=1&b=\x00 "}); p.Body != "a=1&b=\x00 " || p.JSON != nil || p.BodyBase64 != "" {
		t.Errorf("a text: %+v", p)
	}
	if _, p := s.hooked(raw{path: "/hooks/raw"}); p.Body != "" || p.JSON != nil {
		t.Errorf("no body: %+v", p)
	}
	_, p := s.hooked(raw{path: "/hooks/raw", body: "\xff\xfe"})
	if decoded, err := base64.StdEncoding.DecodeString(p.BodyBase64); err != nil || string(decoded) != "\xff\xfe" || p.Body != "" {
		t.Errorf("not UTF-8: %+v", p)
	}
	deep := strings.Repeat("[", 300) + strings.Repeat("]", 300)
	if _, p := s.hooked(raw{path: "/hooks/raw", body: deep}); p.Body != deep || p.JSON != nil {
		t.Errorf("a deep body: %d bytes, json %v", len(p.Body), p.JSON != nil)
	}
	if e, p := s.hooked(raw{path: "/hooks/a%2Fb%20c", body: "x"}); e.Event != "webhook.a/b c" || p.Webhook != "a/b c" {
		t.Errorf("a name with a slash: %+v %+v", e, p)
	}
}

func TestAWebhookThatCannotBeTaken(t *testing.T) {
	s := start(t)
	s.do(raw{method: http.MethodPost, path: "/hooks/" + strings.Repeat("x", 300), body: "x"}).problem(t, http.StatusNotFound, "not_found")
	s.do(raw{method: http.MethodPost, path: "/hooks/x", body: strings.Repeat("x", 512<<10+1)}).problem(t, http.StatusRequestEntityTooLarge, "body_too_large")
	for name, sent := range map[string]raw{
		"characters that are escaped": {path: "/hooks/x", body: strings.Repeat("\x01", 512<<10)},
		"JSON, whose text is escaped": {path: "/hooks/x", body: `["` + strings.Repeat(`\\`, 256<<10-2) + `"]`},
	} {
		sent.method = http.MethodPost
		if p := s.do(sent).problem(t, http.StatusRequestEntityTooLarge, "payload_too_large"); !strings.Contains(p.Detail, "1048576") {
			t.Errorf("%s: %s", name, p.Detail)
		}
	}
	s.deliver("github", signedGitHub(hookSecret, `{"action":"`+strings.Repeat(`\\`, 256<<10-20)+`"}`, "d1")).problem(t, http.StatusRequestEntityTooLarge, "payload_too_large")
	for name, body := range map[string]string{"a text": strings.Repeat("x", 512<<10), "HTML": strings.Repeat("<p>", 170<<10), "bytes": strings.Repeat("\xff", 512<<10)} {
		if a := s.do(raw{method: http.MethodPost, path: "/hooks/x", body: body}); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	s.do(raw{method: http.MethodGet, path: "/hooks/x"}).problem(t, http.StatusMethodNotAllowed, "method_not_allowed")
}
