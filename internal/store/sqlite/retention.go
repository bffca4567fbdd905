package sqlite

import "github.com/nelkap/nelkap/internal/store"

// dropRuns removes runs with everything that is their own. The tables name a run by its seq, which another may be given afterwards: what is
// forgotten here would be that run's.
func (s *Store) dropRuns(op store.DropRuns, res *store.Result) error {
	type row struct {
		seq int64
		id  string
	}
	var old []row
	err := query(s.writer, sqlSelectOldRuns, func(b *binder) { b.time(op.Before); b.int(int64(op.Limit)) }, func(r *scanner) error {
		old = append(old, row{r.int(), r.text()})
		return nil
	})
	if err != nil {
		return err
	}
	statements := []string{sqlDropSteps, sqlDropChapters, sqlDropLogs, sqlDeleteAttempts, sqlDeleteCallbacks, sqlDeleteUses, sqlDropRunValues, sqlDropRun}
	for _, run := range old {
		for _, statement := range statements {
			if err := exec(s.writer, statement, func(b *binder) { b.int(run.seq) }); err != nil {
				return err
			}
		}
		delete(s.heads, run.id)
	}
	res.Dropped += len(old)
	return nil
}
