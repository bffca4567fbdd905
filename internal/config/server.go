package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/nelkap/nelkap/internal/auth"
	"github.com/nelkap/nelkap/internal/signature"
	"github.com/nelkap/nelkap/internal/webhook"
)

// Server is what a server runs with. Bind fills in what flags say, Finish the rest.
type Server struct {
	Addr        string
	Data        string // the directory; empty with Memory or Database
	Database    string // the URL of a Postgres database, which many servers may share; it can hold a password
	Memory      bool
	Apps        []string
	Lease       time.Duration
	Stall       time.Duration
	Grace       time.Duration
	Concurrency int
	Drain       time.Duration

	EventsFor     time.Duration
	RunsFor       time.Duration // zero: for ever
	DeliveriesFor time.Duration
	DeliveriesMax int

	Dev         bool
	URL         string // the public address; empty: http:// and where it listens
	Keys        auth.Keys
	SigningKeys signature.Keys
	Hooks       webhook.Hooks
	Warnings    []string // sentences for the log

	store string
	hooks []string // as the flags have them
}

// Bind adds a server's flags.
func (s *Server) Bind(flags *pflag.FlagSet, use Use) {
	s.Dev = use == Dev
	data := ""
	if s.Dev {
		data = DevDataStd
	}
	flags.StringVar(&s.Addr, "addr", AddrStd, help("addr", use))
	flags.StringVar(&s.Data, "data", data, help("data", use))
	if use == Serve {
		flags.StringVar(&s.store, "store", "", help("store", use))
		Duration(flags, &s.Drain, "drain", 0, help("drain", use))
	}
	flags.BoolVar(&s.Memory, "memory", false, help("memory", use))
	flags.StringArrayVar(&s.Apps, "app", nil, help("app", use))
	Duration(flags, &s.Lease, "lease", LeaseStd, help("lease", use))
	Duration(flags, &s.Stall, "stall", StallStd, help("stall", use))
	Duration(flags, &s.Grace, "grace", GraceStd, help("grace", use))
	flags.IntVar(&s.Concurrency, "concurrency", ConcurrencyStd, help("concurrency", use))
	flags.StringArrayVar(&s.hooks, "hook", nil, help("hook", use))
	Duration(flags, &s.EventsFor, "events-for", EventsForStd, help("events-for", use))
	Duration(flags, &s.RunsFor, "runs-for", 0, help("runs-for", use))
	Duration(flags, &s.DeliveriesFor, "deliveries-for", DeliveriesForStd, help("deliveries-for", use))
	flags.IntVar(&s.DeliveriesMax, "deliveries-max", DeliveriesMaxStd, help("deliveries-max", use))
}

// Finish reads the variables and checks everything. Its errors say what to do; they show no key.
func (s *Server) Finish(environ []string) error {
	env := lookup(environ)
	s.Warnings = append(s.Warnings, Unknown(environ)...)
	checks := []func(func(string) string) error{s.finishAddr, s.finishData, s.finishApps, s.finishLimits, s.finishURL, s.finishKeys, s.finishHooks, s.finishDeliveries}
	for _, check := range checks {
		if err := check(env); err != nil {
			return err
		}
	}
	s.Warnings = append(s.Warnings, s.strayHooks(environ)...)
	return nil
}

func (s *Server) finishAddr(func(string) string) error {
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return fmt.Errorf("--addr %q is not host:port: write it like %s", s.Addr, AddrStd)
	}
	if !isPort(port) {
		return fmt.Errorf("--addr %q has no port of 0 to 65535: write it like %s; 0 takes one that is free", s.Addr, AddrStd)
	}
	if s.Dev && !loopback(host) {
		return fmt.Errorf("nelkap dev has no keys, so it listens only on this machine: --addr %s would open it to others. Use --addr 127.0.0.1:PORT, or nelkap serve, which has keys", s.Addr)
	}
	return nil
}

// isPort tells whether a port can be listened at. A name, such as http, is the machine's to know.
func isPort(port string) bool {
	number, err := strconv.ParseInt(port, 10, 32)
	return (err == nil && number >= 0 && number <= math.MaxUint16) || (errors.Is(err, strconv.ErrSyntax) && port != "")
}

func (s *Server) finishData(env func(string) string) error {
	if s.store == "" && !s.Dev {
		s.store = env(VariableStore)
	}
	directory, database, err := storeOf(s.store)
	if err != nil {
		return err
	}
	if s.store != "" {
		s.Data, s.Database = directory, database
	}
	if s.Memory {
		if s.store != "" {
			return errors.New("--memory contradicts --store or NELKAP_STORE: give one of them")
		}
		s.Data = ""
		if !s.Dev {
			s.Warnings = append(s.Warnings, "--memory: everything is lost when this server exits")
		}
		return nil
	}
	if s.Database != "" {
		return nil
	}
	if s.Data == "" {
		return errors.New("say where to keep the data: --store ./data, or --store postgres://… for many servers")
	}
	if err := CheckDirectory("data", s.Data); err != nil {
		return err
	}
	s.Data = filepath.Clean(s.Data)
	return nil
}

func (s *Server) finishApps(func(string) string) error {
	for i, text := range s.Apps {
		u, err := url.Parse(text)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return fmt.Errorf("--app takes the URL at which an app answers, such as http://127.0.0.1:3000/api/nelkap; app %d is not one", i+1)
		}
	}
	return nil
}

func (s *Server) finishLimits(func(string) string) error {
	if s.Lease < LeaseMin {
		return fmt.Errorf("--lease %v is too short: the least is %v", s.Lease, LeaseMin)
	}
	if s.EventsFor < time.Hour {
		return fmt.Errorf("--events-for %v is too short: the least is 1h", s.EventsFor)
	}
	if s.RunsFor != 0 && s.RunsFor < runsForMin {
		return fmt.Errorf("--runs-for %v is not possible: it is at least %v, or 0, which keeps runs for ever", s.RunsFor, runsForMin)
	}
	if s.Grace <= 0 || s.Grace > graceMax {
		return fmt.Errorf("--grace %v is not possible: it is more than 0 and at most %v", s.Grace, graceMax)
	}
	if s.Drain < 0 || s.Drain > drainMax {
		return fmt.Errorf("--drain %v is not possible: it is 0 to %v", s.Drain, drainMax)
	}
	if s.Stall < stallMin {
		return fmt.Errorf("--stall %v is too short: the least is %v", s.Stall, stallMin)
	}
	if s.Concurrency < 1 || s.Concurrency > concurrencyMax {
		return fmt.Errorf("--concurrency takes 1 to %d calls, not %d", concurrencyMax, s.Concurrency)
	}
	return nil
}

// finishURL takes the public address. One of another machine is of no use to dev, whose unsigned calls apps accept only from
// here; it is most likely there for the commands.
func (s *Server) finishURL(env func(string) string) error {
	text := env(VariableURL)
	if text == "" {
		if host, _, _ := net.SplitHostPort(s.Addr); !loopback(host) {
			s.Warnings = append(s.Warnings, "NELKAP_URL is not set: apps on other machines can't find this server to save at; set it to this server's public address")
		}
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return errors.New("NELKAP_URL is not a URL: write it like https://nelkap.example.com")
	}
	if s.Dev && !loopback(u.Hostname()) {
		s.Warnings = append(s.Warnings, "NELKAP_URL names another machine, and is not used: nelkap dev is only for this one")
		return nil
	}
	s.URL = strings.TrimRight(text, "/")
	return nil
}

func (s *Server) finishKeys(env func(string) string) error {
	signing, apiKey := env(VariableSigningKey), env(VariableAPIKey)
	if !s.Dev && signing == "" {
		return errors.New("nelkap serve signs its calls to apps, and needs NELKAP_SIGNING_KEY: make one with `openssl rand -hex 32`, and give it to the apps too. (For your own machine, use nelkap dev.)")
	}
	if !s.Dev && apiKey == "" {
		return errors.New("nelkap serve answers only to API keys, and needs NELKAP_API_KEY: make one with `openssl rand -hex 32`, and give it to the commands and apps that ask this server. (For your own machine, use nelkap dev.)")
	}
	for _, variable := range []string{VariableSigningKey, VariableSigningKeyOlder} { // apart: an error names the one to mend
		keys, err := signature.ParseKeys(env(variable))
		if err != nil {
			return fmt.Errorf("%s: %w", variable, err)
		}
		s.SigningKeys = append(s.SigningKeys, keys...)
	}
	if s.Dev {
		return nil
	}
	if err := CheckAPIKey(apiKey); err != nil {
		return err
	}
	var err error
	if s.Keys, err = auth.New(apiKey); err != nil {
		return fmt.Errorf("NELKAP_API_KEY: %w", err)
	}
	return nil
}

// CheckAPIKey refuses a key that no HTTP header carries as it is.
func CheckAPIKey(key string) error {
	for _, r := range key {
		if r <= ' ' || r > '~' {
			return errors.New("NELKAP_API_KEY has a space, a line end or a character that is not ASCII: remove it")
		}
	}
	return nil
}

// loopback tells whether a host is this machine by its name alone.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// lookup reads variables out of a process's environment.
func lookup(environ []string) func(string) string {
	values := map[string]string{}
	for _, line := range environ {
		if name, value, ok := strings.Cut(line, "="); ok {
			values[name] = value
		}
	}
	return func(name string) string { return values[name] }
}
