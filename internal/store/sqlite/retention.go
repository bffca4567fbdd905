package sqlite

import (
	"slices"

	"github.com/nelkap/nelkap/internal/store"
)

// dropRuns removes runs with everything that is their own. The tables name a run by its seq, which another may be given afterwards: what is
// forgotten here would be that run's.
func (s *Store) dropRuns(op store.DropRuns, res *store.Result) error {
	type row struct {
		seq   int64
		id    string
		bytes int64
	}
	var old []row
	err := query(s.writer, sqlSelectOldRuns, func(b *binder) { b.time(op.Before); b.int(int64(op.Limit)) }, func(r *scanner) error {
		old = append(old, row{r.int(), r.text(), r.int()})
		return nil
	})
	if err != nil {
		return err
	}
	counted := []string{sqlDropSteps, sqlDropLogs}
	others := []string{sqlTellClaims, sqlDropChapters, sqlDeleteAttempts, sqlDeleteCallbacks, sqlDeleteUses, sqlDropRunValues, sqlDropRun}
	rows, bytes := 0, int64(0)
	for _, run := range old {
		if op.RowsMax > 0 && rows >= op.RowsMax || op.BytesMax > 0 && bytes >= int64(op.BytesMax) {
			break
		}
		bytes += run.bytes
		for i, statement := range slices.Concat(counted, others) {
			if err := exec(s.writer, statement, func(b *binder) { b.int(run.seq) }); err != nil {
				return err
			}
			if i < len(counted) {
				rows += s.writer.Changes()
			}
		}
		delete(s.heads, run.id)
		res.Dropped++
	}
	return nil
}
