package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/apptest"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
)

// drop removes the runs that have ended, as the sweep does when they are old.
func drop(t *testing.T, s store.Store) {
	t.Helper()
	results, err := s.Commit(t.Context(), []store.Change{{store.DropRuns{Before: time.Now(), Limit: 100}}})
	if err = errors.Join(err, results[0].Err); err != nil || results[0].Dropped == 0 {
		t.Fatalf("%+v, %v", results, err)
	}
}

// A key outlives its run: who starts with it is answered which run it was, at once, and that this is gone (K3).
func TestAKeyWhoseRunIsGoneStartsNothing(t *testing.T) {
	kept := memory.New()
	s := startOn(t, kept, false)
	s.app("shop", apptest.On("echo", echo))
	first := s.start(client.StartRun{Workflow: "echo", Key: "k", Payload: []byte(`1`)})
	s.ended(first.ID)
	drop(t, kept)
	answer := s.post("/v1/runs?waitMs=30000", `{"workflow":"echo","key":"k","payload":1}`)
	again := decode[apitype.StartedRun](t, answer, http.StatusOK)
	if again.ID != first.ID || again.Created || again.PayloadDiffers || again.Status != apitype.StatusGone || again.Workflow != "echo" || again.App != "shop" || *again.Key != "k" {
		t.Errorf("%s", answer.body)
	}
	if again.EndedAt != nil || again.Payload != nil || again.Error != nil || !strings.Contains(answer.body, `"output":null`) {
		t.Errorf("what nobody knows any more is told: %s", answer.body)
	}
	differs := s.start(client.StartRun{Workflow: "echo", Key: "k", Payload: []byte(`2`)})
	if differs.ID != first.ID || differs.Created || !differs.PayloadDiffers || differs.Status != apitype.StatusGone {
		t.Errorf("another payload: %+v", differs)
	}
	list, err := s.Runs(t.Context(), client.RunQuery{})
	if err != nil || len(list.Data) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// Whatever is asked of a run that is gone, the answer says that it may have been kept for a time; what names it goes on.
func TestARunThatIsGoneSaysWhy(t *testing.T) {
	kept := memory.New()
	s := startOn(t, kept, false)
	s.app("shop", apptest.On("echo", echo))
	gone := s.start(client.StartRun{Workflow: "echo", Payload: []byte(`1`)})
	s.ended(gone.ID)
	replay, err := s.Replay(t.Context(), gone.ID, client.ReplayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	record, err := s.engine.RunRecord(context.WithoutCancel(t.Context()), engine.DefaultEnv, replay.ID, 30*time.Second)
	if err != nil || !record.Status.Final() {
		t.Fatalf("%+v, %v", record, err)
	}
	// The replay ended later.
	results, err := kept.Commit(t.Context(), []store.Change{{store.DropRuns{Before: time.Now(), Limit: 1}}})
	if err != nil || results[0].Dropped != 1 {
		t.Fatalf("%+v, %v", results, err)
	}
	path := "/v1/runs/" + gone.ID
	for _, r := range []raw{
		{method: http.MethodGet, path: path},
		{method: http.MethodGet, path: path + "?waitMs=10"},
		{method: http.MethodGet, path: path + "/steps"},
		{method: http.MethodGet, path: path + "/logs"},
		{method: http.MethodGet, path: path + "/replay"},
		{method: http.MethodPost, path: path + "/replay"},
		{method: http.MethodPost, path: path + "/cancel"},
	} {
		if p := s.do(r).problem(t, http.StatusNotFound, "not_found"); !strings.Contains(p.Detail, "kept for 24h0m0s once they have ended (--runs-for)") {
			t.Errorf("%s %s: %s", r.method, r.path, p.Detail)
		}
	}
	if run := s.ended(replay.ID); *run.ReplayOf != gone.ID {
		t.Errorf("its replay: %+v", run)
	}
}
