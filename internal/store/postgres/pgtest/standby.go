package pgtest

import (
	"errors"
	"fmt"
	"os"
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
