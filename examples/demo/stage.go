package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// stage is everything that the demo starts, and what it knows of it.
type stage struct {
	began   time.Time
	standIn *process
	server  *process
	shops   []*shop
	orders  []*order
	outside outside
	api     api
	marks   string   // the file in which the stand-in writes what was done outside
	bodies  string   // the file in which the shops write which bodies ran
	cut     []string // orders whose charge was cut off
	kept    []string // orders whose charge went on while the server was away
}

// shop is one of the two shops.
type shop struct {
	*process
	prefix string // of its orders' ids
	url    string
}

// open prepares the processes. Nothing runs yet.
func open(b *binaries, folder string) (*stage, error) {
	addresses, err := freeAddresses(4)
	if err != nil {
		return nil, err
	}
	path := func(name string) string { return filepath.Join(folder, name) }
	url := func(n int) string { return "http://" + addresses[n] }
	s := &stage{began: time.Now(), marks: path("marks"), bodies: path("bodies"), outside: outside{url(0)}, api: api{url(1)}}
	env := func(app, data, address string) []string {
		_, port, _ := net.SplitHostPort(address) // it came from a listener
		return []string{
			"NELKAP_DEV=1", "NELKAP_APP=" + app, "NELKAP_URL=", "NELKAP_API_KEY=", "NELKAP_SIGNING_KEY=",
			"PORT=" + port, "SHOP_DATA=" + path(data), "SHOP_OUTSIDE=" + url(0), "SHOP_MARKS=" + s.bodies,
		}
	}
	s.shops = []*shop{
		{prefix: "ts-", url: url(2), process: &process{
			name: "shop-ts", path: b.node, args: []string{"dist/main.js"}, folder: b.shopTS,
			env: env("shop-ts", "shop-ts", addresses[2]), log: path("shop-ts.log"), health: url(2) + "/api/nelkap",
		}},
		{prefix: "go-", url: url(3), process: &process{
			name: "shop-go", path: b.shopGo,
			env: env("shop-go", "shop-go.db", addresses[3]), log: path("shop-go.log"), health: url(3) + "/api/nelkap",
		}},
	}
	s.standIn = &process{
		name: "stripe-stand-in", path: b.standIn, args: []string{"--addr", addresses[0], "--marks", s.marks},
		log: path("stripe-stand-in.log"), health: url(0) + "/control/counts",
	}
	s.server = &process{
		name: "nelkap", path: b.nelkap, log: path("nelkap.log"), health: url(1) + "/readyz", folder: folder,
		args: []string{"dev", "--addr", addresses[1], "--data", path("nelkap"), "--app", s.shops[0].health, "--app", s.shops[1].health},
	}
	return s, nil
}

// start starts everything and waits until the server knows both shops.
func (s *stage) start(ctx context.Context) error {
	for _, p := range s.processes() {
		if err := p.start(ctx); err != nil {
			return err
		}
	}
	return poll(ctx, "the server to find both shops", func() (bool, error) {
		apps, err := s.api.readyApps(ctx)
		return slices.Contains(apps, "shop-ts") && slices.Contains(apps, "shop-go"), err
	})
}

func (s *stage) processes() []*process {
	return []*process{s.standIn, s.shops[0].process, s.shops[1].process, s.server}
}

// stop ends everything that was started.
func (s *stage) stop() {
	for _, p := range s.processes() {
		p.kill()
	}
}

// showLogs shows how each process's log ends.
func (s *stage) showLogs() {
	for _, p := range s.processes() {
		fmt.Fprintf(os.Stderr, "\n-- the end of the log of %s\n%s\n", p.name, p.lastWords())
	}
}

// say writes a line of the story.
func (s *stage) say(format string, args ...any) {
	fmt.Printf("%6.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}
