package core

import (
	"strings"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

const (
	// unaskedMax is how many steps that the code did not ask for an answer names.
	unaskedMax = 20
	// verifiedMax is how many steps of each sort the answer to a verify names.
	verifiedMax = 100
)

// What the names of a handler's steps begin with.
const (
	OnFailurePrefix = "onFailure: "
	OnCancelPrefix  = "onCancel: "
)

// unasked are the first saved steps that the code, now at rest, did not ask for (S7), up to most of them. What a closing ran is never
// among them.
func (m *Machine) unasked(most int) (list []*wire.Entry) {
	if len(m.met) >= len(m.ends) && m.metAll() {
		return nil
	}
	for _, e := range m.entries() {
		key := stepKey{e.Name, e.Number}
		if _, met := m.met[key]; met || m.ofClosing(key) || len(list) == most {
			continue
		}
		list = append(list, e)
	}
	return list
}

func (m *Machine) metAll() bool {
	for key := range m.ends {
		if _, met := m.met[key]; !met {
			return false
		}
	}
	return true
}

// ofClosing is true for the steps of handlers and the bodies of undos.
func (m *Machine) ofClosing(key stepKey) bool {
	before := m.ends[stepKey{key.name, key.number - 1}]
	return strings.HasPrefix(key.name, OnFailurePrefix) || strings.HasPrefix(key.name, OnCancelPrefix) ||
		before != nil && before.Kind == wire.KindUndo
}

// nameUnasked says in an answer what the code did not ask for, where it came to rest.
func (m *Machine) nameUnasked(a *wire.Answer) {
	if m.closing != nil || a.Type != wire.AnswerCompleted && a.Type != wire.AnswerSuspended {
		return
	}
	for _, e := range m.unasked(unaskedMax) {
		a.Unasked = append(a.Unasked, wire.StepRef{Name: e.Name, Number: e.Number})
	}
}

// verdict is how the code ended that is verified; it waits where a is nil.
func verdict(a *wire.Answer) *wire.Verified {
	switch {
	case a == nil:
		return &wire.Verified{}
	case a.Type == wire.AnswerFailed:
		return &wire.Verified{End: wire.EndThrew, Error: a.Error}
	}
	return &wire.Verified{End: wire.EndReturned}
}

// verified answers a verify: v says how the code ended.
func (m *Machine) verified(v *wire.Verified) {
	m.phase = phaseOver
	for _, e := range m.unasked(verifiedMax) {
		v.Unasked = append(v.Unasked, wire.StepKind{Kind: e.Kind, Name: e.Name, Number: e.Number})
	}
	for _, s := range m.asked {
		if s.Entry == nil && len(v.Asked) < verifiedMax {
			v.Asked = append(v.Asked, wire.StepKind{Kind: s.kind(), Name: s.Name, Number: s.Number})
		}
	}
	m.emit(Output{Do: DoUnwind})
	m.emit(Output{Do: DoVerified, Verified: v})
}
