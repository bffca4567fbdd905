package engine

import (
	"errors"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// kin tells parents of children that have ended, and children of parents that have.
func (m *matcher) kin() error {
	return m.inPages(store.WaitQuery{Set: store.WaitsOfKin}, func(waits []store.Wait) error {
		runs, children, waited := make([]string, len(waits)), make([]store.RunRecord, len(waits)), make([]bool, len(waits))
		for i := range waits {
			runs[i] = waits[i].RunID
		}
		err := m.sideBySide("telling a parent or a child", runs, func(i int) (err error) {
			children[i], waited[i], err = m.child(&waits[i])
			return err
		})
		if err != nil {
			return err
		}
		ended := map[string]map[workflow.StepID]store.RunRecord{} // by parent: what its invokes have come to
		var parents []string
		for i := range waits {
			w := &waits[i]
			if !waited[i] {
				continue
			}
			if ended[w.RunID] == nil {
				ended[w.RunID] = map[workflow.StepID]store.RunRecord{}
				parents = append(parents, w.RunID)
			}
			ended[w.RunID][w.StepID] = children[i]
		}
		return m.sideBySide("telling a parent", parents, func(i int) error { return m.returned(parents[i], ended[parents[i]]) })
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
