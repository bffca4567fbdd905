package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// runner runs the tests of packages with faults laid over the code.
type runner struct {
	root  string // absolute
	work  string // a folder for faulty texts
	limit time.Duration
}

func newRunner(root string, limit time.Duration) (*runner, error) {
	absolute, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "mutants")
	return &runner{root: absolute, work: work, limit: limit}, err
}

func (r *runner) close() { os.RemoveAll(r.work) } //nolint:errcheck // a folder that stays does no harm

// checkHealth runs every package that is asked without any fault: a suite that fails anyway would see each of them.
func (r *runner) checkHealth(ctx context.Context, all []mutant, only *regexp.Regexp) error {
	var packages []string
	for _, m := range all {
		if only.MatchString(m.name) {
			packages = append(packages, m.tests...)
		}
	}
	slices.Sort(packages)
	for _, folder := range slices.Compact(packages) {
		failed, err := r.test(ctx, folder, "")
		if err == nil && failed != "" {
			err = fmt.Errorf("%s fails without any fault in the code: mend it first", failed)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// try gives the first test that sees a fault. The error says why there is none.
func (r *runner) try(ctx context.Context, m mutant) (string, error) {
	texts, err := m.apply(r.root)
	if err != nil {
		return "", err
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for file, text := range texts {
		faulty := filepath.Join(r.work, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(faulty, []byte(text), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(r.root, file)] = faulty
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	file := filepath.Join(r.work, "overlay.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		return "", err
	}
	for _, folder := range m.tests {
		failed, err := r.test(ctx, folder, file)
		if err != nil || failed != "" {
			return failed, err
		}
	}
	return "", errors.New("survived: no test of " + strings.Join(m.tests, ", ") + " sees it")
}

// running finds, in what a test run says that was out of time, the test that ran.
var running = regexp.MustCompile(`panic: test timed out after [^\n]*\n\s*running tests:\n\s*(\S+)`)

// event is a line of go test -json.
type event struct{ Action, Test, Output string }

// test runs a package's tests and gives the first that fails; empty if all pass. Without an overlay a result may be remembered.
func (r *runner) test(ctx context.Context, folder, overlay string) (string, error) {
	arguments := []string{"test", "-json", "-vet=off", "-failfast", "-timeout", r.limit.String()}
	if overlay != "" {
		arguments = append(arguments, "-overlay", overlay)
	}
	command := exec.CommandContext(ctx, "go", append(arguments, ".")...)
	command.Dir = filepath.Join(r.root, folder)
	text, err := command.CombinedOutput()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err == nil {
		return "", nil
	}
	var output strings.Builder
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			output.Write(append(lines.Bytes(), '\n'))
			continue
		}
		output.WriteString(e.Output)
		if e.Action == "fail" && e.Test != "" {
			return "`" + e.Test + "` (" + folder + ")", nil
		}
	}
	if running := running.FindStringSubmatch(output.String()); running != nil {
		return "`" + running[1] + "`, which hangs (" + folder + ")", nil
	}
	if strings.Contains(output.String(), "panic: ") { // a goroutine's, which is of no test
		return "a panic (" + folder + ")", nil
	}
	return "", fmt.Errorf("the tests of %s don't run: %s", folder, strings.TrimSpace(output.String()))
}
