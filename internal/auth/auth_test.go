package auth_test

import (
	"strings"
	"testing"

	"github.com/nelkap/nelkap/internal/auth"
)

var key = strings.Repeat("k", 32)

func TestOnlyTheKeysAreAllowed(t *testing.T) {
	keys, err := auth.New(key, strings.Repeat("o", 40))
	if err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]bool{
		"Bearer " + key: true, "bearer " + key: true, "Bearer " + strings.Repeat("o", 40): true,
		"": false, "Bearer": false, key: false, "Basic " + key: false,
		"Bearer " + key[:31]: false, "Bearer " + key + "x": false, "Bearer " + strings.Repeat("x", 32): false,
	} {
		if got := keys.Allow(header); got != want {
			t.Errorf("%q: got %v", header, got)
		}
	}
}

func TestAShortKeyIsRefused(t *testing.T) {
	if _, err := auth.New("short"); err == nil {
		t.Error("a key of 5 characters was accepted")
	}
}
