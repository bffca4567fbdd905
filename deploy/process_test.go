package deploy

import (
	"bytes"
	"net"
	"testing"
	"time"
)

// free is a port that nobody has.
func free(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// until looks until something is so, and fails with what was said if it never is.
func until(t *testing.T, said *bytes.Buffer, isSo func() bool) {
	t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	limit := time.After(30 * time.Second)
	for !isSo() {
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("it did not come to that:\n%s", said.String())
		}
	}
}
