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
	dropped, rows, bytes := 0, 0, int64(0)
	for _, r := range old[:min(op.Limit, len(old))] {
		if op.RowsMax > 0 && rows >= op.RowsMax || op.BytesMax > 0 && bytes >= int64(op.BytesMax) {
			break
		}
		dropped++
		bytes += r.bytes
		rows += len(r.entries) + len(r.logs)
		for _, c := range r.chapters {
			rows += len(c.entries)
		}
		delete(s.runs, r.ID)
		for _, k := range s.keys {
			if k.Kind == store.KeyClaim && k.Owner == r.ID {
				k.OwnerStatus, k.OwnerEndedAt, k.ExpiresAt = r.Status, r.EndedAt, k.FreeAt(r.Status, r.EndedAt)
			}
		}
		for hash, c := range s.callbacks {
			if c.RunID == r.ID {
				delete(s.callbacks, hash)
			}
		}
	}
	return dropped
}
