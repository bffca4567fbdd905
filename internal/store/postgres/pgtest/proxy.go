package pgtest

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Cut is where a Proxy cuts a connection.
type Cut int32

// The places of cuts.
const (
	CutNowhere Cut = iota
	// CutBeforeBegin: what begins a transaction does not reach the server.
	CutBeforeBegin
	// CutAfterBegin: what begins a transaction reaches the server, and its answer is lost.
	CutAfterBegin
	// StallAfterBegin: as CutAfterBegin, but both sides keep the connection, as when the client stands still.
	StallAfterBegin
	// StrandAfterBegin: as StallAfterBegin, but nobody takes the answer, which may be more than goes out before it is taken.
	StrandAfterBegin
	// CutBeforeCommit: the COMMIT does not reach the server.
	CutBeforeCommit
	// CutAfterCommit: the server has committed, and its answer is lost.
	CutAfterCommit
	// CutBeforeAny: what a client sends does not reach the server, whatever it is.
	CutBeforeAny
	// CutAfterAny: it reaches the server, and its answer is lost.
	CutAfterAny
)

// Proxy stands between a client and a server, and cuts a connection where it is told to, or holds back all that goes through.
type Proxy struct {
	Port int

	cut  atomic.Int32 // a Cut, which is done once
	pass atomic.Int32 // so many places of that kind are passed over before
	cuts atomic.Int32
	busy sync.WaitGroup
	mu   sync.Mutex
	held chan struct{} // closed when what is held may go on; nil while nothing is. Guarded by mu, as is what follows.
	// made counts the connections. Of those up to stranded all is held.
	made, stranded int
}

// Proxy starts a proxy before the server; it goes with the test.
func (s *Server) Proxy(t testing.TB) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Port: listener.Addr().(*net.TCPAddr).Port}
	p.busy.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // it was closed
			}
			p.busy.Go(func() { p.serve(client, s.Port) })
		}
	})
	t.Cleanup(func() {
		p.Release()
		listener.Close()
		p.busy.Wait()
	})
	return p
}

// Hold has nothing go through, in either direction, as a network does that drops packets: what comes meanwhile goes on with Release. It may
// be called twice.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold(math.MaxInt)
}

// Strand is Hold for the connections that are there, as when a server has lost its power and another one has taken its address: new ones lead on.
func (p *Proxy) Strand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold(p.made)
}

// hold holds what goes through the first so many connections. mu is held.
func (p *Proxy) hold(connections int) {
	p.stranded = connections
	if p.held == nil {
		p.held = make(chan struct{})
	}
}

// Release ends Hold and Strand. It may be called twice.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// count counts a connection.
func (p *Proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made++
	return p.made
}

// wait returns when what has come on a connection may go on.
func (p *Proxy) wait(connection int) {
	p.mu.Lock()
	held := p.held
	if connection > p.stranded {
		held = nil
	}
	p.mu.Unlock()
	if held != nil {
		<-held
	}
}

// URL is a database's, through the proxy.
func (p *Proxy) URL(database string) string { return url(p.Port, database) }

// CutOnce cuts the next connection that comes to that place.
func (p *Proxy) CutOnce(at Cut) { p.CutNth(at, 1) }

// CutNth cuts at the n-th such place from now, counted from one, on whatever connection it is.
func (p *Proxy) CutNth(at Cut, n int) {
	p.pass.Store(int32(n - 1))
	p.cut.Store(int32(at))
}

// Cuts is how many connections were cut.
func (p *Proxy) Cuts() int { return int(p.cuts.Load()) }

func (p *Proxy) serve(client net.Conn, port int) {
	defer client.Close()
	server, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return
	}
	defer server.Close()
	var silent, stalled atomic.Bool
	connection := p.count()
	p.busy.Go(func() {
		defer client.Close()
		defer server.Close()
		if _, err := io.Copy(&answers{client, &silent, &stalled, p, connection}, server); err != nil {
			return // one of the two has gone
		}
	})
	buffer := make([]byte, 1<<20)
	for {
		n, err := client.Read(buffer)
		p.wait(connection)
		if err != nil {
			return
		}
		switch p.takeCut(buffer[:n]) {
		case CutBeforeBegin, CutBeforeCommit, CutBeforeAny:
			return
		case StallAfterBegin:
			stalled.Store(true)
		case StrandAfterBegin:
			p.Strand()
		case CutAfterBegin, CutAfterCommit, CutAfterAny:
			silent.Store(true)
		default:
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// takeCut tells whether what a client sends is where it is to be cut.
func (p *Proxy) takeCut(sent []byte) Cut {
	cut := Cut(p.cut.Load())
	word := []byte("BEGIN ISOLATION LEVEL READ COMMITTED")
	if cut == CutBeforeCommit || cut == CutAfterCommit {
		word = []byte("COMMIT\x00")
	}
	if cut == CutBeforeAny || cut == CutAfterAny {
		word = nil
	}
	if cut == CutNowhere || !bytes.Contains(sent, word) || p.pass.Add(-1) >= 0 || !p.cut.CompareAndSwap(int32(cut), int32(CutNowhere)) {
		return CutNowhere
	}
	p.cuts.Add(1)
	return cut
}

// answers hands a server's answers on. Once it is silent the first ends the connection; once it is stalled they go nowhere.
type answers struct {
	to              io.Writer
	silent, stalled *atomic.Bool
	proxy           *Proxy
	connection      int
}

func (a *answers) Write(b []byte) (int, error) {
	a.proxy.wait(a.connection)
	if a.silent.Load() {
		return 0, io.ErrClosedPipe
	}
	if a.stalled.Load() {
		return len(b), nil
	}
	return a.to.Write(b)
}
