package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"
)

// commands are the lines of a page's blocks of a language.
func commands(t *testing.T, language string) []string {
	t.Helper()
	var lines []string
	for _, block := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(read(t, "../docs/deploying.md"), -1) {
		lines = append(lines, strings.Split(strings.TrimSpace(block[1]), "\n")...)
	}
	return lines
}

// What docs/deploying.md has people type: charts render with its values, files are there, keys are made and not copied. What it says of
// nelkap itself is looked at in cmd/nelkap.
func TestTheCommandsOfThePage(t *testing.T) {
	known := regexp.MustCompile(`^(export |echo "NELKAP_|install |cp |chmod |systemctl |docker |helm install |kubectl create secret |make |nelkap |sqlite3 |NELKAP_STORE=\S+ nelkap )`)
	charts := 0
	for _, line := range commands(t, "sh") {
		if !known.MatchString(line) {
			t.Errorf("no test knows what this does: %s", line)
		}
		for _, file := range regexp.MustCompile(`(^|\s)(deploy/\S+)`).FindAllStringSubmatch(line, -1) {
			if _, err := os.Stat(filepath.Join("..", file[2])); err != nil && !strings.HasSuffix(file[2], "/.env") {
				t.Errorf("%v: %s", err, line)
			}
		}
		if strings.HasPrefix(line, "helm install ") {
			charts++
			v := values{}
			for _, set := range regexp.MustCompile(`--set (\S+)`).FindAllStringSubmatch(line, -1) {
				if err := strvals.ParseInto(set[1], v); err != nil {
					t.Fatalf("%v: %s", err, line)
				}
			}
			if objects, err := render(t, v); err != nil || len(objects) < 3 {
				t.Errorf("%v: %s", err, line)
			}
		}
		if _, args, ok := strings.Cut(line, "docker run "); ok {
			if !strings.Contains(args, "-v nelkap:/data ") || !strings.Contains(args, ":"+port(t)+" nelkap") {
				t.Errorf("the container has no volume or no port: %s", line)
			}
		}
	}
	if charts < 2 {
		t.Errorf("only %d charts are installed", charts)
	}
	var patroni map[string]any
	if err := yaml.UnmarshalStrict([]byte(strings.Join(commands(t, "yaml"), "\n")), &patroni); err != nil || patroni["synchronous_mode"] != true || patroni["synchronous_mode_strict"] != true {
		t.Errorf("%v, %v", patroni, err)
	}
}
