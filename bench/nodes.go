package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
)

// nodeCounts are how many servers share the database, each on the same machine.
var nodeCounts = []int{1, 3}

// nodeFlights has as many as one node does the most with, and as many for each of three.
var nodeFlights = append(flights, 1024, 3072)

// nodeRoom is how many calls the app takes at once: each node's part of it is more than its part of the runs in flight, or they would wait in line.
const nodeRoom = "8192"

// settleTime is longer than a server that joins others takes no work.
const settleTime = 6 * time.Second

// shared is what so many nodes on one database gave.
type shared struct {
	figure
	nodes       int
	database    time.Duration // processor time
	wal         int64         // bytes that the database logged
	size        int64         // bytes by which it grew
	connections int
}

// measureNodes measures one and three nodes on a Postgres of its own, which syncs what it commits. All share this machine: three nodes show
// what they cost each other, not what three machines would give.
func measureNodes(binary string, d time.Duration) error {
	server, err := pgtest.Start()
	if err != nil {
		return err
	}
	defer server.Stop() //nolint:errcheck // it is gone with its directory
	address, err := freeAddress()
	if err != nil {
		return err
	}
	app, err := start("the app", address, []string{"NELKAP_SIGNING_KEY=" + signingKey}, os.Args[0], "app", address)
	if err != nil {
		return err
	}
	defer app.stop()
	var figures []shared
	for _, nodes := range nodeCounts {
		for _, flight := range nodeFlights {
			f, err := site{binary, server, app}.measure(nodes, flight, d)
			if err != nil {
				return err
			}
			figures = append(figures, f)
		}
	}
	return reportShared(figures)
}

// site is what every measurement of nodes has: the servers' binary, the database and the app.
type site struct {
	binary string
	server *pgtest.Server
	app    *part
}

// measure measures so many nodes, each of which takes its part of the requests.
func (s site) measure(nodes, flight int, d time.Duration) (shared, error) {
	server, app := s.server, s.app
	f := shared{nodes: nodes}
	database := fmt.Sprintf("bench_%d_%d", nodes, flight)
	conn, err := pgx.Connect(context.Background(), server.URL("postgres"))
	if err != nil {
		return f, err
	}
	defer conn.Close(context.Background()) //nolint:errcheck // the server is gone with the measurement
	if _, err := conn.Exec(context.Background(), "CREATE DATABASE "+database); err != nil {
		return f, err
	}
	var parts []*part
	var urls []string
	for range nodes {
		p, err := startNode(s.binary, server.URL(database), app.address)
		if err != nil {
			return f, err
		}
		defer p.stop()
		parts, urls = append(parts, p), append(urls, "http://"+p.address)
	}
	for i, url := range urls {
		if err := ready(url); err != nil {
			return f, fmt.Errorf("%w: see %s", err, parts[i].log)
		}
	}
	<-time.After(settleTime)
	before, err := look(conn, server, database, append(parts, app))
	if err != nil {
		return f, err
	}
	var turn atomic.Int64
	f.figure = hammer(flight, d, func() error { return oneRun(urls[int(turn.Add(1))%len(urls)]) })
	after, err := look(conn, server, database, append(parts, app))
	if err != nil {
		return f, err
	}
	f.app, f.server = after.cpu[nodes]-before.cpu[nodes], 0
	for i := range parts {
		f.server += after.cpu[i] - before.cpu[i]
	}
	f.database, f.wal, f.size, f.connections = after.database-before.database, after.wal-before.wal, after.size-before.size, after.connections
	for _, p := range parts {
		p.stop()
		commits, rows := committed(p.output())
		f.commits, f.rows = f.commits+commits, f.rows+rows
	}
	if f.failures > 0 {
		return f, fmt.Errorf("%d of the requests failed", f.failures)
	}
	return f, nil
}

func startNode(binary, store, app string) (*part, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	env := []string{"NELKAP_SIGNING_KEY=" + signingKey, "NELKAP_API_KEY=" + apiKey, "NELKAP_STORE=" + store}
	return start("a server", address, env, binary, "serve", "--addr", address, "--app", "http://"+app, "--concurrency", nodeRoom)
}

// moment is what was used until then.
type moment struct {
	cpu         []time.Duration
	database    time.Duration
	wal, size   int64
	connections int
}

func look(conn *pgx.Conn, server *pgtest.Server, database string, parts []*part) (moment, error) {
	m := moment{database: family(server.Pid())}
	for _, p := range parts {
		m.cpu = append(m.cpu, p.cpu())
	}
	err := conn.QueryRow(context.Background(), `SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint, pg_database_size($1),
		(SELECT count(*) FROM pg_stat_activity WHERE datname = $1)`, database).Scan(&m.wal, &m.size, &m.connections)
	return m, err
}

// family is the processor time that a process and its children have used.
func family(pid int) time.Duration {
	total := cpuOf(pid)
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if parent, _ := strconv.Atoi(fields[1]); parent == pid {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			total += cpuOf(child)
		}
	}
	return total
}

func reportShared(figures []shared) error {
	fmt.Printf("nodes on one Postgres, all on this machine; %d steps of %d bytes per run, one after the other; each acknowledgement is synced\n\n", stepsPerRun, resultBytes)
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "nodes\truns in flight\tsteps/s\tp50 of a run\tp99\tnodes' CPU per step\tdatabase's\tapp's\tchanges per commit\tlogged per step\tstored per step\tconnections\t")
	best, at := map[int]float64{}, map[[2]int]float64{}
	for _, f := range figures {
		steps := f.done * stepsPerRun
		if steps == 0 {
			return errors.New("nothing was done")
		}
		best[f.nodes], at[[2]int{f.nodes, f.flight}] = max(best[f.nodes], f.rate()), f.rate()
		fmt.Fprintf(w, "%d\t%d\t%.0f\t%s\t%s\t%s\t%s\t%s\t%.1f\t%d B\t%d B\t%d\t\n", f.nodes, f.flight, f.rate()*stepsPerRun, round(f.quantile(0.5)), round(f.quantile(0.99)),
			round(f.server/time.Duration(steps)), round(f.database/time.Duration(steps)), round(f.app/time.Duration(steps)),
			float64(f.rows)/float64(max(f.commits, 1)), f.wal/int64(steps), f.size/int64(steps), f.connections)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	first, last := nodeCounts[0], nodeCounts[len(nodeCounts)-1]
	fmt.Printf("\nat their best %d nodes do %.2f times what %d does at its best (aim: at least 1); with the same runs in flight", last, best[last]/best[first], first)
	for _, flight := range nodeFlights {
		fmt.Printf(", %d: %.2f", flight, at[[2]int{last, flight}]/at[[2]int{first, flight}])
	}
	fmt.Println()
	return nil
}
