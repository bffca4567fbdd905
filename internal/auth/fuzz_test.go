package auth_test

import (
	"strings"
	"testing"

	"github.com/nelkap/nelkap/internal/auth"
)

// FuzzAllow: only who has a whole key comes in, however the header is written.
func FuzzAllow(f *testing.F) {
	const key, other = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	keys, err := auth.New(key, other)
	if err != nil {
		f.Fatal(err)
	}
	for _, header := range []string{"", "Bearer", "Bearer ", "Bearer " + key, "bearer  " + other + " ", "Basic " + key, key, "Bearer " + key[:31], "Bearer " + key + "0", "Bearer " + key + " " + other} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		if !keys.Allow(header) {
			if header == "Bearer "+key {
				t.Error("the key is refused")
			}
			return
		}
		scheme, given, _ := strings.Cut(header, " ")
		if given = strings.TrimSpace(given); !strings.EqualFold(scheme, "Bearer") || given != key && given != other {
			t.Errorf("%q comes in", header)
		}
	})
}
