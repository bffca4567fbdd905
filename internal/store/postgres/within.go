package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// awayPause is the pause before a database that does not answer is tried again: a server that starts beside its database is soon there.
	awayPause = 500 * time.Millisecond
	// awayTellEvery is how often people are told that it still does not answer.
	awayTellEvery = 5 * time.Second
)

// OpenWithin is Open for a server that may be started before its database: it waits up to limit for one that can't be reached, or that
// starts up. tell is told at first and every few seconds what is wrong, so that people who watch see it. What waiting does not mend, such as
// a wrong password, is returned at once.
func OpenWithin(ctx context.Context, url string, limit time.Duration, tell func(error)) (*Store, error) {
	begun := time.Now()
	told := begun.Add(-awayTellEvery)
	for {
		s, err := Open(ctx, url)
		if err == nil || over(ctx) || !isAway(err) {
			return s, err
		}
		now := time.Now()
		if now.Sub(begun) >= limit {
			return nil, fmt.Errorf("the database did not answer within %v: see that it runs, and that the URL leads to it: %w", limit, err)
		}
		if now.Sub(told) >= awayTellEvery {
			told = now
			tell(err)
		}
		pause(ctx, awayPause)
	}
}

// isAway tells whether a database that can't be opened may come to be there by itself: it can't be reached, it starts up, or it is the one
// that does not write just now. What it says of itself goes before what the network says.
func isAway(err error) bool {
	var misread *pgconn.ParseConfigError
	if errors.As(err, &misread) {
		return false
	}
	o := classify(err, false)
	return o == outcomeAgain || o == outcomeMoved
}

// advice are the SQLSTATEs of what people have to mend before a server can start.
var advice = map[string]string{
	"28P01": "the database refuses the password: correct it in the URL, or in PGPASSWORD",
	"28000": "the database does not let this user in: correct the URL, or the database's pg_hba.conf",
	"3D000": "there is no database of that name: make it with createdb, or correct the URL",
	"42P07": "the database has tables of something else, whose names Nelkap uses too: make Nelkap a database of its own with createdb, and give its URL",
	"42501": "the user may not make tables there: GRANT ALL ON DATABASE and ON SCHEMA public to it, or make it the database's owner",
}

// advise adds to a failure what to do, where that is known.
func advise(err error) error {
	var answer *pgconn.PgError
	if errors.As(err, &answer) && advice[answer.Code] != "" {
		return fmt.Errorf("%s: %w", advice[answer.Code], err)
	}
	return err
}
