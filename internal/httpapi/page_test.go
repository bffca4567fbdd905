package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nelkap/nelkap/internal/apptest"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/httpapi"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
)

// counting is a store that notes the most rows that were asked for at once.
type counting struct {
	store.Store
	most atomic.Int64
}

func (c *counting) note(limit int) { c.most.Store(max(c.most.Load(), int64(limit))) }

func (c *counting) Runs(ctx context.Context, q store.RunQuery) ([]store.RunRecord, error) {
	c.note(q.Limit)
	return c.Store.Runs(ctx, q)
}

func (c *counting) Events(ctx context.Context, q store.EventQuery) ([]store.Event, error) {
	c.note(q.Limit)
	return c.Store.Events(ctx, q)
}

func (c *counting) Schedules(ctx context.Context, q store.ScheduleQuery) ([]store.Schedule, error) {
	c.note(q.Limit)
	return c.Store.Schedules(ctx, q)
}

// pages goes through a list to its end, and gives how many rows each page had and a field of every row. It cuts the text, which is too much
// for a decoder under the race detector.
func (s *server) pages(path, field string) (sizes []int, values []string) {
	s.t.Helper()
	for next := ""; ; {
		a := s.do(raw{method: http.MethodGet, path: path + next})
		if a.status != http.StatusOK {
			s.t.Fatalf("%d %.200s", a.status, a.body)
		}
		rows := strings.Split(a.body, `"`+field+`":"`)[1:]
		for _, row := range rows {
			value, _, _ := strings.Cut(row, `"`)
			values = append(values, value)
		}
		sizes = append(sizes, len(rows))
		_, cursor, more := strings.Cut(a.body, `"nextCursor":"`)
		if !more {
			return sizes, values
		}
		cursor, _, _ = strings.Cut(cursor, `"`)
		next = "&cursor=" + cursor
	}
}

// A page is bounded in bytes too, in the store's hands as well as in the answer; the pages together are the list.
func TestAPageOfLargeValuesHasFewerRows(t *testing.T) {
	kept := memory.New()
	s := startOn(t, kept, false)
	for i := range 12 {
		payload := []byte(text(map[int]int{5: 15 * mebi, 6: 2 * mebi}[i] + 2))
		run := store.InsertRun{Payload: payload}
		run.Run.ID, run.Run.Env, run.Run.Workflow, run.Run.Status = fmt.Sprintf("run_01kbz0000000000000000000%02d", i), engine.DefaultEnv, "w", "completed"
		run.Run.Version = 1
		results, err := kept.Commit(t.Context(), []store.Change{{
			run,
			store.InsertEvent{Event: store.Event{Env: engine.DefaultEnv, ID: fmt.Sprint("e", i), Name: "paid", Payload: payload}},
			store.PutSchedule{Schedule: store.Schedule{Env: engine.DefaultEnv, ID: fmt.Sprintf("s%02d", i), Workflow: "w", Payload: payload, Version: 1, Paused: true}},
		}})
		if err != nil || results[0].Err != nil {
			t.Fatal(err, results)
		}
	}
	reader := &counting{Store: kept}
	api := httptest.NewServer(httpapi.New(httpapi.Options{Engine: s.engine, Reader: reader, Dev: true}))
	defer api.Close()
	for _, list := range []string{"runs", "events", "schedules"} {
		sizes, ids := (&server{t: t, url: api.URL}).pages("/v1/"+list+"?limit=100", "id")
		if fmt.Sprint(sizes) != "[6 6]" {
			t.Errorf("%s: the pages have %v rows", list, sizes)
		}
		seen := map[string]bool{}
		for _, id := range ids {
			seen[id] = true
		}
		if len(seen) != 12 || len(ids) != 12 {
			t.Errorf("%s: %d rows, %d different", list, len(ids), len(seen))
		}
	}
	if most := reader.most.Load(); most > 10 {
		t.Errorf("%d rows, of any size, were read at once", most)
	}
}

// However few rows are read at once, a page has as many as were asked for, and says truly whether others follow.
func TestAPageHasAsManyRowsAsWereAskedFor(t *testing.T) {
	s := start(t)
	s.app("shop", apptest.On("echo", echo))
	for range 30 {
		s.start(client.StartRun{Workflow: "echo"})
	}
	for _, c := range []struct {
		limit int
		sizes string
	}{{9, "[9 9 9 3]"}, {10, "[10 10 10]"}, {29, "[29 1]"}, {30, "[30]"}, {100, "[30]"}} {
		if sizes, _ := s.pages(fmt.Sprintf("/v1/runs?limit=%d", c.limit), "id"); fmt.Sprint(sizes) != c.sizes {
			t.Errorf("at most %d: the pages have %v rows, want %s", c.limit, sizes, c.sizes)
		}
	}
}

// The steps of a chapter that is closed are all to be had, also where their results are what ends a page.
func TestAPageOfAClosedChapterThatIsCutSaysSo(t *testing.T) {
	const steps = 5 // of 4 MiB
	s := start(t)
	s.app("shop", apptest.On("loop", func(ctx context.Context, c *apptest.Call) wire.End {
		if c.Run.Restart > 0 {
			return wire.End{Type: wire.Completed}
		}
		for i := range steps {
			save := wire.Save{Fence: c.Fence(), Seen: int64(i), Items: []wire.Item{apptest.Step(fmt.Sprint("step", i), []byte(text(4*mebi)))}}
			if out := s.engine.Save(ctx, wire.Saves{Process: "p", Saves: []wire.Save{save}}).Saves[0]; out.Status != wire.Accepted {
				t.Errorf("%s %s", out.Status, out.Detail)
			}
		}
		return wire.End{Type: wire.Restarted, Seen: steps}
	}))
	run := s.ended(s.start(client.StartRun{Workflow: "loop"}).ID)
	if run.Restart != 1 {
		t.Fatalf("%+v", run)
	}
	sizes, names := s.pages("/v1/runs/"+run.ID+"/steps?restart=0&limit=100", "name")
	if fmt.Sprint(sizes, names) != "[4 1] [step0 step1 step2 step3 step4]" {
		t.Errorf("pages of %v have the steps %v", sizes, names)
	}
	for limit := 1; limit <= 2; limit++ {
		page := s.do(raw{method: http.MethodGet, path: fmt.Sprintf("/v1/runs/%s/steps?restart=0&limit=%d&cursor=Mw", run.ID, limit)}) // after entry 3
		if more := strings.Contains(page.body, `"nextCursor":"`); more != (limit == 1) {
			t.Errorf("of two steps left %d are shown, and others follow: %v", limit, more)
		}
	}
}
