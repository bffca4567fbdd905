package webhook

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"slices"
	"strings"

	"github.com/nelkap/nelkap/internal/signature"
)

// The providers.
const (
	Stripe   = "stripe"
	GitHub   = "github"
	Slack    = "slack"
	Shopify  = "shopify"
	Standard = "standard"
	Svix     = "svix"
	HMAC     = "hmac"
)

// provider is one row of the table.
type provider struct {
	name  string
	shown string // as people call it
	where string // which secret it is, and where they find it
	// headers are those of the signature, for advice: any one will do.
	headers func(Spec) []string
	// isStandard: signature.Keys verifies it; else claim reads what is to be verified.
	isStandard bool
	claim      func(Spec, Request) (claim, error)
	read       func(Spec, Request) (Reading, error)
}

// The headers of signatures. Shopify's newer subscriptions leave the X- out.
const (
	headerStripe    = "Stripe-Signature"
	headerGitHub    = "X-Hub-Signature-256"
	headerSlack     = "X-Slack-Signature"
	headerSlackTime = "X-Slack-Request-Timestamp"
	headerShopify   = "X-Shopify-Hmac-Sha256"
	headerShopify2  = "Shopify-Hmac-Sha256"
)

// providers is the table.
//
//	provider  signature                          over                   timestamp      delivery's id            event
//	stripe    Stripe-Signature: t=…,v1=hex,…     t "." body             t, 5 min       id in the body           stripe.<type>
//	github    X-Hub-Signature-256: sha256=hex    body                   none           X-GitHub-Delivery        github.<X-GitHub-Event>[.<action>]
//	slack     X-Slack-Signature: v0=hex          "v0:" time ":" body    header, 5 min  event_id in the body     slack.<the inner event's type>
//	shopify   X-Shopify-Hmac-Sha256: base64      body                   none           X-Shopify-Webhook-Id     shopify.<X-Shopify-Topic, with dots>
//	standard  webhook-signature: v1,base64 …     id "." time "." body   header, 5 min  webhook-id               <hook>.<type>
//	svix      svix-signature: v1,base64 …        as standard            header, 5 min  svix-id                  <hook>.<type>
//	hmac      as the hook says                   body                   none           the header it names      <hook>.<type>
//
// What is not signed can be another's word: of a provider whose delivery's id or event stands in a header, who has once seen a signed
// body could send it again under another one.
var providers = []provider{
	{
		name: Stripe, shown: "Stripe", where: "the signing secret (whsec_…) that Stripe shows for this endpoint",
		headers: named(headerStripe), claim: stripeClaim, read: stripeRead,
	},
	{
		name: GitHub, shown: "GitHub", where: "the secret that was given to this webhook in GitHub's settings",
		headers: named(headerGitHub), claim: bodyClaim(Hex, "sha256=", headerGitHub), read: gitHubRead,
	},
	{
		name: Slack, shown: "Slack", where: "the signing secret of the Slack app (Basic Information, App Credentials)",
		headers: named(headerSlack), claim: slackClaim, read: slackRead,
	},
	{
		name: Shopify, shown: "Shopify", where: "the client secret of the Shopify app, or the secret that the shop's notification settings show",
		headers: named(headerShopify), claim: bodyClaim(Base64, "", headerShopify, headerShopify2), read: shopifyRead,
	},
	{
		name: Standard, shown: "a sender that signs by Standard Webhooks", where: "the secret (whsec_…) that the sender shows for this endpoint",
		headers: named(signature.HeaderSignature, "svix-signature"), isStandard: true, read: standardRead,
	},
	{
		name: Svix, shown: "Svix", where: "the secret (whsec_…) that the sender shows for this endpoint",
		headers: named("svix-signature", signature.HeaderSignature), isStandard: true, read: standardRead,
	},
	{
		name: HMAC, shown: "a sender that signs with HMAC-SHA-256", where: "the sender's secret, and the hook's header, encoding and prefix are the sender's",
		headers: func(s Spec) []string { return []string{s.Header} }, claim: ownClaim, read: ownRead,
	},
}

// Providers are the names of all providers.
func Providers() []string {
	var names []string
	for _, p := range providers {
		names = append(names, p.name)
	}
	return names
}

func find(name string) (provider, bool) {
	i := slices.IndexFunc(providers, func(p provider) bool { return p.name == name })
	if i < 0 {
		return provider{}, false
	}
	return providers[i], true
}

func named(headers ...string) func(Spec) []string { return func(Spec) []string { return headers } }

// bodyClaim reads a signature over the body alone.
func bodyClaim(encoding, prefix string, headers ...string) func(Spec, Request) (claim, error) {
	return func(_ Spec, r Request) (claim, error) {
		text := r.get(headers...)
		if text == "" {
			return claim{}, signature.ErrUnsigned
		}
		encoded, ok := strings.CutPrefix(text, prefix)
		digest := decode(encoding, encoded)
		if !ok || digest == nil {
			return claim{}, signature.ErrBadSignature
		}
		return claim{digests: [][]byte{digest}}, nil
	}
}

func ownClaim(s Spec, r Request) (claim, error) {
	return bodyClaim(s.Encoding, s.Prefix, s.Header)(s, r)
}

// stripeClaim reads `t=1492774577,v1=5257…,v1=…,v0=…`: several v1 while the secret is rolled; v0 is for tests and counts not.
func stripeClaim(_ Spec, r Request) (claim, error) {
	text := r.get(headerStripe)
	if text == "" {
		return claim{}, signature.ErrUnsigned
	}
	var c claim
	timestamp := ""
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		switch {
		case key == "t" && timestamp != "":
			return claim{}, signature.ErrBadSignature // two times: one of them is not Stripe's
		case key == "t":
			timestamp = value
		case key == "v1" && len(c.digests) < signaturesMax:
			if digest := decode(Hex, value); digest != nil {
				c.digests = append(c.digests, digest)
			}
		}
	}
	at, ok := seconds(timestamp)
	if !ok || len(c.digests) == 0 {
		return claim{}, signature.ErrBadSignature
	}
	c.before, c.at = timestamp+".", at
	return c, nil
}

// slackClaim reads `v0=a2114d57…` over `v0:timestamp:body`.
func slackClaim(_ Spec, r Request) (claim, error) {
	text, timestamp := r.get(headerSlack), r.get(headerSlackTime)
	if text == "" || timestamp == "" {
		return claim{}, signature.ErrUnsigned
	}
	encoded, isV0 := strings.CutPrefix(text, "v0=")
	digest := decode(Hex, encoded)
	at, ok := seconds(timestamp)
	if !isV0 || !ok || digest == nil {
		return claim{}, signature.ErrBadSignature
	}
	return claim{before: "v0:" + timestamp + ":", digests: [][]byte{digest}, at: at}, nil
}

// standardHeader gives Svix's headers the names that Standard Webhooks gave them. A request that has both has the latter.
func standardHeader(r Request) map[string][]string {
	header := map[string][]string{}
	for name, short := range map[string]string{"Webhook-Id": "id", "Webhook-Timestamp": "timestamp", "Webhook-Signature": "signature"} {
		prefix := "webhook-"
		if r.get(signature.HeaderSignature) == "" {
			prefix = "svix-"
		}
		if value := r.get(prefix + short); value != "" {
			header[name] = []string{value}
		}
	}
	return header
}

// stripeRead: every event of Stripe's has an id and a type.
func stripeRead(_ Spec, r Request) (Reading, error) {
	m := members(r.Body)
	kind := typeOf(m["type"])
	if kind == "" {
		return Reading{}, fmt.Errorf("%w: Stripe's events are JSON objects with an id and a type, and this body is not one: check that the address is that of an event destination in Stripe", ErrUnreadable)
	}
	return Reading{ID: textOf(m["id"]), Event: "stripe." + kind}, nil
}

// gitHubRead: the action is there where the webhook's content type is application/json; a form has it inside.
func gitHubRead(_ Spec, r Request) (Reading, error) {
	reading := Reading{ID: r.get("X-GitHub-Delivery")}
	if kind := clean(r.get("X-GitHub-Event")); kind != "" {
		reading.Event = "github." + kind
		if action := typeOf(members(r.Body)["action"]); action != "" {
			reading.Event += "." + action
		}
	}
	return reading, nil
}

// slackRead: events of the Events API stand in an envelope, event_callback; slash commands and interactions are forms, which name
// no event.
func slackRead(_ Spec, r Request) (Reading, error) {
	m := members(r.Body)
	kind := typeOf(m["type"])
	switch kind {
	case "":
		return Reading{}, nil
	case "url_verification":
		challenge := textOf(m["challenge"])
		if challenge == "" || len(challenge) > challengeBytesMax {
			return Reading{}, fmt.Errorf("%w: Slack's url_verification bears a challenge of at most %d bytes, and this one does not", ErrUnreadable, challengeBytesMax)
		}
		return Reading{Challenge: challenge}, nil
	case "event_callback":
		if inner := typeOf(members(m["event"])["type"]); inner != "" {
			kind = inner
		}
	}
	return Reading{ID: textOf(m["event_id"]), Event: "slack." + kind}, nil
}

// shopifyRead: a topic is `orders/create`. The webhook's id is the delivery's: that of the event is the same for all subscriptions.
func shopifyRead(_ Spec, r Request) (Reading, error) {
	reading := Reading{ID: r.get("X-Shopify-Webhook-Id", "Shopify-Webhook-Id")}
	if topic := clean(strings.ReplaceAll(r.get("X-Shopify-Topic", "Shopify-Topic"), "/", ".")); topic != "" {
		reading.Event = "shopify." + topic
	}
	return reading, nil
}

func standardRead(s Spec, r Request) (Reading, error) {
	return Reading{ID: standardID(r), Event: typed(s.Name, r.Body)}, nil
}

func standardID(r Request) string {
	if ids := standardHeader(r)["Webhook-Id"]; len(ids) > 0 {
		return ids[0]
	}
	return ""
}

func ownRead(s Spec, r Request) (Reading, error) {
	reading := Reading{Event: typed(s.Name, r.Body)}
	if s.IDHeader != "" {
		reading.ID = r.get(s.IDHeader)
	}
	return reading, nil
}

// typed is the event of a body that has a type.
func typed(hook string, body []byte) string {
	if kind := typeOf(members(body)["type"]); kind != "" {
		return hook + "." + kind
	}
	return ""
}

// members are a JSON object's members; nil for anything else, also where a name stands twice: two readers could read two things.
func members(body []byte) map[string]jsontext.Value {
	var m map[string]jsontext.Value
	if len(body) == 0 || json.Unmarshal(body, &m) != nil {
		return nil
	}
	return m
}

func textOf(value jsontext.Value) string {
	var text string
	if value.Kind() != '"' || json.Unmarshal(value, &text) != nil {
		return ""
	}
	return text
}

func typeOf(value jsontext.Value) string { return clean(textOf(value)) }

// clean takes a text that may be part of an event's name; any other is none.
func clean(text string) string {
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-:/", r)
	}
	if len(text) > typeBytesMax || strings.ContainsFunc(text, odd) {
		return ""
	}
	return text
}
