// Command openapi writes the committed copy of the API's description to the file that it is given. `go generate` runs it; a test in
// internal/httpapi compares the two.
package main

import (
	"fmt"
	"os"

	"github.com/nelkap/nelkap/internal/httpapi"
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write() error {
	text, err := httpapi.OpenAPIFile()
	if err != nil {
		return err
	}
	return os.WriteFile(os.Args[1], text, 0o644) //nolint:gosec // it is public
}
