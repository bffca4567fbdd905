package config_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/nelkap/nelkap/internal/config"
)

const (
	signingKey = "canary-signing-key-0123456789abcdefgh"
	apiKey     = "canary-api-key-0123456789abcdefghij"
)

// keys is an environment in which serve starts.
var keys = []string{"NELKAP_SIGNING_KEY=" + signingKey, "NELKAP_API_KEY=" + apiKey}

// finish reads a command line and an environment as a server does.
func finish(use config.Use, line string, environ ...string) (*config.Server, error) {
	s := &config.Server{}
	flags := pflag.NewFlagSet("nelkap", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	s.Bind(flags, use)
	if err := flags.Parse(strings.Fields(line)); err != nil {
		return s, err
	}
	return s, s.Finish(environ)
}

func TestThePageIsWhatTheTableSays(t *testing.T) {
	got, err := os.ReadFile("../../docs/internals/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config.Markdown(), string(got)); diff != "" {
		t.Errorf("docs/internals/configuration.md is not what the table says: run go generate ./internal/config\n%s", diff)
	}
}

func TestEveryFlagHasARowAndEveryRowAFlag(t *testing.T) {
	for use, bind := range map[config.Use]func(*pflag.FlagSet){
		config.Dev:    func(f *pflag.FlagSet) { new(config.Server).Bind(f, config.Dev) },
		config.Serve:  func(f *pflag.FlagSet) { new(config.Server).Bind(f, config.Serve) },
		config.Client: func(f *pflag.FlagSet) { config.BindClient(f, new(string)) },
		config.Health: func(f *pflag.FlagSet) { new(config.Checking).Bind(f) },
		config.Doctor: func(f *pflag.FlagSet) { new(config.Examined).Bind(f) },
	} {
		flags := pflag.NewFlagSet("nelkap", pflag.ContinueOnError)
		bind(flags)
		rows := map[string]bool{}
		for _, s := range config.Table {
			for _, u := range s.Uses {
				if u == use && s.Flag != "" {
					rows[s.Flag] = true
				}
			}
		}
		flags.VisitAll(func(f *pflag.Flag) {
			if !rows[f.Name] || f.Usage == "" {
				t.Errorf("%s: --%s has no row, or no help", use, f.Name)
			}
			delete(rows, f.Name)
		})
		for name := range rows {
			t.Errorf("%s: the row of --%s has no flag", use, name)
		}
	}
}

func TestWhatIsNotGivenHasItsDefault(t *testing.T) {
	dev, err := finish(config.Dev, "")
	if err != nil || dev.Addr != "127.0.0.1:6355" || dev.Data != ".nelkap" || dev.Lease != config.LeaseStd || dev.Concurrency != 100 || dev.URL != "" || len(dev.Warnings) != 0 || len(dev.SigningKeys) != 0 {
		t.Errorf("%+v, %v", dev, err)
	}
	serve, err := finish(config.Serve, "--store ./data --data other", keys...)
	if err != nil || serve.Data != "data" || len(serve.SigningKeys) != 1 || !serve.Keys.Allow("Bearer "+apiKey) || serve.Keys.Allow("") {
		t.Errorf("%+v, %v", serve, err)
	}
	both, err := finish(config.Serve, "--data d", append(keys, "NELKAP_SIGNING_KEY_PREVIOUS="+signingKey+"2", "NELKAP_URL=https://nelkap.example.com/")...)
	if err != nil || both.Data != "d" || len(both.SigningKeys) != 2 || both.URL != "https://nelkap.example.com" {
		t.Errorf("%+v, %v", both, err)
	}
}

func TestAHookHasTheSecretsOfItsVariables(t *testing.T) {
	s, err := finish(config.Dev, "--hook pay=stripe,dedupe --hook my-erp=hmac,header=X-Sig --deliveries-for 48h --deliveries-max 7",
		"NELKAP_HOOK_PAY_SECRET=canary-0123456789", "NELKAP_HOOK_PAY_SECRET_PREVIOUS=canary-0123456780", "NELKAP_HOOK_MY_ERP_SECRET=canary-0123456789")
	if err != nil || len(s.Hooks) != 2 || !s.Hooks["pay"].Dedupe || s.Hooks["my-erp"].Header != "X-Sig" || s.DeliveriesFor != 48*time.Hour || s.DeliveriesMax != 7 || len(s.Warnings) != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	if text := fmt.Sprintf("%v %+v %#v", s, s, s.Hooks); strings.Contains(text, "canary") {
		t.Error("a secret is shown")
	}
}

// What the page on webhooks has people type is taken, with the variables that it sets before.
func TestTheCommandsOfTheWebhooksPageAreTaken(t *testing.T) {
	page, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	commands, environ := 0, slices.Clone(keys)
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		for line := range strings.Lines(block[1]) {
			line = strings.TrimSpace(line)
			if assignment, ok := strings.CutPrefix(line, "export "); ok {
				name, value, _ := strings.Cut(assignment, "=")
				if prefix, _, _ := strings.Cut(value, "..."); strings.HasPrefix(prefix, "whsec_") {
					value = "whsec_" + base64.StdEncoding.EncodeToString([]byte("a secret of 32 bytes, not a real"))
				} else {
					value = "0123456789abcdef"
				}
				environ = append(environ, name+"="+value)
				continue
			}
			for use, prefix := range map[config.Use]string{config.Serve: "nelkap serve ", config.Dev: "nelkap dev "} {
				flags, ok := strings.CutPrefix(line, prefix)
				if !ok {
					continue
				}
				commands++
				if s, err := finish(use, flags, environ...); err != nil || len(s.Hooks) != 1 {
					t.Errorf("%s: %d hooks, %v", line, len(s.Hooks), err)
				}
			}
		}
	}
	if commands < 8 {
		t.Errorf("only %d commands were found", commands)
	}
}

func TestADatabaseTakesThePlaceOfADirectory(t *testing.T) {
	for _, scheme := range []string{"postgres", "postgresql"} {
		database := scheme + "://nelkap@db/nelkap"
		s, err := finish(config.Serve, "--data d --store "+database, keys...)
		if err != nil || s.Database != database || s.Data != "" {
			t.Errorf("%s: %q, %q, %v", database, s.Database, s.Data, err)
		}
	}
}

// An address with a password need not stand among the flags, which others can read.
func TestTheStoreMayStandInAVariable(t *testing.T) {
	const database = "postgres://nelkap:canary@db/nelkap"
	variable := append(slices.Clone(keys), "NELKAP_STORE="+database)
	for line, want := range map[string]config.Server{
		"": {Database: database}, "--data d": {Database: database}, "--store d": {Data: "d"}, "--store postgres://b/c": {Database: "postgres://b/c"},
	} {
		if s, err := finish(config.Serve, line, variable...); err != nil || s.Database != want.Database || s.Data != want.Data || len(s.Warnings) != 0 {
			t.Errorf("%q: %q, %q, %v, %v", line, s.Database, s.Data, s.Warnings, err)
		}
	}
	if _, err := finish(config.Serve, "--memory", variable...); err == nil || !strings.Contains(err.Error(), "NELKAP_STORE") || strings.Contains(err.Error(), "canary") {
		t.Errorf("%v", err)
	}
	if s, err := finish(config.Dev, "", variable...); err != nil || s.Database != "" || s.Data != config.DevDataStd {
		t.Errorf("dev: %+v, %v", s, err)
	}
	if s, err := finish(config.Serve, "--drain 20s --store d", keys...); err != nil || s.Drain != 20*time.Second {
		t.Errorf("%v, %v", s.Drain, err)
	}
}

func TestDoctorLooksAtTheStoreOfAServer(t *testing.T) {
	const database = "postgres://nelkap:canary@db/nelkap"
	for line, want := range map[string]config.Examined{
		"": {Database: database}, "--data d": {Data: "d"}, "--store d": {Data: "d"}, "--store postgres://b/c --data d": {Database: "postgres://b/c"},
	} {
		e := config.Examined{}
		flags := pflag.NewFlagSet("doctor", pflag.ContinueOnError)
		e.Bind(flags)
		if err := flags.Parse(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		if err := e.Finish([]string{"NELKAP_STORE=" + database}); err != nil || e.Data != want.Data || e.Database != want.Database {
			t.Errorf("%q: %q, %q, %v", line, e.Data, e.Database, err)
		}
	}
	e := config.Examined{}
	if err := e.Finish([]string{"NELKAP_STORE=mysql://nelkap:canary@db"}); err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("%v", err)
	}
	e = config.Examined{Data: database}
	if err := e.Finish(nil); err == nil || !strings.Contains(err.Error(), "--store") || strings.Contains(err.Error(), "canary") {
		t.Errorf("%v", err)
	}
}

// A directory whose name begins like an address is still one with ./ before it.
func TestADirectoryIsNoDatabase(t *testing.T) {
	for text, isDirectory := range map[string]bool{
		"data": true, "./postgres:/x": true, "/var/lib/postgres": true, "postgres": true, `C:\data`: true, "": true,
		"postgres:": false, "postgresql:/x": false, "Postgres://x": false,
	} {
		if err := config.CheckDirectory("data", text); (err == nil) != isDirectory {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Each refusal says what to do, and none shows a key.
// Rule C7.
func TestWhatCannotBeIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		use     config.Use
		line    string
		environ []string
		want    string
	}{
		"dev for others":            {config.Dev, "--addr 0.0.0.0:6355", nil, "127.0.0.1:PORT"},
		"dev on every address":      {config.Dev, "--addr :6355", nil, "127.0.0.1:PORT"},
		"dev on every IPv6 address": {config.Dev, "--addr [::]:6355", nil, "127.0.0.1:PORT"},
		"dev in the network":        {config.Dev, "--addr 192.168.1.2:6355", nil, "127.0.0.1:PORT"},
		"dev by another name":       {config.Dev, "--addr localhost.example.com:6355", nil, "127.0.0.1:PORT"},
		"no port":                   {config.Dev, "--addr 127.0.0.1", nil, "127.0.0.1:6355"},
		"a port that is none":       {config.Dev, "--addr 127.0.0.1:99999", nil, "0 to 65535"},
		"a negative port":           {config.Dev, "--addr 127.0.0.1:-1", nil, "0 to 65535"},
		"a huge port":               {config.Dev, "--addr 127.0.0.1:99999999999999999999", nil, "0 to 65535"},
		"an empty port":             {config.Dev, "--addr 127.0.0.1:", nil, "0 to 65535"},
		"a short lease":             {config.Dev, "--lease 4999ms", nil, "5s"},
		"a negative drain":          {config.Serve, "--store d --drain -1s", keys, "0 to 5m"},
		"an endless drain":          {config.Serve, "--store d --drain 6m", keys, "0 to 5m"},
		"no call at once":           {config.Dev, "--concurrency 0", nil, "1 to 10000"},
		"an app without a scheme":   {config.Dev, "--app localhost:3000", nil, "http://127.0.0.1:3000/api/nelkap"},
		"no signing key":            {config.Serve, "--store d", keys[1:], "openssl rand -hex 32"},
		"no API key":                {config.Serve, "--store d", keys[:1], "openssl rand -hex 32"},
		"a short API key":           {config.Serve, "--store d", []string{keys[0], "NELKAP_API_KEY=canary"}, "openssl rand -hex 32"},
		"an API key with a space":   {config.Serve, "--store d", []string{keys[0], "NELKAP_API_KEY=canary " + apiKey}, "remove it"},
		"a short signing key":       {config.Serve, "--store d", []string{"NELKAP_SIGNING_KEY=canary", keys[1]}, "NELKAP_SIGNING_KEY: the signing key has 6 bytes: use at least 32"},
		"a short key before":        {config.Serve, "--store d", append(slices.Clone(keys), "NELKAP_SIGNING_KEY_PREVIOUS=canary"), "NELKAP_SIGNING_KEY_PREVIOUS: the signing key has 6"},
		"a broken signing key":      {config.Serve, "--store d", []string{"NELKAP_SIGNING_KEY=whsec_canary!", keys[1]}, "base64"},
		"nowhere to keep the data":  {config.Serve, "", keys, "--store ./data"},
		"memory and a database":     {config.Serve, "--memory --store postgres://user:canary@db/nelkap", keys, "one of them"},
		"another database":          {config.Serve, "--store mysql://user:canary@db/nelkap", keys, "./data"},
		"a database as directory":   {config.Serve, "--data postgres://user:canary@db/nelkap", keys, "--store"},
		"its longer scheme":         {config.Serve, "--data postgresql://user:canary@db/nelkap", keys, "--store"},
		"dev with a database":       {config.Dev, "--data postgres:/user:canary@db/nelkap", nil, "nelkap serve"},
		"a database with one slash": {config.Serve, "--store postgres:/user:canary@db/nelkap", keys, "postgres://USER"},
		"a database with none":      {config.Serve, "--store postgres:canary@db/nelkap?x=a://b", keys, "postgres://USER"},
		"a database in capitals":    {config.Serve, "--store POSTGRES://user:canary@db/nelkap", keys, "postgres://USER"},
		"a password as a scheme":    {config.Serve, "--store user:canary@db://nelkap", keys, "./data"},
		"memory and a store":        {config.Serve, "--store d --memory", keys, "one of them"},
		"a hook without a secret":   {config.Dev, "--hook pay=stripe", nil, "set NELKAP_HOOK_PAY_SECRET"},
		"a hook with a short one":   {config.Dev, "--hook pay=stripe", []string{"NELKAP_HOOK_PAY_SECRET=canary"}, "8 or more"},
		"a hook of no provider":     {config.Dev, "--hook pay=canary", nil, "provider is one of"},
		"two hooks of one variable": {config.Dev, "--hook a-b=stripe --hook a.b=slack", []string{"NELKAP_HOOK_A_B_SECRET=canary-0123456789"}, "rename one"},
		"the same hook twice":       {config.Dev, "--hook a=stripe --hook a=slack", []string{"NELKAP_HOOK_A_SECRET=canary-0123456789"}, "rename one"},
		"events for no time":        {config.Dev, "--events-for 1m", nil, "1h"},
		"runs for no time":          {config.Dev, "--runs-for 23h", nil, "24h"},
		"runs for less than none":   {config.Dev, "--runs-for -48h", nil, "24h"},
		"a grace for ever":          {config.Dev, "--grace 2h", nil, "at most"},
		"deliveries for no time":    {config.Dev, "--deliveries-for 1m", nil, "1h"},
		"deliveries without number": {config.Dev, "--deliveries-max 0", nil, "1 to 1000000"},
		"a broken address":          {config.Serve, "--store d", append(keys, "NELKAP_URL=nelkap.example.com"), "https://"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := finish(c.use, c.line, c.environ...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want a word about %q", err, c.want)
			}
			if strings.Contains(err.Error(), "canary") {
				t.Errorf("it shows a secret: %v", err)
			}
		})
	}
}

func TestWhatIsOddIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		use     config.Use
		line    string
		environ []string
		want    string
	}{
		"a slip":                  {config.Dev, "", []string{"NELKAP_SIGNING_KEI=canary"}, "did you mean NELKAP_SIGNING_KEY?"},
		"a slip in a short name":  {config.Dev, "", []string{"NELKAP_ULR=canary"}, "did you mean NELKAP_URL?"},
		"another thing":           {config.Dev, "", []string{"NELKAP_SOMETHING_ELSE_ENTIRELY=canary"}, "NELKAP_SOMETHING_ELSE_ENTIRELY is not known"},
		"a secret of no hook":     {config.Dev, "", []string{"NELKAP_HOOK_PAY_SECRET=canary"}, "--hook NAME=PROVIDER"},
		"a slip in a hook's":      {config.Dev, "", []string{"NELKAP_HOOK_PAY_SECRT=canary"}, "NELKAP_HOOK_PAY_SECRT is not known"},
		"dev and another machine": {config.Dev, "", []string{"NELKAP_URL=https://nelkap.example.com"}, "not used"},
		"serve in memory":         {config.Serve, "--memory", keys, "lost"},
		"serve without its URL":   {config.Serve, "--store d --addr 0.0.0.0:1", keys, "NELKAP_URL"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := finish(c.use, c.line, c.environ...)
			all := strings.Join(s.Warnings, "\n")
			if err != nil || len(s.Warnings) != 1 || !strings.Contains(all, c.want) {
				t.Fatalf("%v, %v", s.Warnings, err)
			}
			if strings.Contains(all, "canary") {
				t.Errorf("it shows a value: %s", all)
			}
			if s.Dev && s.URL != "" {
				t.Errorf("dev uses %s", s.URL)
			}
		})
	}
	if s, err := finish(config.Dev, "", "NELKAP_APP=x", "NELKAP_DEV=1", "NELKAPX=1", "PATH=/bin"); err != nil || len(s.Warnings) != 0 {
		t.Errorf("%v, %v", s.Warnings, err)
	}
}

func TestACommandFindsItsServer(t *testing.T) {
	for want, c := range map[string]struct {
		flag    string
		environ []string
	}{
		"http://127.0.0.1:6355": {}, "http://a": {"", []string{"NELKAP_URL=http://a"}}, "http://b": {"http://b", []string{"NELKAP_URL=http://a"}},
	} {
		if got, err := config.Asking(c.flag, c.environ); err != nil || got.URL != want {
			t.Errorf("got %v, %v, want %s", got, err, want)
		}
	}
	if _, err := config.Asking("", []string{"NELKAP_API_KEY=canary\n"}); err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("got %v", err)
	}
}
