package typeid

import (
	"encoding/hex"
	"regexp"
	"strings"
	"testing"
)

// The valid vectors of the TypeID specification.
func TestEncodeMatchesThePublishedVectors(t *testing.T) {
	for uuid, want := range map[string]string{
		"00000000-0000-0000-0000-000000000000": "00000000000000000000000000",
		"00000000-0000-0000-0000-000000000001": "00000000000000000000000001",
		"00000000-0000-0000-0000-00000000000a": "0000000000000000000000000a",
		"00000000-0000-0000-0000-000000000010": "0000000000000000000000000g",
		"00000000-0000-0000-0000-000000000020": "00000000000000000000000010",
		"ffffffff-ffff-ffff-ffff-ffffffffffff": "7zzzzzzzzzzzzzzzzzzzzzzzzz",
		"0110c853-1d09-52d8-d73e-1194e95b5f19": "0123456789abcdefghjkmnpqrs",
		"01890a5d-ac96-774b-bcce-b302099a8057": "01h455vb4pex5vsknk084sn02q",
	} {
		var id [16]byte
		if _, err := hex.Decode(id[:], []byte(strings.ReplaceAll(uuid, "-", ""))); err != nil {
			t.Fatal(err)
		}
		if got := encode(id); got != want {
			t.Errorf("encode(%s) = %s, want %s", uuid, got, want)
		}
	}
}

func TestNewDrawsDistinctVersion7IDs(t *testing.T) {
	form := regexp.MustCompile(`^run_0[0-7][0-9a-hjkmnp-tv-z]{24}$`)
	seen := map[string]bool{}
	for range 1000 {
		id := New("run")
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("drew %q", id)
		}
		seen[id] = true
	}
}
