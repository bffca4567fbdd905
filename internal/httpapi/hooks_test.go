package httpapi_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/apptest"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/webhook"
)

// hooks are the configured hooks of every server in these tests, each with a secret that is being changed.
func hooks(t testing.TB) webhook.Hooks {
	t.Helper()
	list := webhook.Hooks{}
	for _, line := range []string{
		"payments=stripe", "github=github", "slack=slack", "boutique=shopify", "clerk=standard", "mail=svix",
		"erp=hmac,header=X-Sig,encoding=base64,prefix=sha256=,id=X-Delivery,dedupe", "once=github,dedupe",
	} {
		spec, err := webhook.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		if list[spec.Name], err = spec.Hook(hookSecret, hookOlder); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// deliver sends a webhook as its provider does: without a key.
func (s *server) deliver(hook string, r raw) answer {
	s.t.Helper()
	r.method, r.path, r.header = http.MethodPost, "/hooks/"+hook, maps.Clone(r.header)
	if r.header == nil {
		r.header = map[string]string{}
	}
	r.header["Authorization"] = ""
	return s.do(r)
}

func digestOf(secret, text string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func signedGitHub(secret, body, delivery string) raw {
	return raw{body: body, header: map[string]string{
		"X-Hub-Signature-256": "sha256=" + hex.EncodeToString(digestOf(secret, body)), "X-GitHub-Event": "issues", "X-GitHub-Delivery": delivery,
	}}
}

func signedStripe(secret, body string, at time.Time) raw {
	ts := strconv.FormatInt(at.Unix(), 10)
	return raw{body: body, header: map[string]string{"Stripe-Signature": "t=" + ts + ",v1=" + hex.EncodeToString(digestOf(secret, ts+"."+body))}}
}

func signedSlack(secret, body string, at time.Time) raw {
	ts := strconv.FormatInt(at.Unix(), 10)
	return raw{body: body, header: map[string]string{"X-Slack-Request-Timestamp": ts, "X-Slack-Signature": "v0=" + hex.EncodeToString(digestOf(secret, "v0:"+ts+":"+body))}}
}

func signedStandard(prefix string) func(string, string, time.Time) raw {
	return func(secret, body string, at time.Time) raw {
		ts := strconv.FormatInt(at.Unix(), 10)
		return raw{body: body, header: map[string]string{
			prefix + "id": "msg_1", prefix + "timestamp": ts, prefix + "signature": "v1," + base64.StdEncoding.EncodeToString(digestOf(secret, "msg_1."+ts+"."+body)),
		}}
	}
}

// providersHooks are one hook of each provider, with a delivery of it and the event that it is.
var providersHooks = []struct {
	hook, body, event, providerID, signature string
	sign                                     func(secret, body string, at time.Time) raw
	timed                                    bool
}{
	{"payments", `{"id":"evt_1","type":"checkout.session.completed"}`, "stripe.checkout.session.completed", "evt_1", "Stripe-Signature", signedStripe, true},
	{"github", `{"action":"opened"}`, "github.issues.opened", "d1", "X-Hub-Signature-256", func(secret, body string, _ time.Time) raw {
		return signedGitHub(secret, body, "d1")
	}, false},
	{"slack", `{"type":"event_callback","event_id":"Ev1","event":{"type":"app_mention"}}`, "slack.app_mention", "Ev1", "X-Slack-Signature", signedSlack, true},
	{"boutique", `{"id":1}`, "shopify.orders.create", "w1", "X-Shopify-Hmac-SHA256", func(secret, body string, _ time.Time) raw {
		return raw{body: body, header: map[string]string{
			"X-Shopify-Hmac-SHA256": base64.StdEncoding.EncodeToString(digestOf(secret, body)), "X-Shopify-Topic": "orders/create", "X-Shopify-Webhook-Id": "w1",
		}}
	}, false},
	{"clerk", `{"type":"user.created"}`, "clerk.user.created", "msg_1", "webhook-signature", signedStandard("webhook-"), true},
	{"mail", `{"type":"email.sent"}`, "mail.email.sent", "msg_1", "svix-signature", signedStandard("svix-"), true},
	{"erp", `{"type":"order"}`, "erp.order", "7", "X-Sig", func(secret, body string, _ time.Time) raw {
		return raw{body: body, header: map[string]string{"X-Sig": "sha256=" + base64.StdEncoding.EncodeToString(digestOf(secret, body)), "X-Delivery": "7"}}
	}, false},
}

func (s *server) deliveries(q client.DeliveryQuery) []apitype.Delivery {
	s.t.Helper()
	q.Limit = 100
	list, err := s.Deliveries(s.t.Context(), q)
	if err != nil {
		s.t.Fatal(err)
	}
	return list.Data
}

func (s *server) eventCount() int {
	s.t.Helper()
	list, err := s.Events(s.t.Context(), "", client.Page{Limit: 100})
	if err != nil {
		s.t.Fatal(err)
	}
	return len(list.Data)
}

func TestAProvidersDeliveryIsItsEventAndTheHooks(t *testing.T) {
	for _, p := range providersHooks {
		t.Run(p.hook, func(t *testing.T) {
			s := start(t)
			s.app("shop", apptest.On("named", echo, p.event), apptest.On("hook", echo, "webhook."+p.hook), apptest.On("both", echo, p.event, "webhook."+p.hook), apptest.On("deaf", echo))
			for n, secret := range []string{hookSecret, hookOlder} { // both count while they change
				if p.hook == "erp" && n == 1 {
					continue // it deduplicates
				}
				r := p.sign(secret, p.body, time.Now())
				r.header["Cookie"] = "canary"
				e := decode[apitype.EmittedEvent](t, s.deliver(p.hook, r), http.StatusOK)
				if e.Event.Event != p.event || !e.Created || e.Runs != 2 || e.CreatedAt == nil || id.Check(id.Delivery, e.DeliveryID) != nil {
					t.Fatalf("%+v", e)
				}
				d, err := s.Delivery(t.Context(), e.DeliveryID)
				if err != nil || d.Hook != p.hook || d.Status != "verified" || d.Reason != nil || *d.ProviderID != p.providerID || string(d.Request.Body) != p.body || d.Request.Method != http.MethodPost {
					t.Fatalf("%+v, %v", d, err)
				}
				if d.Request.Headers[strings.ToLower(p.signature)] == "" || d.Request.Headers["cookie"] != "" {
					t.Errorf("headers: %v", d.Request.Headers)
				}
				if len(d.Events) != 2 || d.Events[0] != (apitype.DeliveryEvent{ID: e.ID, Event: p.event, Runs: 2}) || d.Events[1].Event != "webhook."+p.hook || d.Events[1].Runs != 1 {
					t.Errorf("a workflow that listens to both is started once: %+v", d.Events)
				}
				for _, emitted := range d.Events {
					list, err := s.Events(t.Context(), emitted.Event, client.Page{Limit: 1})
					if err != nil || len(list.Data) != 1 || list.Data[0].ID != emitted.ID {
						t.Fatalf("%+v, %v", list, err)
					}
					var payload hookPayload
					if err := json.Unmarshal(list.Data[0].Payload, &payload); err != nil || payload.Webhook != p.hook || payload.Body != p.body || !bytes.Equal(payload.JSON, []byte(p.body)) {
						t.Errorf("%+v, %v", payload, err)
					}
				}
			}
			runs, err := s.Runs(t.Context(), client.RunQuery{})
			if want := 6; err != nil || (len(runs.Data) != want && p.hook != "erp") || (len(runs.Data) != want/2 && p.hook == "erp") {
				t.Errorf("%d runs, %v", len(runs.Data), err)
			}
		})
	}
}

// What is not genuine starts nothing, says what to check, and is kept apart.
func TestADeliveryThatIsNotGenuineStartsNothing(t *testing.T) {
	for _, p := range providersHooks {
		t.Run(p.hook, func(t *testing.T) {
			s := start(t)
			s.app("shop", apptest.On("named", echo, p.event, "webhook."+p.hook))
			good := p.sign(hookSecret, p.body, time.Now())
			tampered := good
			tampered.body += " "
			missing := raw{body: p.body, header: maps.Clone(good.header)}
			delete(missing.header, p.signature)
			refused := map[string]raw{
				"another secret": p.sign("canary-no-such-secret-0123456789abcdef", p.body, time.Now()), "another body": tampered, "no header": missing, "nothing": {},
				"no secret at all": p.sign("", p.body, time.Now()),
			}
			if p.timed {
				refused["old"] = p.sign(hookSecret, p.body, time.Now().Add(-6*time.Minute))
				refused["of the future"] = p.sign(hookSecret, p.body, time.Now().Add(6*time.Minute))
			}
			for name, r := range refused {
				problem := s.deliver(p.hook, r).problem(t, http.StatusUnauthorized, "bad_signature")
				if !strings.Contains(problem.Detail, "check that") && !strings.Contains(problem.Detail, "set the clock") || strings.Contains(problem.Detail, "canary") {
					t.Errorf("%s: %s", name, problem.Detail)
				}
				latest := s.deliveries(client.DeliveryQuery{Hook: p.hook})[0]
				d, err := s.Delivery(t.Context(), latest.ID)
				if err != nil || d.Status != "rejected" || *d.Reason != problem.Detail || string(d.Request.Body) != r.body || len(d.Events) != 0 {
					t.Errorf("%s: %+v, %v", name, d, err)
				}
			}
			if list := s.deliveries(client.DeliveryQuery{Status: "rejected"}); len(list) != len(refused) {
				t.Errorf("%d are kept apart, want %d", len(list), len(refused))
			}
			if n := s.eventCount(); n != 0 {
				t.Errorf("%d events", n)
			}
			s.deliver(p.hook, raw{body: strings.Repeat("x", 512<<10+1), header: good.header}).problem(t, http.StatusRequestEntityTooLarge, "body_too_large")
		})
	}
}

func TestABodyThatIsNoEventOfTheProviders(t *testing.T) {
	s := start(t)
	for _, body := range []string{"", "{}", "[]", "a=1", "\xff", `{"type":"a","type":"b"}`} {
		p := s.deliver("payments", signedStripe(hookSecret, body, time.Now())).problem(t, http.StatusUnprocessableEntity, "bad_delivery")
		if !strings.Contains(p.Detail, "JSON objects with an id and a type") {
			t.Error(p.Detail)
		}
	}
	if list := s.deliveries(client.DeliveryQuery{Status: "rejected"}); len(list) != 6 || s.eventCount() != 0 {
		t.Errorf("%d rejected, %d events", len(list), s.eventCount())
	}
	// Others send what is no JSON: it is the hook's own event.
	e := decode[apitype.EmittedEvent](t, s.deliver("github", raw{body: "\xff\x00", header: map[string]string{"X-Hub-Signature-256": "sha256=" + hex.EncodeToString(digestOf(hookSecret, "\xff\x00"))}}), http.StatusOK)
	d, err := s.Delivery(t.Context(), e.DeliveryID)
	if err != nil || e.Event.Event != "webhook.github" || len(d.Events) != 1 || string(d.Request.Body) != "\xff\x00" || d.ProviderID != nil {
		t.Errorf("%+v, %+v, %v", e, d, err)
	}
}

func TestSlacksChallengeIsAnswered(t *testing.T) {
	s := start(t)
	body := `{"token":"x","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}`
	a := s.deliver("slack", signedSlack(hookSecret, body, time.Now()))
	if got := decode[map[string]string](t, a, http.StatusOK); got["challenge"] != "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P" || len(got) != 1 {
		t.Errorf("%v", got)
	}
	s.deliver("slack", signedSlack("another", body, time.Now())).problem(t, http.StatusUnauthorized, "bad_signature")
	if list := s.deliveries(client.DeliveryQuery{Status: "verified"}); len(list) != 0 || s.eventCount() != 0 {
		t.Errorf("it is a delivery: %+v", list)
	}
}

// Promise 8, rule K3, rule K4: a delivery that is sent twice starts twice, unless the hook deduplicates.
func TestADeliveryThatIsSentTwice(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("triage", echo, "github.issues.opened"))
	send := func(hook, body, delivery string) apitype.EmittedEvent {
		t.Helper()
		return decode[apitype.EmittedEvent](t, s.deliver(hook, signedGitHub(hookSecret, body, delivery)), http.StatusOK)
	}
	if first, again := send("github", `{"action":"opened"}`, "d1"), send("github", `{"action":"opened"}`, "d1"); first.ID == again.ID || !again.Created || again.Runs != 1 {
		t.Errorf("without dedupe: %+v, %+v", first, again)
	}
	first := send("once", `{"action":"opened"}`, "d1")
	again := send("once", `{"action":"opened", "again": true}`, "d1")
	if !first.Created || again.Created || again.ID != first.ID || again.Runs != first.Runs || again.CreatedAt == nil || again.DeliveryID == first.DeliveryID {
		t.Errorf("with dedupe: %+v, %+v", first, again)
	}
	d, err := s.Delivery(t.Context(), again.DeliveryID)
	if err != nil || d.Status != "duplicate" || len(d.Events) != 2 || d.Events[0].ID != first.ID || string(d.Request.Body) != `{"action":"opened", "again": true}` {
		t.Errorf("%+v, %v", d, err)
	}
	if other := send("once", `{"action":"opened"}`, "d2"); !other.Created || other.ID == first.ID {
		t.Errorf("another delivery: %+v", other)
	}
	if nameless := send("once", `{"action":"opened"}`, ""); !nameless.Created {
		t.Errorf("one without an id is never a duplicate: %+v", nameless)
	}
	forged := s.deliver("once", signedGitHub("another", `{"action":"opened"}`, "d3"))
	forged.problem(t, http.StatusUnauthorized, "bad_signature")
	if genuine := send("once", `{"action":"opened"}`, "d3"); !genuine.Created {
		t.Errorf("a forged delivery took the id: %+v", genuine)
	}
	if list, err := s.Runs(t.Context(), client.RunQuery{}); err != nil || len(list.Data) != 6 {
		t.Errorf("%d runs, %v", len(list.Data), err)
	}
}

// Rule K6.
func TestARedeliveryEmitsAnew(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("triage", echo, "github.issues.opened", "webhook.once"))
	first := decode[apitype.EmittedEvent](t, s.deliver("once", signedGitHub(hookSecret, `{"action":"opened"}`, "d1")), http.StatusOK)
	again, err := s.Redeliver(t.Context(), first.DeliveryID, false)
	if err != nil || again.ID == first.DeliveryID || *again.RedeliveryOf != first.DeliveryID || again.Status != "verified" || len(again.Events) != 2 || again.Events[0].ID == first.ID || again.Events[0].Runs != 1 || again.Events[1].Runs != 0 {
		t.Fatalf("%+v, %v", again, err)
	}
	if string(again.Request.Body) != `{"action":"opened"}` || again.Request.Headers["x-github-delivery"] != "d1" {
		t.Errorf("%+v", again.Request)
	}
	payloads := map[string]bool{}
	list, err := s.Events(t.Context(), "github.issues.opened", client.Page{})
	if err != nil || len(list.Data) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, e := range list.Data {
		payloads[string(e.Payload)] = true
	}
	if len(payloads) != 1 {
		t.Errorf("the payloads differ: %v", payloads)
	}
	duplicate := decode[apitype.EmittedEvent](t, s.deliver("once", signedGitHub(hookSecret, `{"action":"opened"}`, "d1")), http.StatusOK)
	if d, err := s.Redeliver(t.Context(), duplicate.DeliveryID, false); err != nil || d.Events[0].Runs != 1 {
		t.Errorf("a duplicate is redelivered too: %+v, %v", d, err)
	}
	if d, err := s.Redeliver(t.Context(), again.ID, false); err != nil || *d.RedeliveryOf != again.ID {
		t.Errorf("a redelivery is redelivered too: %+v, %v", d, err)
	}
	path := "/v1/deliveries/" + first.DeliveryID + "/redeliver"
	drawn := id.New(id.Delivery)
	one := decode[apitype.Delivery](t, s.post(path, `{"id":"`+drawn+`"}`), http.StatusCreated)
	two := decode[apitype.Delivery](t, s.post(path, `{"id":"`+drawn+`"}`), http.StatusCreated)
	if one.ID != drawn || two.ID != drawn || one.Events[0] != two.Events[0] {
		t.Errorf("the same id again: %+v, %+v", one, two)
	}
	keyed := raw{method: http.MethodPost, path: path, header: map[string]string{"Idempotency-Key": "k"}}
	one = decode[apitype.Delivery](t, s.do(keyed), http.StatusCreated)
	replayed := s.do(keyed)
	if two = decode[apitype.Delivery](t, replayed, http.StatusCreated); one.ID != two.ID || replayed.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the same request again: %+v, %+v", one, two)
	}
	keyed.body = `{"unverified":true}`
	s.do(keyed).problem(t, http.StatusUnprocessableEntity, "idempotency_key_reused")
	s.post(path, `{"id":"evt_x"}`).problem(t, http.StatusUnprocessableEntity, "invalid")
	s.post(path, `{"id":"`+first.DeliveryID+`"}`).problem(t, http.StatusUnprocessableEntity, "invalid")
	s.post(path, `{"unverifed":true}`).problem(t, http.StatusUnprocessableEntity, "invalid")
	s.post("/v1/deliveries/dlv_x/redeliver", `{}`).problem(t, http.StatusNotFound, "not_found")
	if list, err := s.Runs(t.Context(), client.RunQuery{Page: client.Page{Limit: 100}}); err != nil || len(list.Data) != 6 {
		t.Errorf("%d runs, %v", len(list.Data), err)
	}
}

func TestARejectedDeliveryIsRedeliveredOnlyOnAWord(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("paid", echo, "stripe.charge.succeeded"))
	s.deliver("payments", signedStripe(hookSecret, `{"id":"evt_1","type":"charge.succeeded"}`, time.Now().Add(-time.Hour))).problem(t, http.StatusUnauthorized, "bad_signature")
	bad := s.deliveries(client.DeliveryQuery{})[0]
	_, err := s.Redeliver(t.Context(), bad.ID, false)
	if p := problemOf(t, err, http.StatusConflict, "unverified"); !strings.Contains(p.Detail, `"unverified": true`) || !strings.Contains(p.Detail, "clock") {
		t.Error(p.Detail)
	}
	if s.eventCount() != 0 {
		t.Error("it emitted something")
	}
	d, err := s.Redeliver(t.Context(), bad.ID, true)
	if err != nil || d.Status != "unverified" || len(d.Events) != 2 || d.Events[0].Event != "stripe.charge.succeeded" || d.Events[0].Runs != 1 || d.Reason == nil {
		t.Fatalf("%+v, %v", d, err)
	}
	_, err = s.Redeliver(t.Context(), d.ID, false)
	problemOf(t, err, http.StatusConflict, "unverified")
	s.deliver("payments", raw{body: "no JSON"}).problem(t, http.StatusUnauthorized, "bad_signature")
	unreadable, err := s.Redeliver(t.Context(), s.deliveries(client.DeliveryQuery{Status: "rejected"})[0].ID, true)
	if err != nil || len(unreadable.Events) != 1 || unreadable.Events[0].Event != "webhook.payments" {
		t.Errorf("%+v, %v", unreadable, err)
	}
}

// Who has no secret may send as much as they like: it takes no more space than it is given, and no genuine delivery's.
func TestRejectedDeliveriesAreBounded(t *testing.T) {
	kept := memory.New()
	s := startOn(t, kept, false)
	decode[apitype.EmittedEvent](t, s.deliver("github", signedGitHub(hookSecret, `{"action":"opened"}`, "d1")), http.StatusOK)
	large := strings.Repeat("x", 512<<10)
	for range 200 { // 100 MiB
		s.deliver("github", raw{body: large})
	}
	list := s.deliveries(client.DeliveryQuery{Status: "rejected"})
	if len(list) < 100 {
		t.Fatalf("%d are listed", len(list))
	}
	count, cursor := 0, ""
	for more := true; more; {
		page, err := s.Deliveries(t.Context(), client.DeliveryQuery{Status: "rejected", Page: client.Page{Limit: 100, Cursor: cursor}})
		if err != nil {
			t.Fatal(err)
		}
		count += len(page.Data)
		if more = page.NextCursor != nil; more {
			cursor = *page.NextCursor
		}
	}
	if size := count * len(large); size > 80<<20 || size < 60<<20 { // 64 MiB, and what has come since the last look
		t.Errorf("%d rejected deliveries, %d bytes", count, size)
	}
	if list := s.deliveries(client.DeliveryQuery{Status: "verified"}); len(list) != 1 {
		t.Errorf("the genuine one made room: %+v", list)
	}
}

func TestDeliveriesAreListedInPages(t *testing.T) {
	s := start(t)
	for n := range 5 {
		s.deliver("github", signedGitHub(hookSecret, fmt.Sprintf(`{"action":"a%d"}`, n), ""))
		s.deliver("once", signedGitHub(hookSecret, `{}`, ""))
	}
	got, q := "", client.DeliveryQuery{Hook: "github", Page: client.Page{Limit: 2}}
	for range 5 {
		list, err := s.Deliveries(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list.Data {
			got += strings.TrimPrefix(d.Events[0].Event, "github.issues.a")
			if d.Request != nil {
				t.Error("a list has requests")
			}
		}
		if list.NextCursor == nil {
			break
		}
		q.Cursor = *list.NextCursor
	}
	if got != "43210" {
		t.Errorf("got %s", got)
	}
	for _, query := range []string{"status=odd", "cursor=eA", "hok=x", "limit=101"} {
		if a := s.do(raw{method: http.MethodGet, path: "/v1/deliveries?" + query}); a.status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", query, a.status)
		}
	}
	_, err := s.Delivery(t.Context(), "dlv_x")
	problemOf(t, err, http.StatusNotFound, "not_found")
}
