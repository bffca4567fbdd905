package id_test

import (
	"strings"
	"testing"
	"unicode/utf8"
	"uuid"

	"github.com/oklog/ulid/v2"

	"github.com/nelkap/nelkap/internal/id"
)

// FuzzCheck: what passes for an id is the one way to write some UUID, so that no two texts are one run.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{
		"run_01jzqf6b4me5k8pfxk9g9y8z2c", "evt_01jzqf6b4me5k8pfxk9g9y8z2c", "run_", "run_01JZQF6B4ME5K8PFXK9G9Y8Z2C", "run_81jzqf6b4me5k8pfxk9g9y8z2c",
		"run_01jzqf6b4me5k8pfxk9g9y8z2", "run_01jzqf6b4me5k8pfxk9g9y8z2i", "run_\xff", "run_run_01jzqf6b4me5k8pfxk9g9y8z2c", "run_01jzqf6b4me5k8pfxk9g9y8zſc",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if err := id.Check(id.Run, text); err != nil {
			if len(err.Error()) > 400 || !utf8.ValidString(err.Error()) {
				t.Errorf("%q: the error is %q", text, err)
			}
			return
		}
		u, err := ulid.ParseStrict(strings.ToUpper(strings.TrimPrefix(text, "run_")))
		if err != nil {
			t.Fatalf("%q is no id: %v", text, err)
		}
		if canonical := id.FromUUID(id.Run, uuid.UUID(u)); canonical != text {
			t.Errorf("%q is another way to write %q", text, canonical)
		}
		if id.Check(id.Event, text) == nil {
			t.Errorf("%q is an event's id too", text)
		}
	})
}
