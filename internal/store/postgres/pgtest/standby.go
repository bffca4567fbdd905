package pgtest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// Standby starts a server that follows this one, and does not write until it is promoted. It must be stopped by its user.
func (s *Server) Standby() (*Server, error) {
	who, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "nelkap-standby-")
	if err != nil {
		return nil, err
	}
	standby := &Server{dir: dir, made: map[string]int{}, free: map[string][]string{}}
	if err := standby.follow(s, who); err != nil {
		return nil, errors.Join(fmt.Errorf("starting a standby for tests: %w", err), standby.Stop())
	}
	return standby, nil
}

// Synchronous has the server's commits wait for a standby of that name, * for any, from some moment on: each of its processes reads its
// settings anew when it comes to it.
func (s *Server) Synchronous(t testing.TB, name string) {
	t.Helper()
	s.Exec(t, "postgres", fmt.Sprintf("ALTER SYSTEM SET synchronous_standby_names = '%s'", name), "SELECT pg_reload_conf()")
}

// Promote makes a standby a server that writes.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	s.Exec(t, "postgres", "SELECT pg_promote()")
}

// URLWith is a database's, on this server or on the other one: whichever writes.
func (s *Server) URLWith(other *Server, database string) string {
	return strings.Replace(s.URL(database), "/"+database+"?", fmt.Sprintf(",127.0.0.1:%d/%s?", other.Port, database), 1)
}

func (s *Server) follow(primary *Server, who *identity) error {
	if err := who.own(s.dir); err != nil {
		return err
	}
	program, err := find("pg_basebackup")
	if err != nil {
		return err
	}
	source := fmt.Sprintf("host=127.0.0.1 port=%d user=%s", primary.Port, superuser)
	if out, err := who.command(program, "-d", source, "-D", s.data(), "-R", "-X", "stream", "-c", "fast", "--no-sync").CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", err, out)
	}
	if s.Port, err = freePort(); err != nil {
		return err
	}
	return s.serve(who)
}
