// Command page writes the settings page to the file that it is given. `go generate` runs it; a test in internal/config compares the
// two.
package main

import (
	"fmt"
	"os"

	"github.com/nelkap/nelkap/internal/config"
)

func main() {
	if err := os.WriteFile(os.Args[1], []byte(config.Markdown()), 0o644); err != nil { //nolint:gosec // it is public
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
