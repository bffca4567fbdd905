package sqlite

import (
	"context"
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/nelkap/nelkap/internal/store"
)

func readStanding(conn *sqlite.Conn) (store.Standing, error) {
	var s store.Standing
	err := query(conn, sqlSelectPhase, nil, func(r *scanner) error {
		s = store.Standing{Phase: store.Phase(r.text()), Move: r.text(), Place: r.text()}
		return nil
	})
	if err == nil && s.Phase == "" {
		err = errors.New("N5: its row is gone")
	}
	if err != nil {
		return s, fmt.Errorf("reading the store's phase: %w", err)
	}
	return s, nil
}

// writeStanding returns when the phase is on disk: the connection syncs each commit.
func writeStanding(conn *sqlite.Conn, to store.Standing) error {
	err := exec(conn, sqlUpdatePhase, func(b *binder) { b.text(string(to.Phase)); b.text(to.Move); b.text(to.Place) })
	if err != nil {
		return fmt.Errorf("marking the store as %s: %w", to.Phase, err)
	}
	return nil
}

// refusal is why a server may not use the store in dir; nil if it may.
func refusal(dir string, s store.Standing) error {
	switch s.Phase {
	case store.PhaseMoving:
		return fmt.Errorf("%s: %w: it is on its way to %s. Go on with nelkap migrate --from %s --to and that database's URL, or go back with nelkap migrate --from %s --abort",
			dir, store.ErrMoved, s.Place, dir, dir)
	case store.PhaseMoved:
		return fmt.Errorf("%s: %w: its runs are in %s now. Start the server with --store and that database's URL", dir, store.ErrMoved, s.Place)
	default:
		return nil
	}
}

func countLive(conn *sqlite.Conn) (runs int64, err error) {
	err = query(conn, sqlCountLive, nil, func(r *scanner) error { runs = r.int(); return nil })
	return runs, err
}

// GoOn lets a store that was restored go on with the next server that is started on it, and tells how many runs that are. ErrLocked while
// a server uses the directory; a store that is not held stays as it is.
func GoOn(ctx context.Context, dir string) (runs int64, err error) {
	s, err := OpenSource(ctx, dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	is, err := s.Standing(ctx)
	if err != nil {
		return 0, err
	}
	if err := refusal(dir, is); err != nil {
		return 0, err
	}
	if is.Phase == store.PhaseHeld {
		if err := s.SetStanding(ctx, store.Standing{Phase: store.PhaseActive}); err != nil {
			return 0, err
		}
	}
	return s.Live(ctx)
}
