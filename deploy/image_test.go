package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// stages reads the Dockerfile with its own parser, which has nothing to say against it.
func stages(t *testing.T) []instructions.Stage {
	t.Helper()
	parsed, err := parser.Parse(strings.NewReader(read(t, "Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	for _, warning := range parsed.Warnings {
		t.Errorf("%s", warning.Short)
	}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, message string, _ []parser.Range) { t.Errorf("%s: %s", rule, message) }})
	list, _, err := instructions.Parse(parsed.AST, lint)
	if err != nil || len(list) != 2 {
		t.Fatalf("%d stages, %v", len(list), err)
	}
	return list
}

// only gives a stage's one command of a type.
func only[T instructions.Command](t *testing.T, stage instructions.Stage) T {
	t.Helper()
	var found []T
	for _, command := range stage.Commands {
		if c, ok := command.(T); ok {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		t.Fatalf("stage %q has %d of %T", stage.BaseName, len(found), *new(T))
	}
	return found[0]
}

// buildLine is the command that builds the binary, as the Dockerfile has it.
func buildLine(t *testing.T) string {
	t.Helper()
	for _, command := range stages(t)[0].Commands {
		if run, ok := command.(*instructions.RunCommand); ok && strings.Contains(run.CmdLine[0], "go build") {
			return run.CmdLine[0]
		}
	}
	t.Fatal("nothing is built")
	return ""
}

func TestTheImageIsBuiltAsMakeBuildDoes(t *testing.T) {
	makefile := read(t, "../Makefile")
	goVersion := regexp.MustCompile(`GO_SERVER := go(\S+)`).FindStringSubmatch(makefile)
	if base := stages(t)[0].BaseName; goVersion == nil || base != "golang:"+goVersion[1] {
		t.Errorf("the base is %s, and the server's Go %q", base, goVersion)
	}
	made := regexp.MustCompile(`@(CGO_ENABLED=0 go build .*)`).FindStringSubmatch(makefile)
	if made == nil {
		t.Fatal("the Makefile builds otherwise now")
	}
	want := strings.NewReplacer("'", `"`, "$(VERSION)", "$VERSION", "bin/nelkap", "/out/nelkap").Replace(made[1])
	if got := strings.Replace(buildLine(t), "GOOS=$TARGETOS GOARCH=$TARGETARCH ", "", 1); got != want {
		t.Errorf("the image is built by\n%s\nand make build does\n%s", got, want)
	}
}

func TestTheImageRunsAServerWithoutRoot(t *testing.T) {
	final := stages(t)[1]
	if final.BaseName != "scratch" {
		t.Errorf("the base is %s", final.BaseName)
	}
	if user := only[*instructions.UserCommand](t, final).User; !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(user) {
		t.Errorf("the user is %q: a cluster can tell that it is not root by its number alone", user)
	}
	if ports := only[*instructions.ExposeCommand](t, final).Ports; len(ports) != 1 || ports[0] != port(t) {
		t.Errorf("it exposes %v", ports)
	}
	if entry := only[*instructions.EntrypointCommand](t, final); entry.PrependShell || !slices.Equal(entry.CmdLine, []string{"/nelkap"}) {
		t.Errorf("the entry point is %v", entry.CmdLine)
	}
	cmd := only[*instructions.CmdCommand](t, final)
	s := served(t, cmd.CmdLine, keys...)
	everywhere(t, s)
	if volumes := only[*instructions.VolumeCommand](t, final).Volumes; !slices.Equal(volumes, []string{s.Data}) {
		t.Errorf("the volumes are %v, and the data is in %s", volumes, s.Data)
	}
	if other := served(t, cmd.CmdLine, append(slices.Clone(keys), "NELKAP_STORE=postgres://nelkap@db/nelkap")...); other.Database == "" {
		t.Error("NELKAP_STORE does not take the directory's place")
	}
	health := only[*instructions.HealthCheckCommand](t, final).Health
	if !slices.Equal(health.Test, []string{"CMD", "/nelkap", "healthcheck"}) || health.Timeout < 3*time.Second {
		t.Errorf("its health is looked at by %v, within %v", health.Test, health.Timeout)
	}
}

// What the Dockerfile copies is enough to build the binary, and the binary runs alone in the image's files, as the image's user.
func TestTheImagesFilesAreEnough(t *testing.T) {
	t.Parallel()
	root, source := t.TempDir(), t.TempDir()
	for _, dir := range []string{root, source} {
		if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // the image's user comes through
			t.Fatal(err)
		}
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	ignored := read(t, "Dockerfile.dockerignore")
	for _, command := range stages(t)[0].Commands {
		if c, ok := command.(*instructions.CopyCommand); ok {
			for _, from := range c.SourcePaths {
				if !strings.Contains(ignored, "\n!"+from+"\n") {
					t.Errorf("%s is copied, and Dockerfile.dockerignore keeps it away", from)
				}
				copyTree(t, filepath.Join("..", from), filepath.Join(source, from))
			}
		}
	}
	build := exec.CommandContext(t.Context(), "sh", "-c", strings.NewReplacer("/out/", root+"/", "GOOS=$TARGETOS GOARCH=$TARGETARCH", "").Replace(buildLine(t)))
	build.Dir, build.Env = source, append(os.Environ(), "VERSION=image", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Mkdir(filepath.Join(root, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	final := stages(t)[1]
	var uid, gid int
	if _, err := fmt.Sscanf(only[*instructions.UserCommand](t, final).User, "%d:%d", &uid, &gid); err != nil {
		t.Fatal(err)
	}
	inside := func(ctx context.Context, environ []string, args ...string) *exec.Cmd {
		if os.Getuid() != 0 { // only root may change the root: the binary is alone with its variables at least
			command := exec.CommandContext(ctx, filepath.Join(root, "nelkap"), args...)
			command.Env, command.Dir = environ, root
			return command
		}
		command := exec.CommandContext(ctx, "/nelkap", args...)
		command.Env, command.Dir = environ, "/"
		command.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		return command
	}
	data := "data"
	if os.Getuid() == 0 {
		data = "/data"
		if err := os.Chown(filepath.Join(root, "data"), uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var said bytes.Buffer
	server := inside(ctx, keys, "serve", "--addr", "127.0.0.1:"+free(t), "--store", data)
	server.Stderr = &said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	url := "http://" + server.Args[3]
	until(t, &said, func() bool { return inside(ctx, nil, "healthcheck", "--url", url).Run() == nil })
	if response, err := http.Get(url + "/livez"); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("%v, %v", response, err)
	}
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("%v\n%s", err, said.String())
	}
	if out, err := inside(ctx, nil, "healthcheck", "--url", url).CombinedOutput(); err == nil {
		t.Errorf("a server that is gone is well: %s", out)
	}
	if _, err := os.Stat(filepath.Join(root, "data", "nelkap.db")); err != nil {
		t.Error(err)
	}
}

// copyTree copies the files that git has: what is built or installed beside them is no part of the source.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rest, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rest)
		return errors.Join(os.MkdirAll(path.Dir(target), 0o755), os.WriteFile(target, text, 0o600))
	})
	if err != nil {
		t.Fatal(err)
	}
}
