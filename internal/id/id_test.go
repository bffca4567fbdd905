package id_test

import (
	"slices"
	"testing"
	"uuid"

	"github.com/nelkap/nelkap/internal/id"
)

func TestThePublishedVectorsHold(t *testing.T) {
	for _, c := range []struct{ uuid, want string }{
		{"00000000-0000-0000-0000-000000000000", "prefix_00000000000000000000000000"},
		{"00000000-0000-0000-0000-000000000001", "prefix_00000000000000000000000001"},
		{"00000000-0000-0000-0000-000000000020", "prefix_00000000000000000000000010"},
		{"ffffffff-ffff-ffff-ffff-ffffffffffff", "prefix_7zzzzzzzzzzzzzzzzzzzzzzzzz"},
		{"0188bac7-4afa-78aa-bc3b-bd1eef28d881", "prefix_01h2xcejqtf2nbrexx3vqjhp41"},
	} {
		if got := id.FromUUID("prefix", uuid.MustParse(c.uuid)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.uuid, got, c.want)
		}
		if err := id.Check("prefix", c.want); err != nil {
			t.Errorf("%s: %v", c.want, err)
		}
	}
}

func TestWhatIsNoIDIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "run", "run_", "evt_01h2xcejqtf2nbrexx3vqjhp41", "run_01H2XCEJQTF2NBREXX3VQJHP41", "run_8zzzzzzzzzzzzzzzzzzzzzzzzz",
		"run_01h2xcejqtf2nbrexx3vqjhp4", "run_01h2xcejqtf2nbrexx3vqjhp411", "run_01h2xcejqtf2nbrexx3vqjhp4u", "run_01h2xcejqtf2nbrexx3vqjhp4l",
	} {
		if id.Check("run", text) == nil {
			t.Errorf("%q was taken for an id", text)
		}
	}
}

func TestIDsSortByTime(t *testing.T) {
	var ids []string
	for range 1000 {
		ids = append(ids, id.New(id.Run))
	}
	if !slices.IsSorted(ids) {
		t.Error("ids drawn one after the other are not in order")
	}
}
