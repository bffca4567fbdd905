// Package pgtest gives tests a Postgres server of their own: on a free port of the loopback, in a temporary directory, syncing what it
// commits, and gone when the tests are, also when they are killed. One server serves a test process, and each test has its own database.
//
// It is for tests alone, and knows nothing of what they store. Where there is no Postgres it fails and says what to install: a suite that
// skipped would look as if it had passed.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// superuser is the server's user, who has no password: nobody but this machine reaches the server.
const superuser = "nelkap"

var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Main runs a package's tests and stops the server that they shared. It is what TestMain calls.
func Main(m *testing.M) {
	code := m.Run()
	if shared.server != nil {
		if err := shared.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// Shared is the server of this test process, started when it is first asked for.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.once.Do(func() { shared.server, shared.err = Start() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// Server is a Postgres server.
type Server struct {
	Port int

	dir      string
	settings []string
	process  *process

	mu   sync.Mutex // guards what follows, by kind
	made map[string]int
	free map[string][]string
}

// Start makes and starts a server, with settings such as fsync=off over the usual ones.
func Start(settings ...string) (*Server, error) {
	who, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "nelkap-postgres-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, settings: settings, made: map[string]int{}, free: map[string][]string{}}
	if err := s.start(who); err != nil {
		return nil, errors.Join(fmt.Errorf("starting Postgres for tests: %w", err), s.Stop())
	}
	return s, nil
}

func (s *Server) start(who *identity) error {
	if err := who.own(s.dir); err != nil {
		return err
	}
	initdb, err := find("initdb")
	if err != nil {
		return err
	}
	out, err := who.command(initdb, "-D", s.data(), "-U", superuser, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	// Somebody else may take the port in between; then the server ends at once, and the next port is tried.
	for range 5 {
		if s.Port, err = freePort(); err != nil {
			return err
		}
		if err = s.serve(who); err == nil {
			return nil
		}
	}
	return err
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// serve starts the server on its port, and returns when it answers.
func (s *Server) serve(who *identity) error {
	postgres, err := find("postgres")
	if err != nil {
		return err
	}
	args := []string{"-D", s.data()}
	for _, setting := range append([]string{
		"listen_addresses=127.0.0.1", fmt.Sprintf("port=%d", s.Port), "unix_socket_directories=",
		"fsync=on", "synchronous_commit=on", "full_page_writes=on", "max_connections=100", "shared_buffers=64MB", "log_min_messages=fatal",
	}, s.settings...) {
		args = append(args, "-c", setting)
	}
	if s.process, err = who.start(filepath.Join(s.dir, "log"), postgres, args...); err != nil {
		return err
	}
	return s.process.ready(s.answers)
}

// Fill leaves the server room for files of so many bytes and no larger ones, as a disk does that is all but full: what would be larger is
// written in part. Zero: there is room again. errors.ErrUnsupported: this is not Linux.
func (s *Server) Fill(bytes int) error {
	who, err := unprivileged()
	if err != nil {
		return err
	}
	if runtime.GOOS != "linux" {
		return errors.ErrUnsupported
	}
	prlimit, err := exec.LookPath("prlimit")
	if err != nil {
		return fmt.Errorf("tests fill a disk with prlimit: install util-linux: %w", err)
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", s.Pid(), s.Pid()))
	if err != nil {
		return err
	}
	limit := "unlimited"
	if bytes > 0 {
		limit = strconv.Itoa(bytes)
	}
	for _, pid := range append(strings.Fields(string(children)), strconv.Itoa(s.Pid())) {
		out, err := who.command(prlimit, "--pid", pid, "--fsize="+limit+":").CombinedOutput()
		if err != nil && !strings.Contains(string(out), "No such process") { // it has ended
			return fmt.Errorf("limiting process %s: %w: %s", pid, err, out)
		}
	}
	return nil
}

// Crash ends the server as a power cut would, but for what the disk holds.
func (s *Server) Crash() error { return s.process.stop() }

// Recover starts it again on the same port, and returns when it has recovered.
func (s *Server) Recover() error {
	who, err := unprivileged()
	if err != nil {
		return err
	}
	return s.serve(who)
}

func (s *Server) answers(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// Pid is the process that the server's others are children of.
func (s *Server) Pid() int { return s.process.cmd.Process.Pid }

// URL is a database's.
func (s *Server) URL(database string) string { return url(s.Port, database) }

func url(port int, database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", superuser, port, database)
}

// Stop ends the server without ceremony and removes its directory.
func (s *Server) Stop() error {
	var errs []error
	if s.process != nil {
		errs = append(errs, s.process.stop())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// Kind is what databases of one kind begin with.
type Kind struct {
	Name string
	// Prepare fills the first one, from which the others are copied.
	Prepare func(url string) error
	// Empty is the statement that makes a used one as good as new: dropping one costs the server a checkpoint.
	Empty string
}

// Emptied is a statement that removes all rows of every table but some, and begins each sequence again.
func Emptied(keep ...string) string {
	return fmt.Sprintf(`DO $$
		DECLARE
			this record;
		BEGIN
			FOR this IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND NOT tablename = ANY (string_to_array('%s', ',')) LOOP
				EXECUTE format('DELETE FROM %%I', this.tablename);
			END LOOP;
			FOR this IN SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' LOOP
				EXECUTE format('ALTER SEQUENCE %%I RESTART', this.sequencename);
			END LOOP;
		END $$`, strings.Join(keep, ","))
}

// Database lends a database of a kind to a test, and gives its name.
func (s *Server) Database(t testing.TB, kind Kind) string {
	t.Helper()
	name, err := s.take(kind)
	if err != nil {
		t.Fatalf("making a database: %v", err)
	}
	t.Cleanup(func() {
		// One that can't be emptied, since a transaction is left in it, stays out of use.
		if s.exec(name, "SET lock_timeout = '5s'", kind.Empty) == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.free[kind.Name] = append(s.free[kind.Name], name)
		}
	})
	return name
}

func (s *Server) take(kind Kind) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if free := s.free[kind.Name]; len(free) > 0 {
		s.free[kind.Name] = free[:len(free)-1]
		return free[len(free)-1], nil
	}
	if s.made[kind.Name] == 0 {
		if err := s.exec("postgres", "CREATE DATABASE "+kind.Name); err != nil {
			return "", err
		}
		if err := kind.Prepare(s.URL(kind.Name)); err != nil {
			return "", err
		}
	}
	s.made[kind.Name]++
	name := fmt.Sprintf("%s_%d", kind.Name, s.made[kind.Name])
	return name, s.exec("postgres", fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", name, kind.Name))
}

func (s *Server) exec(database string, statements ...string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.URL(database))
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // it has done its work
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// Exec carries out statements in a database, and fails the test when the server does.
func (s *Server) Exec(t testing.TB, database string, statements ...string) {
	t.Helper()
	if err := s.exec(database, statements...); err != nil {
		t.Fatal(err)
	}
}

// Run carries out one of Postgres's programs, and fails the test when that does.
func Run(t testing.TB, program string, args ...string) {
	t.Helper()
	path, err := find(program)
	if err != nil {
		t.Fatal(err)
	}
	if said, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, said)
	}
}

// find finds one of Postgres's programs: in the path, or where Debian keeps those of each version.
func find(program string) (string, error) {
	var places []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		places = append(places, filepath.Join(dir, program))
	}
	versions, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + program)
	if err != nil {
		return "", err
	}
	for _, place := range append(places, versions...) {
		if info, err := os.Stat(place); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return place, nil
		}
	}
	return "", fmt.Errorf("there is no %s in PATH or in /usr/lib/postgresql: install Postgres 15 or newer (Debian: apt-get install postgresql; scripts/programs does it)", program)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Pooler is a PgBouncer in transaction mode before a server.
type Pooler struct{ Port int }

// URL is a database's, through the pooler.
func (p *Pooler) URL(database string) string { return url(p.Port, database) }

// Pooler starts a pooler, which goes with the test. Few connections lead to the server, so that the transactions of one connection are on
// many of them.
func (s *Server) Pooler(t testing.TB) *Pooler { return pooler(t, s.Port) }

// Pooler starts a pooler before the proxy: what breaks is its connection to the server.
func (p *Proxy) Pooler(t testing.TB) *Pooler { return pooler(t, p.Port) }

func pooler(t testing.TB, server int) *Pooler {
	t.Helper()
	program, err := find("pgbouncer")
	if err != nil {
		if program, err = findIn("/usr/sbin", "pgbouncer"); err != nil {
			t.Fatal("there is no pgbouncer in PATH or in /usr/sbin: install it (Debian: apt-get install pgbouncer; scripts/programs does it)")
		}
	}
	who, err := unprivileged()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "nelkap-pgbouncer-") //nolint:usetesting // nobody but us may enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{
		"[databases]", fmt.Sprintf("* = host=127.0.0.1 port=%d user=%s", server, superuser),
		"[pgbouncer]", "listen_addr = 127.0.0.1", fmt.Sprintf("listen_port = %d", port), "unix_socket_dir =", "auth_type = any",
		"pool_mode = transaction", "default_pool_size = 4", "max_client_conn = 200", "log_connections = 0", "log_disconnections = 0",
	}
	config := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(who.own(dir), who.own(config)); err != nil {
		t.Fatal(err)
	}
	p, err := who.start(filepath.Join(dir, "log"), program, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
	err = p.ready(func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if err != nil {
		t.Fatalf("starting PgBouncer: %v", err)
	}
	return &Pooler{Port: port}
}

func findIn(dir, program string) (string, error) {
	place := filepath.Join(dir, program)
	_, err := os.Stat(place)
	return place, err
}
