package main

import (
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/nelkap/nelkap/internal/config"
)

// What the page on deploying has people type is there: the command, its flags, and the settings of serve with the variables set before.
func TestTheCommandsOfTheDeployingPageAreTaken(t *testing.T) {
	page, err := os.ReadFile("../../docs/deploying.md")
	if err != nil {
		t.Fatal(err)
	}
	made := strings.NewReplacer("$(openssl rand -hex 32)", strings.Repeat("0123456789abcdef", 4), "$NELKAP_SIGNING_KEY", signingKey)
	found, environ := 0, append([]string{}, production...)
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		for line := range strings.Lines(block[1]) {
			line = made.Replace(strings.TrimSpace(line))
			if assignment, ok := strings.CutPrefix(line, "export "); ok {
				environ = append(environ, assignment)
				continue
			}
			if name, rest, ok := strings.Cut(line, " "); ok && strings.Contains(name, "=") {
				line = rest
			}
			text, ok := strings.CutPrefix(line, "nelkap ")
			if !ok {
				continue
			}
			found++
			a := &app{out: io.Discard, errOut: io.Discard}
			command, rest, err := a.root().Find(strings.Fields(text))
			if err == nil {
				err = command.ParseFlags(rest)
			}
			if err == nil {
				err = command.ValidateArgs(command.Flags().Args())
			}
			if err != nil || !command.Runnable() {
				t.Errorf("%s: %v", line, err)
			}
			if command.Name() == "serve" {
				var settings config.Server
				flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
				settings.Bind(flags, config.Serve)
				if err := errors.Join(flags.Parse(strings.Fields(text)[1:]), settings.Finish(environ)); err != nil || len(settings.Warnings) > 0 {
					t.Errorf("%s: %v, %q", line, err, settings.Warnings)
				}
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d commands were found", found)
	}
}
