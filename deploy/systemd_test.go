package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// unit reads a unit file's settings, each with its values.
func unit(t *testing.T) map[string][]string {
	t.Helper()
	settings, section := map[string][]string{}, ""
	for line := range strings.Lines(read(t, "systemd/nelkap.service")) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		case !ok || section == "":
			t.Fatalf("%q is no setting", line)
		default:
			settings[section+"."+name] = append(settings[section+"."+name], value)
		}
	}
	return settings
}

func TestTheUnitRunsAServer(t *testing.T) {
	u := unit(t)
	line := strings.Fields(u["Service.ExecStart"][0])
	s := served(t, line[1:], keys...)
	if s.Addr != "127.0.0.1:"+port(t) || s.Data != "/var/lib/"+u["Service.StateDirectory"][0] {
		t.Errorf("it listens at %s, and its data is in %s", s.Addr, s.Data)
	}
	if other := served(t, line[1:], append(slices.Clone(keys), "NELKAP_STORE=postgres://nelkap@db/nelkap")...); other.Database == "" {
		t.Error("NELKAP_STORE does not take the directory's place")
	}
	allowed, err := time.ParseDuration(u["Service.TimeoutStopSec"][0])
	if err != nil {
		t.Fatal(err)
	}
	stopsWithin(t, s, allowed)
	for name, want := range map[string]string{
		"Service.Restart": "always", "Service.DynamicUser": "yes", "Service.StateDirectoryMode": "0700", "Service.UMask": "0077", "Service.NoNewPrivileges": "yes",
		"Service.ProtectSystem": "strict", "Service.CapabilityBoundingSet": "", "Service.EnvironmentFile": "/etc/nelkap/nelkap.env", "Unit.StartLimitIntervalSec": "0",
	} {
		if got := u[name]; len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if !regexp.MustCompile(`nelkap\.env .*mode 0600`).MatchString(read(t, "systemd/nelkap.service")) {
		t.Error("it does not say which mode the file of the keys has")
	}
}

// systemd itself finds nothing to say, and little that the unit leaves open. Where there is no systemd, what it runs is checked above.
func TestSystemdTakesTheUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Logf("there is no systemd-analyze here: %v", err)
		return
	}
	copied := filepath.Join(t.TempDir(), "nelkap.service")
	program, err := os.Executable() // the unit's own is not installed here
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, []byte(strings.ReplaceAll(read(t, "systemd/nelkap.service"), "/usr/local/bin/nelkap", program)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", copied).CombinedOutput(); err != nil || strings.Contains(string(out), "nelkap.service") {
		t.Errorf("%v\n%s", err, out)
	}
	const exposureMax = "20" // of 100; a unit without any hardening has 96
	if out, err := exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--threshold="+exposureMax, copied).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
