package webhook_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nelkap/nelkap/internal/signature"
	"github.com/nelkap/nelkap/internal/webhook"
)

// FuzzVerify: what passes was signed with the secret, over exactly these bytes, in time; nothing else is more than an error of the
// list, and none shows the secret.
func FuzzVerify(f *testing.F) {
	for n, s := range signers {
		r := s.signed(secret, `{"type":"a"}`, now)
		f.Add(n, http.Header(r.Header).Get(s.header), []byte(`{"type":"a"}`), int64(0))
		f.Add(n, http.Header(r.Header).Get(s.header)+" ", []byte(`{"type":"a"} `), int64(400))
	}
	f.Add(0, "t=9223372036854775808,v1=,v1=00,t", []byte("."), int64(-1))
	f.Fuzz(func(t *testing.T, n int, header string, body []byte, off int64) {
		if n < 0 || n >= len(signers) {
			return
		}
		s := signers[n]
		at := now.Add(time.Duration(off%1_000_000) * time.Second)
		right := s.signed(secret, string(body), now)
		forged := http.Header(right.Header).Clone()
		forged.Set(s.header, header)
		err := made(t, s.line, secret).Verify(webhook.Request{Header: forged, Body: body}, at)
		if err != nil {
			if !errors.Is(err, signature.ErrUnsigned) && !errors.Is(err, signature.ErrBadSignature) && !errors.Is(err, signature.ErrClockDiffers) {
				t.Errorf("an error that is on no list: %v", err)
			}
			if strings.Contains(err.Error(), "canary") || !utf8.ValidString(err.Error()) {
				t.Errorf("it shows what it must not: %q", err)
			}
			return
		}
		// The digest is in the right signature's header; here it must be too, however it is written.
		if want := digestIn(http.Header(right.Header).Get(s.header)); !strings.Contains(strings.ToLower(header), strings.ToLower(want)) && s.line != "x=stripe" {
			t.Errorf("%s accepted %q", s.line, header)
		}
		if d := at.Sub(now); s.timed && s.line != "x=stripe" && d.Abs() > webhook.Tolerance {
			t.Errorf("%s accepted a delivery %v off", s.line, d)
		}
		if s.line == "x=stripe" { // the time is in the header
			if _, after, _ := strings.Cut(header, "v1="); after == "" {
				t.Errorf("accepted %q", header)
			}
		}
	})
}

// digestIn is the last part of a signature: after =, or a comma.
func digestIn(header string) string {
	if i := strings.Index(header, "v1,"); i >= 0 {
		return header[i+3:]
	}
	return strings.TrimPrefix(strings.TrimPrefix(header, "sha256="), "v0=")
}

// FuzzRead: whatever a body is, an event's name is one that may be stored, and begins as its provider's events do.
func FuzzRead(f *testing.F) {
	for n := range webhook.Providers() {
		f.Add(n, "issues", []byte(`{"type":"event_callback","id":"evt_1","action":"opened","event":{"type":"x"},"event_id":"Ev"}`))
		f.Add(n, "orders/create", []byte(`{"type":"url_verification","challenge":"\ud800"}`))
		f.Add(n, "\xff", []byte(`{"type":"a","type":"b"}`))
	}
	f.Add(0, "", []byte(strings.Repeat(`{"type":`, 300)))
	f.Fuzz(func(t *testing.T, n int, header string, body []byte) {
		if n < 0 || n >= len(webhook.Providers()) {
			return
		}
		name := webhook.Providers()[n]
		r := webhook.Request{Body: body, Header: map[string][]string{
			"X-Github-Event": {header}, "X-Github-Delivery": {header}, "X-Shopify-Topic": {header}, "X-Shopify-Webhook-Id": {header}, "Webhook-Id": {header}, "Webhook-Signature": {header},
		}}
		got, err := made(t, "hook="+name, secret).Read(r)
		if err != nil {
			if !errors.Is(err, webhook.ErrUnreadable) || got != (webhook.Reading{}) {
				t.Errorf("%+v, %v", got, err)
			}
			return
		}
		prefix := name + "."
		if name == "standard" || name == "svix" || name == "hmac" {
			prefix = "hook."
		}
		if got.Event != "" && (!strings.HasPrefix(got.Event, prefix) || len(got.Event) > 256 || strings.ContainsAny(got.Event, " \x00\r\n\"") || !utf8.ValidString(got.Event)) {
			t.Errorf("event %q", got.Event)
		}
		if len(got.ID) > 256 || !utf8.ValidString(got.ID) || len(got.Challenge) > 1024 || (got.Challenge != "" && (name != "slack" || got.Event != "")) {
			t.Errorf("%+v", got)
		}
	})
}

// FuzzParse: a hook that is taken has a name that fits an address and a variable; one that is refused is refused with what to do.
func FuzzParse(f *testing.F) {
	for _, line := range []string{"", "shop=stripe", "a.b-c_1=svix,dedupe", "erp=hmac,header=A,encoding=base64,prefix=sha256=,id=B,dedupe", "x=hmac,,=,==", "webhook=slack", "ſ=stripe", "x=stripe,\x00"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		spec, err := webhook.Parse(line)
		if err != nil {
			if spec != (webhook.Spec{}) {
				t.Errorf("%+v beside %v", spec, err)
			}
			return
		}
		variable := strings.TrimSuffix(strings.TrimPrefix(spec.Variable(), "NELKAP_HOOK_"), "_SECRET")
		if len(variable) != len(spec.Name) || strings.Trim(variable, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
			t.Errorf("%q has the variable %q", spec.Name, spec.Variable())
		}
		if (spec.Provider == webhook.HMAC) != (spec.Header != "") || !strings.HasPrefix(line, spec.Name+"="+spec.Provider) {
			t.Errorf("%+v", spec)
		}
		if _, err := spec.Hook(secret); err != nil {
			t.Errorf("%+v can't be made: %v", spec, err)
		}
	})
}
