package deploy

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// filled is .env, once people have filled it in.
var filled = append([]string{"POSTGRES_PASSWORD=0123456789abcdef0123456789abcdef"}, keys...)

func composed(t *testing.T, file string, environ ...string) (*types.Project, error) {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"compose/" + file}, cli.WithEnv(environ), cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	return options.LoadProject(t.Context())
}

// nodes checks a file's servers as its tool reads them, and gives how many there are.
func nodes(t *testing.T, p *types.Project) int {
	t.Helper()
	count := 0
	for name, service := range p.Services {
		if !strings.HasPrefix(name, "nelkap") {
			continue
		}
		count++
		var environ []string
		for variable, value := range service.Environment {
			if value == nil {
				t.Fatalf("%s: %s has no value", name, variable)
			}
			environ = append(environ, variable+"="+*value)
		}
		s := served(t, service.Command, environ...)
		everywhere(t, s)
		if service.StopGracePeriod == nil {
			t.Fatalf("%s: it is killed after 10 s", name)
		}
		stopsWithin(t, s, time.Duration(*service.StopGracePeriod))
		if !service.ReadOnly || !slices.Equal(service.CapDrop, []string{"ALL"}) || service.Restart == "" || service.Privileged || service.User != "" {
			t.Errorf("%s: it may do too much, or stays down", name)
		}
		if service.Build == nil || !strings.HasSuffix(service.Build.Dockerfile, "deploy/Dockerfile") {
			t.Errorf("%s: it is built from %+v", name, service.Build)
		}
		if service.HealthCheck != nil && service.HealthCheck.Disable {
			t.Errorf("%s: the image's health check is off", name)
		}
		if s.Data != "" && (len(service.Volumes) != 1 || service.Volumes[0].Target != s.Data) {
			t.Errorf("%s: the data is in %s, and the volumes are %v", name, s.Data, service.Volumes)
		}
	}
	return count
}

func TestComposeRunsASingleNode(t *testing.T) {
	p, err := composed(t, "single.yaml", filled...)
	if err != nil {
		t.Fatal(err)
	}
	if got := nodes(t, p); got != 1 {
		t.Errorf("%d nodes", got)
	}
	for _, port := range p.Services["nelkap"].Ports {
		if port.HostIP != "127.0.0.1" {
			t.Errorf("it is open to everyone, without TLS: %+v", port)
		}
	}
}

func TestComposeRunsManyNodesOnPostgres(t *testing.T) {
	p, err := composed(t, "postgres.yaml", filled...)
	if err != nil {
		t.Fatal(err)
	}
	if got := nodes(t, p); got < 2 {
		t.Errorf("%d nodes", got)
	}
	database := p.Services["postgres"]
	if database.HealthCheck == nil || len(database.Ports) > 0 || *database.Environment["POSTGRES_PASSWORD"] == "" {
		t.Errorf("the database: %+v", database)
	}
	if !regexp.MustCompile(`^postgres:(1[5-9]|[2-9]\d)$`).MatchString(database.Image) {
		t.Errorf("the database is %s", database.Image)
	}
	waits := func(service, on string) {
		t.Helper()
		if got := p.Services[service].DependsOn[on].Condition; got != types.ServiceConditionHealthy {
			t.Errorf("%s waits until %s is %q", service, on, got)
		}
	}
	balanced := read(t, "compose/haproxy.cfg")
	for name, service := range p.Services {
		if !strings.HasPrefix(name, "nelkap") {
			continue
		}
		waits(name, "postgres")
		waits("balancer", name)
		if service.Environment["PGPASSWORD"] == nil || *service.Environment["PGPASSWORD"] != *database.Environment["POSTGRES_PASSWORD"] || len(service.Ports) > 0 || len(service.Volumes) > 0 {
			t.Errorf("%s: %+v", name, service.Environment)
		}
		if !strings.Contains(balanced, "server "+name+" "+name+":"+port(t)+"\n") {
			t.Errorf("the load balancer does not know %s", name)
		}
	}
}

// There are no default keys: each that is left out, or left as the example has it, is asked for.
func TestComposeAsksForEveryKey(t *testing.T) {
	example := map[string]bool{}
	for line := range strings.Lines(read(t, "compose/.env.example")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			if example[name] = true; value != "" {
				t.Errorf("%s has a value in the example", name)
			}
		}
	}
	for file, wanted := range map[string][]string{
		"single.yaml": {"NELKAP_URL", "NELKAP_SIGNING_KEY", "NELKAP_API_KEY"}, "postgres.yaml": {"NELKAP_URL", "NELKAP_SIGNING_KEY", "NELKAP_API_KEY", "POSTGRES_PASSWORD"},
	} {
		for _, name := range wanted {
			for _, value := range []string{"", name + "="} {
				environ := slices.DeleteFunc(slices.Clone(filled), func(line string) bool { return strings.HasPrefix(line, name+"=") })
				if value != "" {
					environ = append(environ, value)
				}
				if _, err := composed(t, file, environ...); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), ".env") {
					t.Errorf("%s without %s: %v", file, name, err)
				}
			}
		}
		for _, found := range regexp.MustCompile(`\$\{(\w+)`).FindAllStringSubmatch(read(t, "compose/"+file), -1) {
			if !example[found[1]] {
				t.Errorf("%s: %s is not in .env.example", file, found[1])
			}
		}
	}
}

// A balancer that gives up sooner than the server answers would break every poll.
func TestTheLoadBalancerWaitsLongerThanTheServer(t *testing.T) {
	text := read(t, "compose/haproxy.cfg")
	for _, side := range []string{"client", "server"} {
		found := regexp.MustCompile(`(?m)^\s*timeout ` + side + ` (\S+)$`).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("no timeout of the %s", side)
		}
		const waits = 30 * time.Second // what GET /v1/runs/{id}?waitMs= may wait
		if d, err := time.ParseDuration(found[1]); err != nil || d <= waits {
			t.Errorf("the %s's timeout is %v, %v", side, d, err)
		}
	}
	if !strings.Contains(text, "option httpchk GET /readyz\n") {
		t.Error("it does not look at /readyz")
	}
	if out, err := exec.CommandContext(t.Context(), haproxy(t), "-c", "-f", "compose/haproxy.cfg").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// haproxy finds the program.
func haproxy(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"haproxy", "/usr/sbin/haproxy"} {
		if found, err := exec.LookPath(name); err == nil {
			return found
		}
	}
	t.Fatal("there is no haproxy in PATH or in /usr/sbin: install it (Debian: apt-get install haproxy; scripts/programs does it)")
	return ""
}
