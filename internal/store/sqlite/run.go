package sqlite

import (
	"time"

	"github.com/nelkap/nelkap/internal/workflow"
)

func bindIdentity(b *binder, r *workflow.Run) {
	for _, v := range []string{r.ID, r.Env, r.App, r.Workflow, r.Key, r.ReplayOf, r.Parent, r.Root, r.Event, r.EventID} {
		b.text(v)
	}
	b.int(int64(r.RootRestart))
}

// bindState binds from version on, with the two columns that are made of the others.
func bindState(b *binder, r *workflow.Run) {
	b.int(r.Version)
	b.text(string(r.Status))
	b.int(int64(r.Restart))
	b.int(r.Epoch)
	bindCall(b, r.Call)
	bindCall(b, r.Prior)
	b.time(r.NextAt)
	b.time(r.TimeoutAt)
	b.time(r.WaitsAt)
	b.time(r.WokenAt)
	b.text(r.Reason)
	if r.Ending != nil {
		b.text(r.Ending.Reason)
		b.time(r.Ending.At)
		b.bool(r.Ending.Closing)
		b.int(r.Ending.Entries)
	} else {
		b.null()
		b.null()
		b.bool(false)
		b.int(0)
	}
	b.int(int64(r.Closers))
	b.text(r.Warning)
	b.bool(r.Invokes)
	b.int(int64(r.Attempts))
	b.int(int64(r.Cuts))
	b.int(int64(r.Yields))
	b.int(r.Progress)
	b.time(r.CreatedAt)
	b.time(r.StartedAt)
	b.time(r.EndedAt)
	b.int(r.Lease.Milliseconds())
	b.time(r.TimerAt())
	b.time(r.ReadyAt())
}

func bindCall(b *binder, c *workflow.Call) {
	if c == nil {
		for range 5 {
			b.null()
		}
		return
	}
	b.text(c.ID)
	b.text(c.Token)
	b.text(c.Nonce)
	b.text(c.Node)
	b.time(c.BegunAt)
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
