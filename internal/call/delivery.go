package call

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// errTooLate: no connection was there within SendWithin of the begin.
var errTooLate = errors.New("too late to send")

// conn is a connection to an app. It tells the delivery that uses it when the first bytes go out. Connections carry one request
// at a time (HTTP/1.1 without pipelining), so the first write after a delivery got the connection is that request's. With TLS
// it sits below the encryption; a TLS alert counts as a write of the request, which errs on the safe side.
//
// Only net.Conn's methods are visible, so that no transport writes past Write.
type conn struct {
	net.Conn
	delivery atomic.Pointer[delivery]
	broken   atomic.Bool // a read has failed: the other side closed, or the network did
}

// Read reads, and remembers when there is no more to come.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.broken.Store(true)
	}
	return n, err
}

// Write hands bytes to the network, unless they are a request's first and come too late.
func (c *conn) Write(p []byte) (int, error) {
	d := c.delivery.Swap(nil)
	if d != nil && !d.begin() {
		return 0, errTooLate
	}
	n, err := c.Conn.Write(p)
	if d != nil {
		d.wrote(n)
	}
	return n, err
}

// delivery is what is known of one request on its way. The transport's goroutines report to it.
type delivery struct {
	before time.Time // the latest moment to send

	mu       sync.Mutex
	sent     bool   // bytes were handed to the network, or are being handed now
	expired  bool   // nothing may be sent any more
	conn     *conn  // that it got; nil before, and where the connection is not ours
	answered bool   // a first byte of an answer came
	onSent   func() // nil once called, or once Do has returned
}

func newDelivery(request Request) *delivery {
	before := request.SendBefore
	if before.IsZero() {
		before = time.Now().Add(SendWithin)
	}
	return &delivery{before: before, onSent: request.Sent}
}

// got is told of the connection that the request will be written to, before it is.
func (d *delivery) got(c net.Conn) {
	if encrypted, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = encrypted.NetConn()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	ours, ok := c.(*conn)
	if !ok {
		d.sent = true // nothing can be proved of such a connection
		return
	}
	d.conn = ours
	ours.delivery.Store(d)
}

// expire makes sure that nothing is sent from now on, and tells whether nothing was.
func (d *delivery) expire() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expired = !d.sent
	return d.expired
}

// begin tells whether the first bytes may go out.
func (d *delivery) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.expired || time.Now().After(d.before) {
		d.expired = true
		return false
	}
	d.sent = true
	return true
}

// wrote is told how many of the first bytes the network took.
func (d *delivery) wrote(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n == 0 {
		d.sent = false
		return
	}
	if d.onSent != nil {
		d.onSent()
		d.onSent = nil
	}
}

// broken tells whether the connection broke before the answer was in.
func (d *delivery) broken() bool { return d.conn != nil && d.conn.broken.Load() }

// answering is told that an answer has begun to arrive.
func (d *delivery) answering() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answered = true
}

// close makes sure that Sent is not called any more.
func (d *delivery) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.onSent = nil
}
