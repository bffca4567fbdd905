package store

import "fmt"

// Check compares what the op expects with the schedule that stands; the zero Schedule is none. ErrStale. Only stores call it.
func (op PutSchedule) Check(standing Schedule) error {
	s := op.Schedule
	switch {
	case standing.Version != s.Version-1:
		return fmt.Errorf("schedule %s is at version %d, not %d: %w", s.ID, standing.Version, s.Version-1, ErrStale)
	case standing.Version > 0 && !standing.CreatedAt.Equal(s.CreatedAt):
		return fmt.Errorf("schedule %s was removed and made anew: %w", s.ID, ErrStale)
	}
	return nil
}
