package e2e

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Tests here mostly wait: for leases, pauses and processes. So five run at once on two cores, and no more.
const parallel = "5"

// built is where the parts of the system are, for this run of the tests: copies, so that what is built meanwhile changes nothing.
var built struct {
	server     string // the server's binary
	goApp      string
	typescript string // the folder with app.mjs, beside which node finds the package
}

func TestMain(m *testing.M) {
	flag.Parse()
	if !isSet("test.parallel") {
		if err := flag.Set("test.parallel", parallel); err != nil {
			panic(err)
		}
	}
	dir, err := os.MkdirTemp("", "nelkap-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := 1
	if err := prepare(dir); err != nil {
		fmt.Fprintln(os.Stderr, "The end-to-end tests can't begin:", err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

func isSet(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// prepare brings the built server, the built TypeScript SDK and both apps together in a folder.
func prepare(dir string) error {
	built.server, built.goApp, built.typescript = filepath.Join(dir, "nelkap"), filepath.Join(dir, "app"), filepath.Join(dir, "typescript")
	if err := copyFile("../bin/nelkap", built.server, 0o755); err != nil {
		return missing(err, "the server is not built: run make build in the repository's folder")
	}
	sdk := filepath.Join(built.typescript, "node_modules", "nelkap")
	if err := os.MkdirAll(sdk, 0o755); err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(sdk, "dist"), os.DirFS("../sdk/typescript/dist")); err != nil {
		return missing(err, "the TypeScript SDK is not built: run npm ci && npm run build in sdk/typescript")
	}
	if err := copyFile("../sdk/typescript/package.json", filepath.Join(sdk, "package.json"), 0o644); err != nil {
		return err
	}
	if err := copyFile("apps/typescript/app.mjs", filepath.Join(built.typescript, "app.mjs"), 0o644); err != nil {
		return err
	}
	if _, err := exec.LookPath("node"); err != nil {
		return errors.New("node is not found: install Node 20.19 or newer")
	}
	build := exec.Command("go", "build", "-o", built.goApp, "./apps/go")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building apps/go: %w\n%s", err, out)
	}
	return nil
}

func missing(err error, what string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New(what)
	}
	return err
}

func copyFile(from, to string, mode os.FileMode) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, mode)
}
