package engine

import (
	"errors"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// kin tells parents of children that have ended, and children of parents that have.
func (m *matcher) kin() error {
	return m.inPages(store.WaitQuery{Set: store.WaitsOfKin}, func(waits []store.Wait) error {
		ended := map[string]map[workflow.StepID]store.RunRecord{} // by parent: what its invokes have come to
		var parents []string
		for i := range waits {
			w := &waits[i]
			child, waited, err := m.child(w)
			if err := m.skip("telling a parent or a child", w.RunID, err); err != nil {
				return err
			}
			if !waited {
				continue
			}
			if ended[w.RunID] == nil {
				ended[w.RunID] = map[workflow.StepID]store.RunRecord{}
				parents = append(parents, w.RunID)
			}
			ended[w.RunID][w.StepID] = child
		}
		for _, parent := range parents {
			if err := m.skip("telling a parent", parent, m.returned(parent, ended[parent])); err != nil {
				return err
			}
		}
		return nil
	})
}

// child reads the child of an invoke, and tells whether its parent waits for it still; if not, the child is told.
func (m *matcher) child(w *store.Wait) (child store.RunRecord, waited bool, err error) {
	child, err = m.e.store.Record(m.e.ctx, w.Env, w.Child)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return child, false, err
	}
	parent, _, err := m.e.store.Load(m.e.ctx, w.RunID)
	if err != nil {
		return child, false, err
	}
	if w.Orphan || parent.Status.Final() {
		return child, false, m.orphan(w, &child)
	}
	return child, true, nil
}

// orphan cancels a child that nobody waits for any more, and forgets it once it has ended.
func (m *matcher) orphan(w *store.Wait, child *store.RunRecord) error {
	if child.ID == "" || child.Status.Final() {
		_, err := m.e.committer.commit(store.Change{store.CloseWait{RunID: w.RunID, Child: w.Child}})
		return err
	}
	_, err := m.e.apply(m.e.ctx, child.ID, func(_ workflow.Run, h store.History) (workflow.Input, error) {
		return workflow.Cancel{Entries: h.Entries, Grace: m.e.options.Grace}, nil
	})
	return err
}

// returned tells a parent of children that have ended, all at once.
func (m *matcher) returned(parent string, children map[workflow.StepID]store.RunRecord) error {
	return m.e.tell(m.e.ctx, parent, func(open []store.Wait) (steps []workflow.Step, beside []store.Op) {
		for _, w := range open {
			if child, ok := children[w.StepID]; ok && w.Child == child.ID {
				steps = append(steps, w.Returned(child.Run, child.Output, child.Error, m.e.now()))
			}
		}
		return steps, nil
	})
}
