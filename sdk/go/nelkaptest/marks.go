package nelkaptest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/nelkap/nelkap/sdk/go/internal/play"
)

// Marks counts what a workflow leaves outside. Fakes of what is outside tell it here, each mark under a text that says what may be there
// once, such as "charge o_1". The zero value is ready; it may be used by many goroutines, and must not be copied.
type Marks struct {
	mu   sync.Mutex
	left []mark
	keys map[string]bool
}

type mark struct{ text, who string }

// Leave leaves a mark, at once; ctx is that of the body that leaves it. CrashEverywhere cuts the call off right here too, and then the
// goroutine ends as by runtime.Goexit: call it on the body's own.
func (m *Marks) Leave(ctx context.Context, text string) { m.leave(ctx, text, "") }

// LeaveOnce leaves a mark as Leave does, unless one was left with that idempotency key before: as a service that takes keys does. It is
// true where the mark was left.
func (m *Marks) LeaveOnce(ctx context.Context, text, idempotencyKey string) bool {
	if idempotencyKey == "" {
		panic("nelkaptest: LeaveOnce needs an idempotency key, such as that of step.IdempotencyKey")
	}
	return m.leave(ctx, text, idempotencyKey)
}

func (m *Marks) leave(ctx context.Context, text, key string) bool {
	p, _ := play.StageOf(ctx).(*process)
	if !m.note(text, key, who(ctx, p)) {
		return false
	}
	if p != nil {
		where := "in code outside steps"
		if a := play.From(ctx).Attempt; a != nil {
			where = fmt.Sprintf("in the body of step %q", a.Name)
		}
		p.cutOff(fmt.Sprintf("%s, just after it had left the mark %q", where, text))
	}
	return true
}

func (m *Marks) note(text, key, who string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if key != "" {
		if m.keys[key] {
			return false
		}
		if m.keys == nil {
			m.keys = map[string]bool{}
		}
		m.keys[key] = true
	}
	m.left = append(m.left, mark{text, who})
	return true
}

// who says who leaves a mark.
func who(ctx context.Context, p *process) string {
	if p == nil || p.run == nil {
		return "code outside any run"
	}
	if a := play.From(ctx).Attempt; a != nil {
		return fmt.Sprintf("step %q of %q in call %d", a.Name, p.run.workflow, p.number)
	}
	return fmt.Sprintf("code of %q outside its steps in call %d", p.run.workflow, p.number)
}

// Has is true where the mark is there: what a look into the service goes by.
func (m *Marks) Has(text string) bool { return m.Count(text) > 0 }

// Count is how often the mark was left.
func (m *Marks) Count(text string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, each := range m.left {
		if each.text == text {
			n++
		}
	}
	return n
}

// List is every mark, in the order in which they were left.
func (m *Marks) List() (texts []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, each := range m.left {
		texts = append(texts, each.text)
	}
	return texts
}

// Clear forgets all marks, and the keys that were seen. CrashEverywhere does it before each scenario.
func (m *Marks) Clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left, m.keys = nil, nil
}

// twice is the first mark that was left twice, as a sentence; empty where none was.
func (m *Marks) twice() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, each := range m.left {
		first := slices.IndexFunc(m.left, func(other mark) bool { return other.text == each.text })
		if first < i {
			return fmt.Sprintf("the mark %q was left twice: by %s, then by %s", each.text, m.left[first].who, each.who)
		}
	}
	return ""
}
