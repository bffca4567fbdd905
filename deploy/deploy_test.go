package deploy

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/nelkap/nelkap/internal/config"
)

// What a server needs beside its flags, as people would make it.
var keys = []string{"NELKAP_SIGNING_KEY=0123456789abcdef0123456789abcdef", "NELKAP_API_KEY=fedcba9876543210fedcba9876543210", "NELKAP_URL=https://nelkap.example.com"}

// stopTime is what a graceful stop takes at most once the drain is over (stopWithin in cmd/nelkap).
const stopTime = 5 * time.Second

// served checks that a server would start with these arguments and variables, without a word of warning, and gives its settings.
func served(t *testing.T, args []string, environ ...string) *config.Server {
	t.Helper()
	if len(args) == 0 || args[0] != "serve" {
		t.Fatalf("the command is %q, not serve", args)
	}
	s := &config.Server{}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	s.Bind(flags, config.Serve)
	err := flags.Parse(args[1:])
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("arguments %q", flags.Args())
	}
	if err == nil {
		err = s.Finish(environ)
	}
	if err != nil || len(s.Warnings) > 0 {
		t.Fatalf("serve %q: %v, %q", args[1:], err, s.Warnings)
	}
	return s
}

// port is the one that a server listens at, unless it is told another.
func port(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(config.AddrStd)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// everywhere checks that a server in a container listens at its usual port, and not on loopback alone.
func everywhere(t *testing.T, s *config.Server) {
	t.Helper()
	host, at, err := net.SplitHostPort(s.Addr)
	if ip := net.ParseIP(host); err != nil || at != port(t) || host != "" && (ip == nil || !ip.IsUnspecified()) {
		t.Errorf("it listens at %s", s.Addr)
	}
}

// stopsWithin checks that whoever stops a server waits until it has drained and stopped.
func stopsWithin(t *testing.T, s *config.Server, allowed time.Duration) {
	t.Helper()
	if allowed < s.Drain+stopTime {
		t.Errorf("it is killed after %v, and drains for %v and stops within %v", allowed, s.Drain, stopTime)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// files are all that stand here, but for the tests.
func files(t *testing.T) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(".", func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) != ".go" && !strings.HasPrefix(path, "go.") {
			list = append(list, path)
		}
		return err
	})
	if err != nil || len(list) < 10 {
		t.Fatalf("%d files, %v", len(list), err)
	}
	return list
}

func TestTheStopTakesWhatTheServerTakes(t *testing.T) {
	if !strings.Contains(read(t, "../cmd/nelkap/server.go"), fmt.Sprintf("stopWithin = %d * time.Second", int(stopTime.Seconds()))) {
		t.Error("a graceful stop takes another time now")
	}
}

// A variable that no server knows would be set in vain, whatever file names it.
func TestEveryVariableIsInTheTable(t *testing.T) {
	found := 0
	for _, path := range append(files(t), "../docs/deploying.md") {
		for _, name := range regexp.MustCompile(`\bNELKAP_[A-Z_]*[A-Z]\b`).FindAllString(read(t, path), -1) {
			found++
			hook := strings.HasPrefix(name, "NELKAP_HOOK")
			if !hook && !slices.ContainsFunc(config.Table, func(s config.Setting) bool { return s.Variable == name }) {
				t.Errorf("%s names %s, which no server knows", path, name)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d variables were found", found)
	}
}

// No key that works stands in a file: whoever installs a server makes their own.
func TestNoFileHasAKey(t *testing.T) {
	assigned := regexp.MustCompile(`(KEY|KEY_PREVIOUS|PASSWORD|SECRET)["']?\s*[:=][ \t]*["']?([^\s"']+)`)
	for _, path := range files(t) {
		for _, found := range assigned.FindAllStringSubmatch(read(t, path), -1) {
			if !strings.HasPrefix(found[2], "${") && !strings.HasPrefix(found[2], "{{") {
				t.Errorf("%s: %s", path, found[0])
			}
		}
	}
}
