package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/nelkap/nelkap/internal/signature"
	"github.com/nelkap/nelkap/internal/webhook"
)

const (
	secret = "canary-secret-0123456789abcdefghijkl"
	older  = "canary-older-0123456789abcdefghijklm"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// made is the hook of a line, with its secrets.
func made(t testing.TB, line string, secrets ...string) webhook.Hook {
	t.Helper()
	spec, err := webhook.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	h, err := spec.Hook(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func request(body string, headers ...string) webhook.Request {
	h := http.Header{}
	for pair := range slices.Chunk(headers, 2) {
		h.Add(pair[0], pair[1])
	}
	return webhook.Request{Header: h, Body: []byte(body)}
}

func digest(key, text string) []byte {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func hexOf(key, text string) string { return hex.EncodeToString(digest(key, text)) }

func base64Of(key, text string) string { return base64.StdEncoding.EncodeToString(digest(key, text)) }

// TestThePublishedExamples: what the providers print as their examples is right here.
func TestThePublishedExamples(t *testing.T) {
	slack := "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner" +
		"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN" +
		"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	for name, c := range map[string]struct {
		line, secret string
		at           int64
		request      webhook.Request
	}{
		// https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries, "Testing the webhook payload validation"
		"github": {
			"x=github", "It's a Secret to Everybody", 0,
			request("Hello, World!", "X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"),
		},
		// https://api.slack.com/authentication/verifying-requests-from-slack, "Step-by-step walk-through for validating a request"
		"slack": {
			"x=slack", "8f742231b10e8888abcd99yyyzzz85a5", 1531420618,
			request(slack, "X-Slack-Request-Timestamp", "1531420618", "X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
		},
		// https://github.com/standard-webhooks/standard-webhooks, the test vector of its libraries; Svix's are the same
		"standard": {
			"x=standard", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", 1614265330,
			request(`{"test": 2432232314}`, "webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp", "1614265330", "webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
		},
		"svix": {
			"x=svix", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", 1614265330,
			request(`{"test": 2432232314}`, "svix-id", "msg_p5jXN8AQM9LWM0D4loKWxJek", "svix-timestamp", "1614265330", "svix-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
		},
		// RFC 4231, test case 2, whose key is of four bytes: its digest is what any signature over a body alone must be.
		"hmac": {
			"x=hmac,header=X-Test", "Jefe" + "\x00\x00\x00\x00", 0, // HMAC pads a key with zeros
			request("what do ya want for nothing?", "X-Test", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := made(t, c.line, c.secret)
			if err := h.Verify(c.request, time.Unix(c.at, 0)); err != nil {
				t.Error(err)
			}
			c.request.Body = append(c.request.Body, ' ')
			if err := h.Verify(c.request, time.Unix(c.at, 0)); !errors.Is(err, signature.ErrBadSignature) {
				t.Errorf("with another byte: %v", err)
			}
		})
	}
}

// signer signs as a provider does.
type signer struct {
	line   string
	timed  bool
	signed func(key, body string, at time.Time) webhook.Request
	header string // of the signature
}

var signers = []signer{
	{"x=stripe", true, func(key, body string, at time.Time) webhook.Request {
		ts := strconv.FormatInt(at.Unix(), 10)
		return request(body, "Stripe-Signature", "t="+ts+",v1="+hexOf(key, ts+"."+body)+",v0="+strings.Repeat("0", 64))
	}, "Stripe-Signature"},
	{"x=github", false, func(key, body string, _ time.Time) webhook.Request {
		return request(body, "X-Hub-Signature-256", "sha256="+hexOf(key, body))
	}, "X-Hub-Signature-256"},
	{"x=slack", true, func(key, body string, at time.Time) webhook.Request {
		ts := strconv.FormatInt(at.Unix(), 10)
		return request(body, "X-Slack-Request-Timestamp", ts, "X-Slack-Signature", "v0="+hexOf(key, "v0:"+ts+":"+body))
	}, "X-Slack-Signature"},
	{"x=shopify", false, func(key, body string, _ time.Time) webhook.Request {
		return request(body, "X-Shopify-Hmac-SHA256", base64Of(key, body))
	}, "X-Shopify-Hmac-Sha256"},
	{"x=shopify", false, func(key, body string, _ time.Time) webhook.Request {
		return request(body, "Shopify-Hmac-Sha256", base64Of(key, body))
	}, "Shopify-Hmac-Sha256"},
	{"x=standard", true, standard("webhook-"), "Webhook-Signature"},
	{"x=standard", true, standard("svix-"), "Svix-Signature"},
	{"x=svix", true, standard("svix-"), "Svix-Signature"},
	{"x=svix", true, standard("webhook-"), "Webhook-Signature"},
	{"x=hmac", false, func(key, body string, _ time.Time) webhook.Request {
		return request(body, "X-Signature", hexOf(key, body))
	}, "X-Signature"},
	{"x=hmac,header=X-Sig,encoding=base64,prefix=sha256=", false, func(key, body string, _ time.Time) webhook.Request {
		return request(body, "x-sig", "sha256="+base64Of(key, body))
	}, "X-Sig"},
}

// standard signs with the scheme's own library.
func standard(prefix string) func(string, string, time.Time) webhook.Request {
	return func(key, body string, at time.Time) webhook.Request {
		wh, err := standardwebhooks.NewWebhookRaw([]byte(key))
		if err != nil {
			panic(err)
		}
		sig, err := wh.Sign("msg_1", at, []byte(body))
		if err != nil {
			panic(err)
		}
		return request(body, prefix+"id", "msg_1", prefix+"timestamp", strconv.FormatInt(at.Unix(), 10), prefix+"signature", sig)
	}
}

func TestADeliveryIsVerifiedOverItsRawBytes(t *testing.T) {
	for _, s := range signers {
		h := made(t, s.line, secret, older)
		for _, body := range []string{`{"type":"a.b"}`, "", "\xff\x00\r\n", "{\"emoji\":\"✓😀\"}\n", "\uFEFF{}"} {
			t.Run(fmt.Sprintf("%s %q", s.line, body), func(t *testing.T) {
				check := func(what string, r webhook.Request, at time.Time, want error) {
					t.Helper()
					err := h.Verify(r, at)
					if !errors.Is(err, want) || (want == nil) != (err == nil) {
						t.Errorf("%s: got %v, want %v", what, err, want)
					}
					if err != nil && strings.Contains(err.Error(), "canary") {
						t.Errorf("%s: a secret is shown: %v", what, err)
					}
				}
				good := s.signed(secret, body, now)
				check("good", good, now, nil)
				check("the secret before", s.signed(older, body, now), now, nil)
				check("another secret", s.signed("canary-other-0123456789abcdefghijkl", body, now), now, signature.ErrBadSignature)
				tampered := webhook.Request{Header: good.Header, Body: append([]byte(body), '\n')}
				check("another body", tampered, now, signature.ErrBadSignature)
				check("unsigned", request(body), now, signature.ErrUnsigned)
				for _, broken := range []string{"x", "v1,", "t=1,v1=", "sha256=", "v0=", "sha256=" + strings.Repeat("0", 64), strings.Repeat("0", 63), strings.Repeat(",", 1000)} {
					forged := http.Header(good.Header).Clone()
					forged.Set(s.header, broken)
					check("a signature "+broken, webhook.Request{Header: forged, Body: good.Body}, now, signature.ErrBadSignature)
				}
				if s.timed {
					check("at the edge", good, now.Add(webhook.Tolerance), nil)
					check("old", good, now.Add(webhook.Tolerance+time.Second), signature.ErrClockDiffers)
					check("of the future", good, now.Add(-webhook.Tolerance-time.Second), signature.ErrClockDiffers)
					check("old and forged", s.signed("canary-other-0123456789abcdefghijkl", body, now.Add(-time.Hour)), now, signature.ErrBadSignature)
				} else {
					check("a year later", good, now.AddDate(1, 0, 0), nil)
				}
			})
		}
	}
}

// TestARemovedSecretCountsNoMore: the other half of a rotation.
func TestARemovedSecretCountsNoMore(t *testing.T) {
	for _, s := range signers {
		if err := made(t, s.line, secret).Verify(s.signed(older, "{}", now), now); !errors.Is(err, signature.ErrBadSignature) {
			t.Errorf("%s: %v", s.line, err)
		}
	}
}

func TestStripesHeaderIsReadAsItIs(t *testing.T) {
	h := made(t, "x=stripe", secret)
	ts := strconv.FormatInt(now.Unix(), 10)
	good, bad := "v1="+hexOf(secret, ts+".{}"), "v1="+strings.Repeat("0", 64)
	for header, want := range map[string]error{
		"t=" + ts + "," + bad + "," + good: nil, // the secret is being rolled
		good + ",t=" + ts:                  nil,
		"t=" + ts + ",v0=" + good[3:]:      signature.ErrBadSignature,
		good:                               signature.ErrBadSignature,
		"t=" + ts + ",t=1," + good:         signature.ErrBadSignature,
		"t=+" + ts + "," + good:            signature.ErrBadSignature,
		"t=-1," + good:                     signature.ErrBadSignature,
		"t=" + ts + strings.Repeat(","+bad, 16) + "," + good: signature.ErrBadSignature, // past the bound
	} {
		if err := h.Verify(request("{}", "Stripe-Signature", header), now); !errors.Is(err, want) || (want == nil) != (err == nil) {
			t.Errorf("%s: got %v, want %v", header, err, want)
		}
	}
}

func TestWhatADeliverySays(t *testing.T) {
	for _, c := range []struct {
		line    string
		request webhook.Request
		want    webhook.Reading
	}{
		{"x=stripe", request(`{"id":"evt_1","object":"event","type":"checkout.session.completed"}`), webhook.Reading{ID: "evt_1", Event: "stripe.checkout.session.completed"}},
		{"x=stripe", request(`{"type":"v2.core.event_destination.ping","id":5}`), webhook.Reading{Event: "stripe.v2.core.event_destination.ping"}},
		{"x=github", request(`{"action":"opened"}`, "X-GitHub-Event", "issues", "X-GitHub-Delivery", "d1"), webhook.Reading{ID: "d1", Event: "github.issues.opened"}},
		{"x=github", request(`{"action":5}`, "X-GitHub-Event", "push"), webhook.Reading{Event: "github.push"}},
		{"x=github", request(`payload=%7B%7D`, "X-GitHub-Event", "push"), webhook.Reading{Event: "github.push"}},
		{"x=github", request(`{"action":"opened"}`, "X-GitHub-Event", "no such\n"), webhook.Reading{}},
		{"x=slack", request(`{"type":"event_callback","event_id":"Ev1","event":{"type":"app_mention"}}`), webhook.Reading{ID: "Ev1", Event: "slack.app_mention"}},
		{"x=slack", request(`{"type":"event_callback","event":7}`), webhook.Reading{Event: "slack.event_callback"}},
		{"x=slack", request(`{"type":"app_rate_limited"}`), webhook.Reading{Event: "slack.app_rate_limited"}},
		{"x=slack", request(`{"type":"url_verification","challenge":"3eZbrw1a"}`), webhook.Reading{Challenge: "3eZbrw1a"}},
		{"x=slack", request(`command=%2Fdeploy&text=now`), webhook.Reading{}},
		{"x=shopify", request(`{}`, "X-Shopify-Topic", "orders/create", "X-Shopify-Webhook-Id", "w1"), webhook.Reading{ID: "w1", Event: "shopify.orders.create"}},
		{"x=shopify", request(`{}`, "Shopify-Topic", "Product", "Shopify-Webhook-Id", "w1"), webhook.Reading{ID: "w1", Event: "shopify.Product"}},
		{"x=shopify", request(`<xml/>`), webhook.Reading{}},
		{"clerk=standard", request(`{"type":"user.created"}`, "webhook-id", "msg_1", "webhook-signature", "x"), webhook.Reading{ID: "msg_1", Event: "clerk.user.created"}},
		{"clerk=svix", request(`{"type":"user.created"}`, "svix-id", "msg_1"), webhook.Reading{ID: "msg_1", Event: "clerk.user.created"}},
		{"clerk=standard", request(`[]`, "svix-id", strings.Repeat("x", 257)), webhook.Reading{}},
		{"erp=hmac", request(`{"type":"order"}`), webhook.Reading{Event: "erp.order"}},
		{"erp=hmac,id=X-Delivery,dedupe", request(`order`, "x-delivery", "7"), webhook.Reading{ID: "7"}},
		{"erp=hmac", request(`{"type":"two words"}`), webhook.Reading{}},
		{"erp=hmac", request(`{"type":"` + strings.Repeat("x", 129) + `"}`), webhook.Reading{}},
		{"erp=hmac", request(`{"type":"a","type":"b"}`), webhook.Reading{}},
		{"erp=hmac", request(strings.Repeat("[", 100_000)), webhook.Reading{}},
		{"erp=hmac", request(`null`), webhook.Reading{}},
	} {
		got, err := made(t, c.line, secret).Read(c.request)
		if err != nil || got != c.want {
			t.Errorf("%s %.60q: got %+v, %v, want %+v", c.line, c.request.Body, got, err, c.want)
		}
	}
	for _, c := range [][2]string{
		{"x=stripe", ""},
		{"x=stripe", "{}"},
		{"x=stripe", "a=1"},
		{"x=stripe", `{"type":""}`},
		{"x=stripe", `{"type":"a","type":"b"}`},
		{"x=stripe", "\xff"},
		{"x=slack", `{"type":"url_verification"}`},
		{"x=slack", `{"type":"url_verification","challenge":"` + strings.Repeat("x", 1025) + `"}`},
	} {
		if got, err := made(t, c[0], secret).Read(request(c[1])); !errors.Is(err, webhook.ErrUnreadable) || got != (webhook.Reading{}) {
			t.Errorf("%v: %+v, %v", c, got, err)
		}
	}
}

func TestAHookIsReadFromItsLine(t *testing.T) {
	for line, want := range map[string]webhook.Spec{
		"shop=stripe":      {Name: "shop", Provider: "stripe"},
		"a.b-c_1=svix":     {Name: "a.b-c_1", Provider: "svix"},
		"gh=github,dedupe": {Name: "gh", Provider: "github", Dedupe: true},
		"erp=hmac":         {Name: "erp", Provider: "hmac", Header: "X-Signature", Encoding: "hex"},
		"erp=hmac,header=A,encoding=base64,prefix=sha256=,id=B,dedupe": {Name: "erp", Provider: "hmac", Header: "A", Encoding: "base64", Prefix: "sha256=", IDHeader: "B", Dedupe: true},
	} {
		if got, err := webhook.Parse(line); err != nil || got != want {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
	}
	for line, want := range map[string]string{
		"":                                  "NAME=PROVIDER",
		"stripe":                            "provider is one of stripe, github",
		"=stripe":                           "NAME=PROVIDER",
		"Shop=stripe":                       "lower-case",
		"-shop=stripe":                      "lower-case",
		"a/b=stripe":                        "lower-case",
		strings.Repeat("a", 65) + "=stripe": "at most 64",
		"webhook=standard":                  "may not be named webhook",
		"webhook.a=standard":                "may not be named webhook",
		"shop=stripe,whsec_canary":          "dedupe and no other",
		"shop=stripe,header=X":              "dedupe and no other",
		"shop=whsec_canary":                 "provider is one of",
		"whsec_CANARY=canary":               "lower-case",
		"erp=hmac,secret=canary":            "comes from its variable",
		"erp=hmac,dedupe":                   "id=X-Delivery-Id",
		"erp=hmac,dedupe=yes":               "options of hmac",
		"erp=hmac,header=":                  "name of a header",
		"erp=hmac,header=a b":               "name of a header",
		"erp=hmac,encoding=octal":           "hex or base64",
		"erp=hmac,prefix=" + strings.Repeat("x", 129): "at most 128",
	} {
		_, err := webhook.Parse(line)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want a word about %q", line, err, want)
		}
		if err != nil && strings.Contains(strings.ToLower(err.Error()), "canary") {
			t.Errorf("%s: what may be a secret is shown: %v", line, err)
		}
	}
}

func TestASecretIsAskedForAndNeverShown(t *testing.T) {
	for _, c := range []struct {
		line    string
		secrets []string
		want    string
	}{
		{"shop=stripe", nil, "set NELKAP_HOOK_SHOP_SECRET to the signing secret"},
		{"my-shop.eu=stripe", []string{""}, "set NELKAP_HOOK_MY_SHOP_EU_SECRET"},
		{"shop=stripe", []string{"", secret}, "needs its secret"},
		{"shop=stripe", []string{"canary"}, "8 or more"},
		{"shop=stripe", []string{secret, secret + "\n"}, "white space"},
		{"shop=standard", []string{"whsec_canary!canary"}, "not base64"},
		{"shop=standard", []string{"short-canary"}, "at least 32"},
	} {
		spec, err := webhook.Parse(c.line)
		if err != nil {
			t.Fatal(err)
		}
		_, err = spec.Hook(c.secrets...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want a word about %q", c.line, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the secret is shown: %v", c.line, err)
		}
	}
	for _, line := range []string{"x=stripe", "x=standard"} {
		h := made(t, line, secret, older)
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			text := fmt.Sprintf(verb, h) + fmt.Sprintf(verb, &h) + fmt.Sprintf(verb, webhook.Hooks{"x": h})
			if strings.Contains(text, "canary") || strings.Contains(strings.ToLower(text), hex.EncodeToString([]byte("canary"))) || strings.Contains(text, "99 97 110 97") {
				t.Errorf("%s shows a secret", verb)
			}
		}
	}
	if spec, _ := webhook.Parse("x=standard"); spec.Provider != "" {
		if _, err := spec.Hook("v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"); err != nil {
			t.Errorf("a secret as some senders show it: %v", err)
		}
	}
}

// TestTheTableIsWhole: what the docs and the flag name is there.
func TestTheTableIsWhole(t *testing.T) {
	if got := webhook.Providers(); !slices.Equal(got, []string{"stripe", "github", "slack", "shopify", "standard", "svix", "hmac"}) {
		t.Errorf("%v", got)
	}
	tried := map[string]bool{}
	for _, s := range signers {
		_, kind, _ := strings.Cut(strings.Split(s.line, ",")[0], "=")
		tried[kind] = true
	}
	for _, name := range webhook.Providers() {
		if !tried[name] {
			t.Errorf("no test signs as %s does", name)
		}
	}
}
