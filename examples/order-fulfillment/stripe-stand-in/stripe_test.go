package standin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// world is a stand-in on a port of its own, and what it did.
type world struct {
	*testing.T
	url    string
	server *Server
	marks  *bytes.Buffer
	now    time.Time
}

func start(t *testing.T) *world {
	w := &world{T: t, marks: &bytes.Buffer{}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.server = New(w.marks, func() time.Time { return w.now })
	server := httptest.NewServer(w.server)
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

// said is an answer, with its JSON.
type said struct {
	status   int
	replayed string
	json     map[string]any
}

func (s said) errorType() any {
	e, _ := s.json["error"].(map[string]any)
	return e["type"]
}

func (w *world) do(method, path, key, contentType, body string) said {
	w.Helper()
	request, err := http.NewRequestWithContext(w.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer sk_test_shop")
	request.Header.Set("Content-Type", contentType)
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		w.Fatal(err)
	}
	defer answer.Body.Close()
	got := said{status: answer.StatusCode, replayed: answer.Header.Get("Idempotent-Replayed")}
	if answer.StatusCode != http.StatusNoContent {
		if err := json.NewDecoder(answer.Body).Decode(&got.json); err != nil {
			w.Fatalf("%s %s: the answer is not JSON: %v", method, path, err)
		}
	}
	return got
}

func (w *world) post(path, key string, form url.Values) said {
	w.Helper()
	return w.do(http.MethodPost, path, key, "application/x-www-form-urlencoded", form.Encode())
}

func (w *world) tell(method, path, format string, args ...any) said {
	w.Helper()
	return w.do(method, path, "", "application/json", fmt.Sprintf(format, args...))
}

func charge(amount string) url.Values {
	return url.Values{
		"amount": {amount}, "currency": {"eur"}, "confirm": {"true"}, "payment_method": {"pm_card_visa"}, "metadata[order]": {"o_1"},
	}
}

func TestTheSameKeyAndParametersChargeOnce(t *testing.T) {
	w := start(t)
	first := w.post("/v1/payment_intents", "charge_o_1", charge("1999"))
	second := w.post("/v1/payment_intents", "charge_o_1", charge("1999"))
	if first.status != 200 || first.replayed != "" || first.json["status"] != "succeeded" {
		t.Errorf("first answer: %+v", first)
	}
	if second.status != 200 || second.replayed != "true" || second.json["id"] != first.json["id"] {
		t.Errorf("second answer: %+v, want the first one's id %v", second, first.json["id"])
	}
	if got := w.server.Counts(); got != (Counts{Charges: 1}) {
		t.Errorf("counts: %+v", got)
	}
	want := fmt.Sprintf(`{"mark":"charge","order":"o_1","id":"%v"}`+"\n", first.json["id"])
	if w.marks.String() != want {
		t.Errorf("marks: %s, want %s", w.marks, want)
	}
}

func TestWithoutAKeyEachRequestCharges(t *testing.T) {
	w := start(t)
	w.post("/v1/payment_intents", "", charge("1999"))
	w.post("/v1/payment_intents", "", charge("1999"))
	if got := w.server.Counts(); got.Charges != 2 {
		t.Errorf("counts: %+v, want two charges", got)
	}
}

func TestTheSameKeyWithOtherParametersIsRefused(t *testing.T) {
	w := start(t)
	w.post("/v1/payment_intents", "charge_o_1", charge("1999"))
	got := w.post("/v1/payment_intents", "charge_o_1", charge("2999"))
	if got.status != 400 || got.errorType() != "idempotency_error" {
		t.Errorf("answer: %+v", got)
	}
	elsewhere := w.post("/v1/refunds", "charge_o_1", url.Values{"payment_intent": {"pi_1"}})
	if elsewhere.status != 400 || elsewhere.errorType() != "idempotency_error" {
		t.Errorf("answer on another path: %+v", elsewhere)
	}
}

func TestAKeyInUseIsAConflictAndAnswersLater(t *testing.T) {
	w := start(t)
	hold := w.tell(http.MethodPost, "/control/holds", `{"path":"/v1/payment_intents","keyPrefix":"charge_","at":"work"}`).json["id"]
	first := make(chan said, 1)
	go func() { first <- w.post("/v1/payment_intents", "charge_o_1", charge("1999")) }()
	if state := w.tell(http.MethodGet, fmt.Sprintf("/control/holds/%v?waitMs=20000", hold), "").json; state["holding"] != true || state["key"] != "charge_o_1" {
		t.Fatalf("hold: %v", state)
	}
	meanwhile := w.post("/v1/payment_intents", "charge_o_1", charge("1999"))
	if meanwhile.status != 409 || w.server.Counts().Charges != 0 {
		t.Errorf("answer while the key is in use: %+v, charges %d", meanwhile, w.server.Counts().Charges)
	}
	w.tell(http.MethodDelete, fmt.Sprintf("/control/holds/%v", hold), "")
	done := <-first
	after := w.post("/v1/payment_intents", "charge_o_1", charge("1999"))
	if done.status != 200 || after.replayed != "true" || after.json["id"] != done.json["id"] {
		t.Errorf("held: %+v, after: %+v", done, after)
	}
}

func TestAnAnswerHeldBackIsKeptAlready(t *testing.T) {
	w := start(t)
	hold := w.tell(http.MethodPost, "/control/holds", `{"path":"/v1/payment_intents"}`).json["id"]
	first := make(chan said, 1)
	go func() { first <- w.post("/v1/payment_intents", "charge_o_1", charge("1999")) }()
	w.tell(http.MethodGet, fmt.Sprintf("/control/holds/%v?waitMs=20000", hold), "")
	second := w.post("/v1/payment_intents", "charge_o_1", charge("1999"))
	if second.replayed != "true" || w.server.Counts().Charges != 1 {
		t.Errorf("answer while the first is held back: %+v, charges %d", second, w.server.Counts().Charges)
	}
	w.tell(http.MethodDelete, fmt.Sprintf("/control/holds/%v", hold), "")
	if got := <-first; got.json["id"] != second.json["id"] {
		t.Errorf("the held answer is %+v, want the same intent", got)
	}
}

func TestAFailureOfTheServerIsKept(t *testing.T) {
	w := start(t)
	w.tell(http.MethodPost, "/control/failures", `{"path":"/v1/payment_intents","status":500}`)
	first := w.post("/v1/payment_intents", "charge_o_1", charge("1999"))
	second := w.post("/v1/payment_intents", "charge_o_1", charge("1999"))
	if first.status != 500 || second.status != 500 || second.replayed != "true" || second.errorType() != "api_error" {
		t.Errorf("answers: %+v, %+v", first, second)
	}
}

func TestADeclineIsKept(t *testing.T) {
	w := start(t)
	form := charge("1999")
	form.Set("payment_method", "pm_card_chargeDeclined")
	first := w.post("/v1/payment_intents", "charge_o_1", form)
	second := w.post("/v1/payment_intents", "charge_o_1", form)
	if first.status != 402 || first.errorType() != "card_error" || second.replayed != "true" || w.server.Counts().Charges != 0 {
		t.Errorf("answers: %+v, %+v", first, second)
	}
}

func TestWhatFailsValidationIsNotKept(t *testing.T) {
	w := start(t)
	refused := w.post("/v1/payment_intents", "charge_o_1", charge("-5"))
	put := w.post("/v1/payment_intents", "charge_o_1", charge("1999"))
	if refused.status != 400 || refused.errorType() != "invalid_request_error" {
		t.Errorf("answer: %+v", refused)
	}
	if put.status != 200 || put.replayed != "" {
		t.Errorf("the key was used up by a request that never began: %+v", put)
	}
}

func TestAKeyIsForgottenAfterADay(t *testing.T) {
	w := start(t)
	w.post("/v1/payment_intents", "charge_o_1", charge("1999"))
	w.now = w.now.Add(24*time.Hour - time.Second)
	if got := w.post("/v1/payment_intents", "charge_o_1", charge("1999")); got.replayed != "true" {
		t.Errorf("within the day: %+v", got)
	}
	w.now = w.now.Add(time.Second)
	w.post("/v1/payment_intents", "charge_o_1", charge("1999"))
	if got := w.server.Counts(); got.Charges != 2 {
		t.Errorf("after the day: %+v, want a second charge", got)
	}
}

func TestRefunds(t *testing.T) {
	w := start(t)
	intent := w.post("/v1/payment_intents", "charge_o_1", charge("1999")).json["id"].(string)
	form := url.Values{"payment_intent": {intent}}
	first := w.post("/v1/refunds", "refund_o_1", form)
	second := w.post("/v1/refunds", "refund_o_1", form)
	if first.status != 200 || first.json["amount"] != 1999.0 || second.json["id"] != first.json["id"] || second.replayed != "true" {
		t.Errorf("answers: %+v, %+v", first, second)
	}
	if other := w.post("/v1/refunds", "refund_again", form); other.status != 400 {
		t.Errorf("a second refund: %+v", other)
	}
	if none := w.post("/v1/refunds", "refund_none", url.Values{"payment_intent": {"pi_none"}}); none.status != 404 {
		t.Errorf("a refund of nothing: %+v", none)
	}
	if got := w.server.Counts(); got != (Counts{Charges: 1, Refunds: 1}) {
		t.Errorf("counts: %+v", got)
	}
}

func TestMailTakesAKeyAndTicketsTakeNone(t *testing.T) {
	w := start(t)
	const mail = `{"to":"ada@example.com","subject":"Thank you","order":"o_1","template":"confirmation"}`
	first := w.do(http.MethodPost, "/emails", "confirmation_o_1", "application/json", mail)
	second := w.do(http.MethodPost, "/emails", "confirmation_o_1", "application/json", mail)
	if first.status != 200 || second.json["id"] != first.json["id"] {
		t.Errorf("emails: %+v, %+v", first, second)
	}
	w.tell(http.MethodPost, "/tickets", `{"order":"o_1"}`)
	w.tell(http.MethodPost, "/tickets", `{"order":"o_1"}`)
	found := w.tell(http.MethodGet, "/tickets?order=o_1", "").json["data"].([]any)
	if got := w.server.Counts(); got != (Counts{Emails: 1, Tickets: 2}) || len(found) != 2 {
		t.Errorf("counts: %+v, tickets found %d", got, len(found))
	}
}

func TestARequestWithoutAKeyOfAnAccountIsRefused(t *testing.T) {
	w := start(t)
	answer, err := http.PostForm(w.url+"/v1/payment_intents", charge("1999"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d, want 401", answer.StatusCode)
	}
}
