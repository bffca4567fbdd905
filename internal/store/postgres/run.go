package postgres

import (
	"time"

	"github.com/nelkap/nelkap/internal/workflow"
)

// bindState binds from version on, with the two columns that are made of the others.
func bindState(t *rowset, r *workflow.Run) {
	t.int(r.Version)
	t.list(string(r.Status))
	t.int(int64(r.Restart))
	t.int(r.Epoch)
	bindCall(t, r.Call)
	bindCall(t, r.Prior)
	t.time(r.NextAt)
	t.time(r.TimeoutAt)
	t.time(r.WaitsAt)
	t.time(r.WokenAt)
	t.text(r.Reason)
	if r.Ending != nil {
		t.text(r.Ending.Reason)
		t.time(r.Ending.At)
		t.bool(r.Ending.Closing)
		t.int(r.Ending.Entries)
	} else {
		t.null(oidBytes)
		t.null(oidInt)
		t.bool(false)
		t.int(0)
	}
	t.int(int64(r.Closers))
	t.text(r.Warning)
	t.bool(r.Invokes)
	t.int(int64(r.Attempts))
	t.int(int64(r.Cuts))
	t.int(int64(r.Yields))
	t.int(r.Progress)
	t.time(r.CreatedAt)
	t.time(r.StartedAt)
	t.time(r.EndedAt)
	t.int(r.Lease.Milliseconds())
	t.time(r.TimerAt())
	t.time(r.ReadyAt())
}

func bindCall(t *rowset, c *workflow.Call) {
	if c == nil {
		for range 4 {
			t.null(oidBytes)
		}
		t.null(oidInt)
		return
	}
	t.text(c.ID)
	t.text(c.Token)
	t.text(c.Nonce)
	t.text(c.Node)
	t.time(c.BegunAt)
}

func scanRun(s *scanner) workflow.Run {
	r := workflow.Run{
		ID: s.text(), Env: s.text(), App: s.text(), Workflow: s.text(), Key: s.text(), ReplayOf: s.text(), Parent: s.text(), Root: s.text(),
		Event: s.text(), EventID: s.text(), RootRestart: int(s.int()), Version: s.int(), Status: workflow.Status(s.text()), Restart: int(s.int()), Epoch: s.int(),
	}
	r.Call = scanCall(s)
	r.Prior = scanCall(s)
	r.NextAt, r.TimeoutAt, r.WaitsAt, r.WokenAt, r.Reason = s.time(), s.time(), s.time(), s.time(), s.text()
	if ending := (workflow.Ending{Reason: s.text(), At: s.time(), Closing: s.bool(), Entries: s.int()}); ending.Reason != "" {
		r.Ending = &ending
	}
	r.Closers, r.Warning = workflow.Closers(s.int()), s.text()
	r.Invokes = s.bool()
	r.Attempts, r.Cuts, r.Yields, r.Progress = int(s.int()), int(s.int()), int(s.int()), s.int()
	r.CreatedAt, r.StartedAt, r.EndedAt = s.time(), s.time(), s.time()
	r.Lease = time.Duration(s.int()) * time.Millisecond
	return r
}

func scanCall(s *scanner) *workflow.Call {
	c := workflow.Call{ID: s.text(), Token: s.text(), Nonce: s.text(), Node: s.text(), BegunAt: s.time()}
	if c.ID == "" {
		return nil
	}
	return &c
}
