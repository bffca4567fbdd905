// Package discover finds apps on this machine: it asks the ports that development servers usually have, at the paths where a handler
// is usually mounted, and recognises an app by the header that every SDK sends. It decides nothing about what it finds, and
// asks no other machine. `nelkap dev` calls it.
package discover

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/nelkap/nelkap/internal/wire"
)

// The bounds of a look.
const (
	every       = 3 * time.Second // between two looks
	dialTimeout = 250 * time.Millisecond
	askTimeout  = 2 * time.Second // a development server may compile the route first
	atOnce      = 8
	roundsMax   = 5 // a port at which something else answers is asked in every fifth look at last
	bodyMax     = 4 << 10
)

// ports are those of Node's and Go's usual frameworks and their tools.
var ports = []int{
	3000, 3001, 3002, 3003, 3004, 3005, 3006, 3007, 3008, 3009, 3010, 3333, 4000, 4200, 4321, 5000, 5173,
	8000, 8080, 8081, 8787, 8888, 8910, 8911, 8912, 8913, 8914, 8915,
}

// hosts: a development server that listens on "localhost" may listen on one of them only.
var hosts = []string{"127.0.0.1", "::1"}

// paths are where a handler is usually mounted.
var paths = []string{"/api/nelkap", "/nelkap", "/.netlify/functions/nelkap"}

// Scanner looks for apps. Make it with New.
type Scanner struct {
	found  func(url string)
	own    int // the server's own port
	ports  []int
	client *http.Client
	seen   map[int]*port // only Run's goroutine adds to it; a look at a port has its entry alone
}

// port is what is known of one port.
type port struct {
	url    string // of the app that answered there last
	told   bool   // of it
	misses int    // looks in a row in which something else answered
	skip   int    // looks to leave out
}

// New makes a scanner that calls found, from the goroutine that looks, with the URL of each app, again when the app was gone and is back. The server's own port
// is left out.
func New(own int, found func(url string)) *Scanner {
	return newScanner(own, ports, found)
}

func newScanner(own int, ports []int, found func(url string)) *Scanner {
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &Scanner{
		found: found, own: own, ports: ports, seen: map[int]*port{},
		client: &http.Client{
			Timeout:       askTimeout,
			Transport:     &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Run looks every few seconds until ctx ends.
func (s *Scanner) Run(ctx context.Context) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		s.Look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Look asks every port once.
func (s *Scanner) Look(ctx context.Context) {
	slots := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	for _, number := range s.ports {
		if number == s.own {
			continue
		}
		p := s.seen[number]
		if p == nil {
			p = &port{}
			s.seen[number] = p
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			s.lookAt(ctx, number, p)
		})
	}
	group.Wait()
	for _, number := range s.ports {
		if p := s.seen[number]; p != nil && p.url != "" && !p.told {
			p.told = true
			s.found(p.url)
		}
	}
}

// lookAt asks one port. An app that was found is not asked again while its port is open: the engine looks at it from then on.
func (s *Scanner) lookAt(ctx context.Context, number int, p *port) {
	var open []string
	for _, host := range hosts {
		if address := net.JoinHostPort(host, strconv.Itoa(number)); isOpen(ctx, address) {
			open = append(open, address)
		}
	}
	switch {
	case len(open) == 0:
		*p = port{}
		return
	case p.url != "":
		return
	case p.skip > 0:
		p.skip--
		return
	}
	for _, address := range open {
		for _, path := range paths {
			if url := "http://" + address + path; s.isApp(ctx, url) {
				*p = port{url: url}
				return
			}
		}
	}
	p.misses++
	p.skip = min(p.misses, roundsMax) - 1
}

func isOpen(ctx context.Context, address string) bool {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// isApp tells whether an app answers at a URL.
func (s *Scanner) isApp(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	response, err := s.client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	io.Copy(io.Discard, io.LimitReader(response.Body, bodyMax)) //nolint:errcheck // nothing of it is used
	return response.StatusCode == http.StatusOK && response.Header.Get(wire.HeaderSDK) != ""
}
