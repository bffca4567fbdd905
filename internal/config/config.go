// Package config is the one table of what can be set: flags, help texts, the settings page and the check for misspelt variables all
// come from Table. It reads and checks the settings of a server and of the commands that ask one; it opens nothing and starts
// nothing. cmd/nelkap calls it.
//
// Keys come from variables alone, never from flags, which other users of a machine can read. They are never printed: no error
// of this package shows one.
package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Use is what a setting is for.
type Use string

// The uses.
const (
	Dev    Use = "dev"
	Serve  Use = "serve"
	Client Use = "client" // every command that asks a server
	Health Use = "healthcheck"
	Doctor Use = "doctor" // beside what it has as a client
	SDK    Use = "sdk"    // read by apps, not here
)

// The settings' defaults.
const (
	AddrStd        = "127.0.0.1:6355"
	DevDataStd     = ".nelkap"
	LeaseStd       = 5 * time.Minute
	LeaseMin       = 5 * time.Second
	StallStd       = 24 * time.Hour
	stallMin       = time.Minute
	GraceStd       = 30 * time.Second
	graceMax       = time.Hour
	ConcurrencyStd = 100
	concurrencyMax = 10_000
	drainMax       = 5 * time.Minute
	HealthWithin   = 3 * time.Second

	EventsForStd     = 30 * 24 * time.Hour
	runsForMin       = 24 * time.Hour // as long as an Idempotency-Key is known
	DeliveriesForStd = 30 * 24 * time.Hour
	deliveriesForMin = time.Hour
	deliveriesForMax = 366 * 24 * time.Hour
	DeliveriesMaxStd = 10_000
	deliveriesMax    = 1_000_000 // some five gigabytes of usual ones
)

// The variables, and the most used of the flags, by name.
const (
	VariableURL             = "NELKAP_URL"
	VariableStore           = "NELKAP_STORE"
	VariableAPIKey          = "NELKAP_API_KEY"
	VariableSigningKey      = "NELKAP_SIGNING_KEY"
	VariableSigningKeyOlder = "NELKAP_SIGNING_KEY_PREVIOUS"
	variablePrefix          = "NELKAP_"
)

// Setting is one row of the table.
type Setting struct {
	Flag     string // without its dashes; empty where a variable alone sets it
	Variable string // empty where a flag alone sets it
	Default  string
	Unit     string
	Uses     []Use
	Meaning  string // for the flag's help, and the settings page
}

// Table is everything that can be set.
var Table = []Setting{
	{Flag: "addr", Default: AddrStd, Unit: "host:port", Uses: []Use{Dev, Serve}, Meaning: "where the server listens; dev listens on loopback alone"},
	{Flag: "data", Default: DevDataStd, Unit: "directory", Uses: []Use{Dev, Serve}, Meaning: "where the data is kept; one server at a time uses a directory; the default is that of dev alone"},
	{Flag: "store", Variable: VariableStore, Unit: "directory or postgres://…", Uses: []Use{Serve}, Meaning: "where the data is kept; a Postgres database may be used by many servers; wins over --data; an address with a password belongs into the variable, since others on the machine can read flags"},
	{Flag: "memory", Default: "false", Uses: []Use{Dev, Serve}, Meaning: "keep the data in memory, and lose it on exit"},
	{Flag: "app", Unit: "URL, repeatable", Uses: []Use{Dev, Serve}, Meaning: "an app, where it answers, such as http://127.0.0.1:3000/api/nelkap; it may be at a private address; dev scans no ports then"},
	{Flag: "lease", Default: "5m", Unit: "duration, at least 5s", Uses: []Use{Dev, Serve}, Meaning: "how long a call that says nothing keeps its run, before the run is picked up; a workflow may set its own"},
	{Flag: "stall", Default: "24h", Unit: "duration, at least 1m", Uses: []Use{Dev, Serve}, Meaning: "how long a call that is alive may save nothing, before it is cut off and its run is picked up"},
	{Flag: "grace", Default: "30s", Unit: "duration, at most 1h", Uses: []Use{Dev, Serve}, Meaning: "how long steps that are running may still be saved once their run is cancelled or has timed out; then they count as abandoned"},
	{Flag: "concurrency", Default: "100", Unit: "calls, 1 to 10000", Uses: []Use{Dev, Serve}, Meaning: "how many calls an app gets at once, from all nodes together, unless it was registered with another number"},
	{Flag: "hook", Unit: "NAME=PROVIDER and options, repeatable", Uses: []Use{Dev, Serve}, Meaning: "the webhook /hooks/NAME has its signatures checked; providers: stripe, github, slack, shopify, standard, svix, hmac; options after commas: dedupe, and of hmac header=, encoding=hex or base64, prefix=, id="},
	{Flag: "drain", Default: "0s", Unit: "duration, at most 5m", Uses: []Use{Serve}, Meaning: "how long a server that is told to stop still takes requests, while /readyz says 503: so that a load balancer turns to others first"},
	{Flag: "events-for", Default: "30d", Unit: "duration, at least 1h", Uses: []Use{Dev, Serve}, Meaning: "how long events are kept: as far back a wait finds one that came before it"},
	{Flag: "runs-for", Default: "0s", Unit: "duration, 0 or at least 24h", Uses: []Use{Dev, Serve}, Meaning: "how long runs are kept once they have ended, with their steps and logs; 0 keeps them for ever; run keys and claims outlive them"},
	{Flag: "deliveries-for", Default: "30d", Unit: "duration, at least 1h", Uses: []Use{Dev, Serve}, Meaning: "how long deliveries to --hook webhooks are kept"},
	{Flag: "deliveries-max", Default: "10000", Unit: "deliveries, 1 to 1000000", Uses: []Use{Dev, Serve}, Meaning: "how many of them are kept; rejected ones are counted apart: 1,000 of 64 MiB in all"},
	{Flag: "url", Variable: VariableURL, Default: "http://" + AddrStd, Unit: "URL", Uses: []Use{Client}, Meaning: "where the server is"},
	{Flag: "url", Default: "http://" + AddrStd, Unit: "URL", Uses: []Use{Health}, Meaning: "the server that is asked, on this machine; NELKAP_URL does not count, since it may lead to other servers too"},
	{Flag: "timeout", Default: "3s", Unit: "duration", Uses: []Use{Health}, Meaning: "how long the server may take to answer"},
	{Flag: "store", Variable: VariableStore, Unit: "directory or postgres://…", Uses: []Use{Doctor}, Meaning: "look at this store too, as a server is given it"},
	{Flag: "data", Unit: "directory", Uses: []Use{Doctor}, Meaning: "the same, for a directory; --store wins"},
	{Variable: VariableURL, Default: "http://, then --addr", Unit: "URL", Uses: []Use{Dev, Serve}, Meaning: "the server's public address, which apps save at; dev takes only one of this machine"},
	{Variable: VariableAPIKey, Unit: "text of 32 characters or more", Uses: []Use{Serve, Client, SDK}, Meaning: "the API key: serve accepts it, and commands and apps send it"},
	{Variable: VariableSigningKey, Unit: "whsec_ and base64, or text of 32 bytes or more", Uses: []Use{Dev, Serve, SDK}, Meaning: "signs the server's calls to apps; serve needs it, dev signs only where it is set"},
	{Variable: VariableSigningKeyOlder, Unit: "as above", Uses: []Use{Dev, Serve, SDK}, Meaning: "the key before, while apps change to the new one: calls are signed with both"},
	{Variable: hookPrefix + "<NAME>" + hookSuffix, Unit: "text of 8 bytes or more", Uses: []Use{Dev, Serve}, Meaning: "the secret that the provider signs with, of the hook NAME, in capitals and with _ for - and .; each hook needs one"},
	{Variable: hookPrefix + "<NAME>" + hookSuffixPrevious, Unit: "as above", Uses: []Use{Dev, Serve}, Meaning: "the hook's secret before, while the provider changes to the new one: either counts"},
	{Variable: "NELKAP_APP", Default: "app", Unit: "name", Uses: []Use{SDK}, Meaning: "the app's name, for the default instance"},
	{Variable: "NELKAP_DEV", Unit: "1", Uses: []Use{SDK}, Meaning: "exactly 1: the app accepts unsigned calls from this machine; ignored while a signing key is set"},
}

// find gives the row of a flag for a use. A flag without a row is a mistake in the program.
func find(flag string, use Use) Setting {
	for _, s := range Table {
		if s.Flag == flag && slices.Contains(s.Uses, use) {
			return s
		}
	}
	panic("config: no row for --" + flag)
}

// help is a flag's help text.
func help(flag string, use Use) string {
	s := find(flag, use)
	text := s.Meaning
	if s.Variable != "" {
		text += " (" + s.Variable + ")"
	}
	return text
}

// BindClient adds the flags of commands that ask a server.
func BindClient(flags *pflag.FlagSet, url *string) {
	flags.StringVar(url, "url", "", help("url", Client)+` (default "`+find("url", Client).Default+`")`)
}

// Checking is what healthcheck asks, and for how long.
type Checking struct {
	URL     string
	Timeout time.Duration
}

// Bind adds the flags of healthcheck.
func (c *Checking) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&c.URL, "url", "http://"+AddrStd, help("url", Health))
	Duration(flags, &c.Timeout, "timeout", HealthWithin, help("timeout", Health))
}

// Examined is the store that doctor looks at. Both are empty where it looks at none.
type Examined struct {
	Data     string // the directory of the embedded store
	Database string // the URL of a Postgres database; it can hold a password

	store string
}

// Bind adds doctor's flags.
func (e *Examined) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&e.store, "store", "", help("store", Doctor))
	flags.StringVar(&e.Data, "data", "", help("data", Doctor))
}

// Finish reads the variables: the flag wins. With --data alone the variable does not count.
func (e *Examined) Finish(environ []string) error {
	if e.store == "" && e.Data == "" {
		e.store = lookup(environ)(VariableStore)
	}
	directory, database, err := storeOf(e.store)
	if e.store != "" {
		e.Data, e.Database = directory, database
	}
	return errors.Join(err, CheckDirectory("data", e.Data))
}

// CheckDirectory refuses what a flag for a directory was given if it is the address of a database: a directory of that name would be made,
// and its name, which can hold a password, be logged. The error does not show it.
func CheckDirectory(flag, text string) error {
	if !isAddress(text) {
		return nil
	}
	return fmt.Errorf("--%s takes a directory, such as ./data, and was given the address of a database: nelkap serve and nelkap doctor take one with NELKAP_STORE or --store", flag)
}

// isAddress tells whether a text is meant as the address of a database, also where it is misspelt.
func isAddress(text string) bool {
	scheme, _, ok := strings.Cut(strings.ToLower(strings.TrimSpace(text)), ":")
	return ok && (scheme == "postgres" || scheme == "postgresql")
}

// storeOf tells what a store's text names: a directory or a database. Its errors show nothing of the text, which can hold a password.
func storeOf(text string) (directory, database string, err error) {
	switch {
	case strings.HasPrefix(text, "postgres://"), strings.HasPrefix(text, "postgresql://"):
		return "", text, nil
	case isAddress(text):
		return "", "", errors.New("--store was given the address of a database that does not begin with postgres://: write it like postgres://USER@HOST/DATABASE")
	case strings.Contains(text, "://"):
		return "", "", errors.New("--store takes a directory, such as ./data, or a postgres:// address, and no other address")
	default:
		return text, "", nil
	}
}

// Markdown is the settings page, docs/internals/configuration.md.
//
//go:generate go run ./page ../../docs/internals/configuration.md
func Markdown() string {
	var out strings.Builder
	out.WriteString("# Configuration\n\n<!-- Code generated from internal/config by go generate. DO NOT EDIT. -->\n\n" +
		"Everything that can be set. Keys come from variables alone, since flags can be read by others on the machine. An unknown\n" +
		"`NELKAP_…` variable is reported when a server starts. Colour is switched off by `NO_COLOR`.\n\n" +
		"| flag | variable | for | default | unit | meaning |\n| - | - | - | - | - | - |\n")
	for _, s := range Table {
		flag := ""
		if s.Flag != "" {
			flag = "`--" + s.Flag + "`"
		}
		uses := make([]string, len(s.Uses))
		for i, u := range s.Uses {
			uses[i] = string(u)
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s |\n", flag, code(s.Variable), strings.Join(uses, ", "), code(s.Default), s.Unit, s.Meaning)
	}
	out.WriteString("\n`dev` and `serve` are the server's commands, `client` is every command that asks a server, `sdk` is read by apps.\n`healthcheck` and `doctor` are commands; `doctor` has what `client` has, too.\n")
	return out.String()
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
