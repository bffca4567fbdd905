// Package main writes docs/internals/states.md from the transition table. Run it by `go generate ./...`.
package main

import (
	"log"
	"os"

	"github.com/nelkap/nelkap/internal/workflow"
)

func main() {
	if err := os.WriteFile("../../docs/internals/states.md", []byte(workflow.Diagram()), 0o600); err != nil {
		log.Fatal(err)
	}
}
