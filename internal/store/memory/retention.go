package memory

import (
	"cmp"

	"github.com/nelkap/nelkap/internal/store"
)

// dropRuns removes the runs that ended first, but for those that somebody has to hear of.
func (s *Store) dropRuns(op store.DropRuns) int {
	awaited := map[string]bool{} // children of open waits
	for _, r := range s.runs {
		for _, w := range r.waits {
			awaited[w.Child] = true
		}
	}
	old := s.sorted(func(r *run) bool {
		return r.Status.Final() && !r.EndedAt.After(op.Before) && len(r.waits) == 0 && !awaited[r.ID]
	}, func(a, b *run) int { return cmp.Or(a.EndedAt.Compare(b.EndedAt), byID(a, b)) })
	old = old[:min(op.Limit, len(old))]
	for _, r := range old {
		delete(s.runs, r.ID)
		for hash, c := range s.callbacks {
			if c.RunID == r.ID {
				delete(s.callbacks, hash)
			}
		}
	}
	return len(old)
}
