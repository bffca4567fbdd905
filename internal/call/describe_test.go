package call_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/wire"
)

// manifest is what an SDK answers for a list of workflows.
func manifest(workflows string) string {
	sum := sha256.Sum256([]byte(workflows))
	return fmt.Sprintf(`{"app":"shop","sdk":{"language":"go","version":"0.1.0"},"protocol":1,"hash":%q,"workflows":%s}`, hex.EncodeToString(sum[:]), workflows)
}

func TestDescribe(t *testing.T) {
	const workflows = `[ {"name":"fulfill order","triggers":[{"event":"order.paid","if":"payload.total > 0"},{"webhook":"shop"}],"retries":4,"timeoutMs":7200000,"leaseMs":300000}, {"name":"é"} ]`
	var asked string
	url := app(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = string(body)
		answers(manifest(workflows))(w, r)
	})
	got, outcome := newCaller(t, call.Options{}).Describe(t.Context(), call.Target{URL: url, Private: true})
	if outcome.Kind != call.Answered {
		t.Fatalf("outcome: %+v", outcome)
	}
	if asked != `{"type":"describe"}` {
		t.Errorf("asked %s", asked)
	}
	retries := 4
	sum := sha256.Sum256([]byte(workflows))
	want := &wire.Manifest{
		App: "shop", SDK: wire.SDK{Language: "go", Version: "0.1.0"}, Protocol: 1, Hash: hex.EncodeToString(sum[:]),
		Workflows: []wire.Workflow{
			{
				Name: "fulfill order", Retries: &retries, TimeoutMs: 7_200_000, LeaseMs: 300_000,
				Triggers: []wire.Trigger{{Event: "order.paid", If: "payload.total > 0"}, {Webhook: "shop"}},
			},
			{Name: "é"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
}

func TestManifestsThatCannotBeUsed(t *testing.T) {
	good := manifest(`[{"name":"a"}]`)
	tests := map[string]struct{ manifest, reason string }{
		"no JSON":             {`<html>`, "not the JSON that is expected"},
		"not UTF-8":           {"{\"app\":\"\xff\"}", "not valid UTF-8"},
		"another protocol":    {strings.Replace(good, `"protocol":1`, `"protocol":2`, 1), "speaks version 2 of the protocol, and this server speaks 1"},
		"no name":             {strings.Replace(good, `"shop"`, `""`, 1), "the app's name"},
		"no workflows":        {strings.Replace(good, `"workflows"`, `"flows"`, 1), "no list of workflows"},
		"another hash":        {strings.Replace(good, `"name":"a"`, `"name":"b"`, 1), "its hash is not that of its workflows"},
		"a nameless workflow": {manifest(`[{"name":""}]`), "a workflow's name"},
		"a long name":         {manifest(`[{"name":"` + strings.Repeat("n", 257) + `"}]`), "a workflow's name"},
		"one name twice":      {manifest(`[{"name":"a"},{"name":"a"}]`), `two workflows named "a"`},
		"a long lease":        {manifest(`[{"name":"a","leaseMs":18446744073710}]`), "more than 3155760000000 ms"},
		"a long timeout":      {manifest(`[{"name":"a","timeoutMs":18446744073710}]`), "more than 3155760000000 ms"},
		"a short lease":       {manifest(`[{"name":"a","leaseMs":4999}]`), "a lease of 4999 ms; the least is 5000"},
		"retries below zero":  {manifest(`[{"name":"a","retries":-1}]`), "below zero"},
		"an empty trigger":    {manifest(`[{"name":"a","triggers":[{}]}]`), "exactly one of"},
		"a double trigger":    {manifest(`[{"name":"a","triggers":[{"event":"e","webhook":"w"}]}]`), "exactly one of"},
		"a long filter":       {manifest(`[{"name":"a","triggers":[{"event":"e","if":"` + strings.Repeat("i", 5000) + `"}]}]`), "more than 4096 bytes"},
		"many triggers":       {manifest(`[{"name":"a","triggers":[` + strings.Repeat(`{"event":"e"},`, 100) + `{"event":"e"}]}]`), "101 triggers"},
		"many workflows":      {manifest(`[` + strings.Repeat(`{"name":"a"},`, 10_000) + `{"name":"a"}]`), "10001 workflows"},
		"too large":           {strings.Repeat(" ", 4<<20) + good, "larger than 4194304 bytes"},
		"deeply nested":       {manifest(strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)), "not the JSON that is expected"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, outcome := newCaller(t, call.Options{}).Describe(t.Context(), call.Target{URL: app(t, answers(test.manifest)), Private: true})
			if got != nil || outcome.Kind != call.Unusable || !strings.Contains(outcome.Reason, test.reason) {
				t.Errorf("outcome: %v %s", outcome.Kind, outcome.Reason)
			}
		})
	}
}

func TestAnAppThatDoesNotDescribeItselfInTime(t *testing.T) {
	url := app(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	caller := newCaller(t, call.Options{})
	caller.Shorten(20 * time.Millisecond)
	if _, outcome := caller.Describe(t.Context(), call.Target{URL: url, Private: true}); outcome.Kind != call.Silent {
		t.Errorf("outcome: %+v", outcome)
	}
}
