// Package e2e proves the whole: the built server, real apps of both SDKs as processes of their own, and faults that are injected
// for real: SIGKILL, SIGSTOP, connections that close, answers that never come. It has tests only, and needs bin/nelkap and the built
// TypeScript SDK; TestMain says what to run where one is missing.
//
// What is asserted is what users see: marks that steps leave in a file outside (package plan), and the HTTP API. Logs are shown
// when a test fails, and never asserted. Of several nodes the runs' records are read from their database too: no user sees which node holds
// a call.
//
// E2E_SERVER_KILLS and E2E_APP_KILLS ask for more kills than the short form has, E2E_SEED for the kills of an earlier run.
//
// The examples of the folder examples are played as they stand, in both languages (examples_test.go).
//
// All of it at once is chaos (anytime_test.go): the server and both apps are killed and frozen, each by itself, while clients do all that
// clients do. What they were answered is checked as one history (package history). make chaos is its long form. several_test.go does the same
// to three nodes on one Postgres, which is killed too.
//
// A cluster (cluster_test.go) is three nodes on a Postgres of the test's own, behind a balancer (balancer_test.go).
//
// Every wait is for a condition and has a limit. Time passes only where the passing itself is the fault, as in a lease that ends.
package e2e
