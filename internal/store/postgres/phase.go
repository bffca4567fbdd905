package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/nelkap/nelkap/internal/store"
)

var (
	// errIncoming is why a server may not use a database that is being filled.
	errIncoming = fmt.Errorf("%w: a store is being moved to this database, and not all of it is here yet. Start nelkap migrate once more, with the same --from and --to, and then the server", store.ErrMoved)
	// errHeld is why a server that was there before may write no more.
	errHeld = fmt.Errorf("%w: this database was restored, and its runs are held: start this server again", store.ErrMoved)
)

// standing reads the store's phase. A database without a row is like any other: it has not been moved to.
func (s *Store) standing(ctx context.Context) (store.Standing, error) {
	is := store.Standing{Phase: store.PhaseActive}
	err := s.query(ctx, sqlSelectPhase, nil, func(r *scanner) error {
		is.Phase, is.Move = store.Phase(r.text()), r.text()
		return nil
	})
	return is, err
}

// refusal is why this server may not use a store that is in a phase; nil if it may.
func (s *Store) refusal(phase store.Phase) error {
	switch {
	case phase == store.PhaseIncoming:
		return errIncoming
	case phase == store.PhaseHeld && !s.held:
		return errHeld
	default:
		return nil
	}
}

// moveIn finds out what a server that starts may do with the store.
func (s *Store) moveIn(ctx context.Context) error {
	if err := s.goHome(ctx); err != nil {
		return fmt.Errorf("looking whether the database was restored: %w", err)
	}
	standing, err := s.standing(ctx)
	if err != nil {
		return err
	}
	s.held = standing.Phase == store.PhaseHeld
	return s.refusal(standing.Phase)
}

// goHome holds a store whose rows are in another place than they were: what was done since they left it is not known here. A database that
// does not number tables and transactions as Postgres does can't be told from its copy.
func (s *Store) goHome(ctx context.Context) error {
	system := ""
	err := s.query(ctx, sqlSelectSystem, nil, func(r *scanner) error { system = r.text(); return nil })
	if err != nil && !tellsNothing(err) {
		return err
	}
	for _, statement := range []string{sqlMakeHome, sqlGoHome} {
		if err := s.query(ctx, statement, (&params{}).list(system), nil); err != nil {
			if tellsNothing(err) {
				return nil
			}
			return err
		}
	}
	return nil
}

// tellsNothing tells whether a database has no answer to a question about itself, or none for this user.
func tellsNothing(err error) bool {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.Code {
	case "42501", "42703", "42704", "42883", "0A000": // insufficient_privilege, undefined_column, _object and _function, feature_not_supported
		return true
	}
	return false
}

// Held tells whether the store was restored and nobody had said that it goes on when it was opened (N5).
func (s *Store) Held() bool { return s.held }

// Hold has the next servers that are started on the database that url names answer reads and cancels alone, as where it was restored in a
// way that can't be told. Those that are there already write no more. It gives how many runs have not ended. ErrMoved while another store is
// being moved there.
func Hold(ctx context.Context, url string) (runs int64, err error) {
	return mark(ctx, url, sqlHold)
}

// GoOn lets a store that is held go on with the next servers that are started on it, and gives how many runs those are. A store that is not
// held stays as it is. ErrMoved while another store is being moved there.
func GoOn(ctx context.Context, url string) (runs int64, err error) {
	return mark(ctx, url, sqlGoOn)
}

// mark changes the phase.
func mark(ctx context.Context, url, statement string) (runs int64, err error) {
	s, err := connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.moveIn(ctx); err != nil {
		return 0, err
	}
	if err := s.query(ctx, statement, nil, func(*scanner) error { return nil }); err != nil {
		return 0, err
	}
	err = s.query(ctx, sqlCountLive, nil, func(r *scanner) error { runs = r.int(); return nil })
	return runs, err
}
