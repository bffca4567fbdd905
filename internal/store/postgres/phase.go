package postgres

import (
	"context"
	"fmt"

	"github.com/nelkap/nelkap/internal/store"
)

// errIncoming is why a server may not use a database that is being filled.
var errIncoming = fmt.Errorf("%w: a store is being moved to this database, and not all of it is here yet. Start nelkap migrate once more, with the same --from and --to, and then the server", store.ErrMoved)

// standing reads the store's phase. A database without a row is like any other: it has not been moved to.
func (s *Store) standing(ctx context.Context) (store.Standing, error) {
	is := store.Standing{Phase: store.PhaseActive}
	err := s.query(ctx, sqlSelectPhase, nil, func(r *scanner) error {
		is.Phase, is.Move = store.Phase(r.text()), r.text()
		return nil
	})
	return is, err
}

// refusal is why a server may not use the store; nil if it may.
func refusal(s store.Standing) error {
	if s.Phase == store.PhaseIncoming {
		return errIncoming
	}
	return nil
}
