package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"time"
)

// binaries are the programs that the demo starts.
type binaries struct {
	nelkap  string
	standIn string
	shopGo  string
	node    string
	shopTS  string // the folder of the TypeScript shop
}

// build makes what is not there yet.
func build(ctx context.Context, root, folder string) (*binaries, error) {
	examples := filepath.Join(root, "examples", "order-fulfillment")
	b := &binaries{
		standIn: filepath.Join(folder, "stripe-stand-in"),
		shopGo:  filepath.Join(folder, "shop-go"),
		shopTS:  filepath.Join(examples, "typescript"),
	}
	var err error
	if b.node, err = exec.LookPath("node"); err != nil {
		return nil, errors.New("the TypeScript shop needs Node 20.19 or newer: install it from https://nodejs.org")
	}
	for _, tool := range []string{"go", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("the demo needs the command %s, which was not found", tool)
		}
	}
	fmt.Println("Building the shops. The first time takes a minute or two: packages are fetched and SQLite is compiled.")
	steps := []struct {
		needed  bool
		folder  string
		command []string
	}{
		{true, filepath.Join(examples, "stripe-stand-in"), []string{"go", "build", "-buildvcs=false", "-o", b.standIn, "./cmd/stripe-stand-in"}},
		{true, filepath.Join(examples, "go"), []string{"go", "build", "-buildvcs=false", "-o", b.shopGo, "."}},
		{!installed(filepath.Join(root, "sdk", "typescript")), filepath.Join(root, "sdk", "typescript"), install},
		{!fresh(filepath.Join(root, "sdk", "typescript")), filepath.Join(root, "sdk", "typescript"), []string{"npm", "run", "--silent", "build"}},
		{!installed(b.shopTS), b.shopTS, install},
		{true, b.shopTS, []string{"npm", "run", "--silent", "build"}},
	}
	for _, step := range steps {
		if step.needed {
			if err := run(ctx, step.folder, step.command); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

var install = []string{"npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"}

// run runs a command and shows what it said only where it failed.
func run(ctx context.Context, folder string, command []string) error {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%v in %s: %w\n%s", command, folder, err, said.Bytes())
	}
	return nil
}

// installed tells whether npm has installed what the lock file names: npm writes this file last.
func installed(folder string) bool {
	return !newest(folder, "package-lock.json").After(newest(folder, "node_modules/.package-lock.json"))
}

// fresh tells whether the SDK was built after its last change.
func fresh(folder string) bool {
	return newest(folder, "dist/index.js").After(newest(folder, "src"))
}

// newest is when a file, or the last changed file of a folder, was changed; zero where there is none.
func newest(folder, name string) (last time.Time) {
	// A folder that can't be read counts as old: the build that follows says why.
	_ = filepath.WalkDir(filepath.Join(folder, filepath.FromSlash(name)), func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := entry.Info(); err == nil && !entry.IsDir() && info.ModTime().After(last) {
			last = info.ModTime()
		}
		return nil
	})
	return last
}
