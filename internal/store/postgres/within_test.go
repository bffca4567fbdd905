package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/store/postgres"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
)

// Whoever starts everything at once starts the server before its database now and then.
func TestAServerWaitsForADatabaseThatIsNotThereYet(t *testing.T) {
	server := own(t)
	if err := server.Crash(); err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 100)
	opened := make(chan error, 1)
	go func() {
		s, err := postgres.OpenWithin(context.Background(), server.URL("postgres"), time.Minute, func(err error) { told <- err })
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	if err := <-told; err == nil {
		t.Error("it was told of nothing")
	}
	if err := server.Recover(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	if len(told) > 3 {
		t.Errorf("people were told %d times more", len(told))
	}
}

func TestADatabaseThatNeverComesIsGivenUp(t *testing.T) {
	begun := time.Now()
	_, err := postgres.OpenWithin(t.Context(), "postgres://u:canary@127.0.0.1:1/x?sslmode=disable", time.Second, func(error) {})
	if err == nil || !strings.Contains(err.Error(), "did not answer within 1s") || strings.Contains(err.Error(), "canary") {
		t.Errorf("%v", err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// What waiting does not mend ends at once, and says what to do, and never the password.
func TestWhatWaitingDoesNotMendIsSaidAtOnce(t *testing.T) {
	server := pgtest.Shared(t)
	name := server.Database(t, migrated)
	server.Exec(t, name, "DROP ROLE IF EXISTS stranger", "CREATE ROLE stranger LOGIN")
	bare := server.Database(t, pgtest.Kind{Name: "unowned", Prepare: func(string) error { return nil }, Empty: "SELECT 1"})
	for _, c := range []struct{ what, url, word string }{
		{"no such database", server.URL("nowhere"), "createdb"},
		{"no such user", fmt.Sprintf("postgres://nobody:canary@127.0.0.1:%d/%s?sslmode=disable", server.Port, name), "pg_hba"},
		{"a user without rights", fmt.Sprintf("postgres://stranger:canary@127.0.0.1:%d/%s?sslmode=disable", server.Port, bare), "GRANT"},
		{"no URL", "postgres://u:canary@127.0.0.1:port/x", "URL"},
		{"a URL with a slip in its password", "postgres://u:canary%zz@127.0.0.1/x", "URL"},
		{"a URL with a slash in its password", "postgres://u:can/ary@127.0.0.1/x", "URL"},
	} {
		told := 0
		_, err := postgres.OpenWithin(t.Context(), c.url, time.Minute, func(error) { told++ })
		if err == nil || told > 0 || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: told %d times, and %v", c.what, told, err)
		} else if strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "can/ary") {
			t.Errorf("%s: the password is shown: %v", c.what, err)
		}
	}
}

func TestAWrongPasswordIsSaidAtOnce(t *testing.T) {
	server := own(t)
	server.Exec(t, "postgres", "ALTER ROLE nelkap PASSWORD 'canary-right'",
		"DO $$ BEGIN EXECUTE format('COPY (SELECT %L) TO %L', 'host all all 127.0.0.1/32 scram-sha-256', current_setting('hba_file')); PERFORM pg_reload_conf(); END $$")
	with := func(password string) error {
		s, err := postgres.OpenWithin(t.Context(), fmt.Sprintf("postgres://nelkap:%s@127.0.0.1:%d/postgres?sslmode=disable", password, server.Port), time.Minute, func(err error) { t.Error(err) })
		if err == nil {
			err = s.Close()
		}
		return err
	}
	var err error
	for err == nil { // until the server has read its file again
		err = with("canary-wrong")
	}
	if !strings.Contains(err.Error(), "refuses the password") || strings.Contains(err.Error(), "canary") {
		t.Error(err)
	}
	if err := with("canary-right"); err != nil {
		t.Error(err)
	}
}

func TestStoppingAServerEndsItsWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := postgres.OpenWithin(ctx, "postgres://u@127.0.0.1:1/x?sslmode=disable", time.Minute, func(error) { cancel() })
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
