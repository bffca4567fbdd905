package main

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nelkap/nelkap/internal/apitype"
)

// The exit codes. They are documented in the package's comment and in the help of nelkap.
const (
	exitOK        = 0
	exitFailed    = 1
	exitUsage     = 2
	exitNotFound  = 3
	exitAuth      = 4
	exitRunFailed = 5
)

// codeError is an error with an exit code of its own.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

func usageError(command *cobra.Command, message string) error {
	if !strings.HasSuffix(message, "?") {
		message += "."
	}
	return &codeError{exitUsage, fmt.Errorf("%s See %s --help", message, command.CommandPath())}
}

func exitCode(err error) int {
	var coded *codeError
	var problem *apitype.Problem
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &problem):
		return exitOfStatus(problem.Status)
	default:
		return exitFailed
	}
}

func exitOfStatus(status int) int {
	switch status {
	case http.StatusNotFound:
		return exitNotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		return exitAuth
	default:
		return exitFailed
	}
}

// args makes a command's check of its arguments, with a sentence for those that don't fit.
func args(least, most int, what string) cobra.PositionalArgs {
	return func(command *cobra.Command, given []string) error {
		if len(given) < least || (most >= 0 && len(given) > most) {
			return usageError(command, fmt.Sprintf("%s takes %s, and got %d arguments", command.CommandPath(), what, len(given)))
		}
		if slices.Contains(given, "") {
			return usageError(command, fmt.Sprintf("%s takes %s, and got an empty one", command.CommandPath(), what))
		}
		return nil
	}
}
