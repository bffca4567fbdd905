package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheReadmesFiveMinutesWork does what the README prints: its apps, and its commands, at other ports.
func TestTheReadmesFiveMinutesWork(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	snippets := snippetsOf(string(page))
	t.Run("typescript", func(t *testing.T) {
		t.Parallel()
		addr := freeAddress(t)
		dir := t.TempDir()
		write(t, filepath.Join(dir, "app.mjs"), strings.Replace(one(t, snippets["js"], "createServer"), "listen(3000, '127.0.0.1')", "listen("+portOf(addr)+", '127.0.0.1')", 1))
		if err := os.Symlink(filepath.Join(built.typescript, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
		readmeRun(t, dir, addr, one(t, snippets["sh"], "node app.mjs"), snippets["sh"])
	})
	t.Run("go", func(t *testing.T) {
		t.Parallel()
		addr := freeAddress(t)
		dir := t.TempDir()
		write(t, filepath.Join(dir, "main.go"), strings.Replace(one(t, snippets["go"], "package main"), "127.0.0.1:3001", addr, 1))
		sdk, err := filepath.Abs("../sdk/go")
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"mod init example.com/shop", "mod edit -replace github.com/nelkap/nelkap/sdk/go=" + sdk, "mod tidy", "build -o app ."} {
			command := exec.Command("go", strings.Fields(line)...)
			command.Dir = dir
			if out, err := command.CombinedOutput(); err != nil {
				t.Fatalf("go %s: %v\n%s", line, err, out)
			}
		}
		readmeRun(t, dir, addr+"/api/nelkap", "NELKAP_DEV=1 ./app", snippets["sh"])
	})
}

// readmeRun starts the app and the server with the README's commands, and a run with its last one.
func readmeRun(t *testing.T, dir, addr, start string, commands []string) {
	t.Helper()
	server := freeAddress(t)
	app := &process{t: t, name: "the README's app", path: "sh", args: []string{"-c", "cd '" + dir + "' && export " + strings.Replace(start, "NELKAP_DEV=1 ", "NELKAP_DEV=1; exec ", 1)}, health: "http://" + addr}
	app.tidy()
	app.start()
	dev := strings.NewReplacer("../nelkap/bin/nelkap", built.server, "http://127.0.0.1:3000", "http://"+addr, "\n", " ").Replace(one(t, commands, "nelkap dev"))
	serving := &process{t: t, name: "the server", path: "sh", args: []string{"-c", "exec " + dev + " --memory --addr " + server}, health: "http://" + server + "/readyz"}
	serving.tidy()
	serving.start()
	run := strings.ReplaceAll(one(t, commands, "nelkap run"), "../nelkap/bin/nelkap", built.server)
	var out []byte
	eventually(t, within, "the README's run to complete", func() bool {
		command := exec.Command("sh", "-c", run)
		command.Env = append(environment(), "NELKAP_URL=http://"+server)
		var err error
		out, err = command.CombinedOutput()
		return err == nil
	})
	if len(strings.TrimSpace(string(out))) == 0 {
		t.Error("the run printed nothing")
	}
}

var fence = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// snippetsOf gives a page's code blocks by language.
func snippetsOf(page string) map[string][]string {
	found := map[string][]string{}
	for _, block := range fence.FindAllStringSubmatch(page, -1) {
		found[block[1]] = append(found[block[1]], block[2])
	}
	return found
}

// one is the one snippet that has a text.
func one(t *testing.T, snippets []string, text string) string {
	t.Helper()
	var found []string
	for _, s := range snippets {
		if strings.Contains(s, text) {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("the README has %d snippets with %q, not one", len(found), text)
	}
	return found[0]
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
