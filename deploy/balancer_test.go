package deploy

import (
	"bytes"
	"encoding/csv"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// launch starts a program that ends with the test.
func launch(t *testing.T, environ []string, program string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	said := &bytes.Buffer{}
	command := exec.CommandContext(t.Context(), program, args...)
	command.Env, command.Stdout, command.Stderr = environ, said, said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if command.ProcessState == nil {
			command.Process.Kill()
			command.Wait()
		}
	})
	return command, said
}

// While nodes are upgraded one after another, each draining for as long as in compose, no request through the load balancer fails, and none
// is even sent to a node that is gone: one that can't be repeated would be lost there.
func TestNoRequestFailsWhileNodesAreReplaced(t *testing.T) {
	t.Parallel()
	nelkap := filepath.Join(t.TempDir(), "nelkap")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", nelkap, "./cmd/nelkap")
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	project, err := composed(t, "postgres.yaml", filled...)
	if err != nil {
		t.Fatal(err)
	}
	drain := served(t, project.Services["nelkap-1"].Command, append([]string{"NELKAP_STORE=postgres://db/nelkap"}, keys...)...).Drain
	ports := []string{free(t), free(t), free(t), free(t)} // the balancer's, the nodes', and that of the balancer's counts
	serve := func(node int) (*exec.Cmd, *bytes.Buffer) {
		return launch(t, keys, nelkap, "serve", "--memory", "--addr", "127.0.0.1:"+ports[node], "--drain", drain.String())
	}
	padding := ""
	answers := func(port string) bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+port+"/v1/apps", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimPrefix(keys[1], "NELKAP_API_KEY="))
		request.Header.Set("X-Padding", padding)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	}
	config := strings.NewReplacer("bind :6355", "bind 127.0.0.1:"+ports[0], "nelkap-1:6355", "127.0.0.1:"+ports[1], "nelkap-2:6355", "127.0.0.1:"+ports[2],
		" resolvers names init-addr none", "").Replace(read(t, "compose/haproxy.cfg"))
	config += "\nlisten counts\n  bind 127.0.0.1:" + ports[3] + "\n  stats enable\n  stats uri /\n"
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	nodes := []*exec.Cmd{nil, nil, nil} // the first is the balancer
	for n := 1; n < len(nodes); n++ {
		var said *bytes.Buffer
		nodes[n], said = serve(n)
		until(t, said, func() bool { return answers(ports[n]) })
	}
	_, said := launch(t, os.Environ(), haproxy(t), "-db", "-f", file)
	until(t, said, func() bool { return answers(ports[0]) })
	if padding = strings.Repeat("x", 63<<10); !answers(ports[0]) { // beside the others 64 KiB, which a node takes
		t.Error("headers that a node takes are refused")
	}
	padding = ""

	next := time.NewTicker(5 * time.Millisecond)
	defer next.Stop()
	asked, failed := 0, 0
	ask := func() {
		<-next.C
		if asked++; !answers(ports[0]) {
			failed++
		}
	}
	for n := 1; n < len(nodes); n++ {
		if err := nodes[n].Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- nodes[n].Wait() }()
		for over := false; !over; {
			select {
			case err := <-ended:
				if over = true; err != nil {
					t.Errorf("node %d: %v", n, err)
				}
			default:
				ask()
			}
		}
		for range 200 { // alone
			ask()
		}
		var said *bytes.Buffer
		nodes[n], said = serve(n)
		until(t, said, func() bool { return answers(ports[n]) })
		for begun := time.Now(); time.Since(begun) < 5*time.Second; { // until the balancer has seen it
			ask()
		}
	}
	if failed > 0 || asked < 1000 {
		t.Errorf("%d of %d requests failed", failed, asked)
	}
	counts := counted(t, "http://127.0.0.1:"+ports[3]+"/;csv")
	for _, name := range []string{"econ", "eresp", "wretr", "wredis"} {
		if counts[name] != "0" {
			t.Errorf("of %d requests, %s (HAProxy's %s) were sent to a node that was gone", asked, counts[name], name)
		}
	}
}

// counted is what HAProxy has counted of its nodes, all together.
func counted(t *testing.T, address string) map[string]string {
	t.Helper()
	response, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	rows, err := csv.NewReader(response.Body).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if row[0] == "nodes" && row[1] == "BACKEND" {
			counts := map[string]string{}
			for i, name := range rows[0] {
				counts[name] = row[i]
			}
			return counts
		}
	}
	t.Fatalf("nothing is counted: %v", rows)
	return nil
}
