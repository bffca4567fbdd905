package call_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nelkap/nelkap/internal/call"
)

func TestWhichAddressesMayBeDialed(t *testing.T) {
	tests := map[string]struct{ public, private bool }{
		"93.184.215.14:443":           {true, true},
		"93.184.215.14:3000":          {true, true}, // any port: apps live on many
		"[2606:2800:21f:cb07::1]:80":  {true, true},
		"127.0.0.1:3000":              {false, true},
		"127.8.8.8:3000":              {false, true},
		"[::1]:3000":                  {false, true},
		"10.1.2.3:80":                 {false, true},
		"172.16.0.1:80":               {false, true},
		"172.31.255.255:80":           {false, true},
		"192.168.1.1:80":              {false, true},
		"100.64.0.1:80":               {false, true},
		"[fd12:3456::1]:80":           {false, true},
		"0.0.0.0:80":                  {false, false},
		"[::]:80":                     {false, false},
		"169.254.169.254:80":          {false, false},
		"169.254.1.1:80":              {false, false},
		"[::ffff:169.254.169.254]:80": {false, false},
		"[::ffff:10.0.0.1]:80":        {false, false},
		"[64:ff9b::a9fe:a9fe]:80":     {false, false}, // 169.254.169.254 through NAT64
		"[2002:a9fe:a9fe::1]:80":      {false, false}, // and through 6to4
		"[fe80::1%lo]:80":             {false, false},
		"[fd00:ec2::254]:80":          {false, false},
		"100.100.100.200:80":          {false, false},
		"168.63.129.16:80":            {false, false}, // Azure's host: a public number, reached from inside alone
		"192.0.0.192:80":              {false, false}, // Oracle's metadata
		"224.0.0.1:80":                {false, false},
		"255.255.255.255:80":          {false, false},
		"198.18.0.1:80":               {false, false},
		"192.0.2.1:80":                {false, false},
		"[2001:db8::1]:80":            {false, false},
		"[ff02::1]:80":                {false, false},
		"localhost:80":                {false, false}, // a name is no address
	}
	for address, want := range tests {
		public, private := call.Dialable(address)
		if (public == nil) != want.public || (private == nil) != want.private {
			t.Errorf("%s: public %v, private %v", address, public, private)
		}
		for _, err := range []error{public, private} {
			if err != nil && !errors.Is(err, call.ErrAddress) {
				t.Errorf("%s: %v is not ErrAddress", address, err)
			}
		}
	}
}

// Only an operator's word reaches an app of this machine, by whatever name.
func TestAPublicTargetReachesNothingPrivate(t *testing.T) {
	a := newRawApp(t, func(e exchange) bool { answer(e.conn, "{}"); return true })
	caller := newCaller(t, call.Options{})
	if outcome := caller.Do(t.Context(), request(a.url())); outcome.Kind != call.Answered {
		t.Fatalf("the operator's target: %+v", outcome)
	}
	// The connection that this left open is not found again by a public target.
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"} {
		r := request(strings.Replace(a.url(), "127.0.0.1", host, 1))
		r.Target.Private = false
		outcome := caller.Do(t.Context(), r)
		if outcome.Kind != call.NotSent || !errors.Is(outcome.Err, call.ErrAddress) || !outcome.NeedsPerson() {
			t.Errorf("%s: %+v", host, outcome)
		}
	}
	if n := a.connected(); n != 1 {
		t.Errorf("%d connections reached the app", n)
	}
}
