package httpapi

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// Bounds of the memory of bodies that come without a key: whoever can reach the port may begin many, and pause.
const (
	bodiesBytesMax = 256 << 20 // sixteen of the largest at once
	bodyBytesFree  = 64 << 10  // of each body, not counted: as many as its headers may have
	bodyBytesFirst = 512       // room for a body that does not say its length
	bodyBytesWord  = 1 << 20   // room that a body is given on its word, once it has outgrown what is free

	bodyBytesDropped = 16 << 20 // of a body that was refused, read so that its sender gets the answer
)

// budget is a number of bytes that those who read bodies share. Nobody waits for it: who waits holds a connection and what it has read.
type budget struct{ used atomic.Int64 }

// take gives n bytes, or none.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) <= bodiesBytesMax {
		return true
	}
	b.used.Add(-n)
	return false
}

// body is a request's body as it comes. What it may hold in memory is its own until it is done.
type body struct {
	bytes []byte
	taken int64
	of    *budget
}

// done gives back what was taken. It may be called twice.
func (b *body) done() {
	b.of.used.Add(-b.taken)
	b.taken = 0
}

// grow makes room for n bytes; false if the budget has none.
func (b *body) grow(n int64) bool {
	if n > bodyBytesFree {
		if !b.of.take(n) {
			return false
		}
		b.taken += n
	}
	larger := make([]byte, len(b.bytes), n)
	copy(larger, b.bytes)
	if held := int64(cap(b.bytes)); held > bodyBytesFree {
		b.of.used.Add(-held)
		b.taken -= held
	}
	b.bytes = larger
	return true
}

var errNoRoom = errors.New("too many large bodies at once")

// read reads a body of at most most bytes to its end. Its room is doubled as it comes, whatever it says of itself, unless that is little.
func (b *body) read(from io.Reader, says, most int64) error {
	if !b.grow(min(max(says+1, bodyBytesFirst), bodyBytesFree)) {
		return errNoRoom
	}
	for {
		if len(b.bytes) == cap(b.bytes) {
			larger := 2 * int64(cap(b.bytes))
			if says < bodyBytesWord {
				larger = max(larger, says+1)
			}
			if !b.grow(min(larger, most+1)) {
				return errNoRoom
			}
		}
		n, err := from.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// limitBody bounds the time in which a request's body has to be here, whether it is read or not: net/http waits for the rest of one that was
// not, and would do so for ever. It stands until who reads the body has read all of it.
func limitBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		to := http.NewResponseController(w)
		to.SetReadDeadline(time.Now().Add(bodyTimeout)) //nolint:errcheck // not every writer has deadlines; the limits of size hold without
		to.EnableFullDuplex()                           //nolint:errcheck // so that net/http leaves the rest of a body to drop
	}
}

// sent is a request's body as its sender sends it.
type sent struct {
	io.Reader
	begun, ended bool
}

func (s *sent) Read(b []byte) (int, error) {
	s.begun = true
	n, err := s.Reader.Read(b)
	s.ended = s.ended || errors.Is(err, io.EOF)
	return n, err
}

// Close leaves what was not read to drop.
func (s *sent) Close() error { return nil }

// drop reads the rest of a body whose request has been answered, within limits of size and of time, and keeps none of it. A sender who is
// still sending may never see the answer of a connection that closes meanwhile (RFC 9112, section 9.6).
func (s *sent) drop(w http.ResponseWriter, r *http.Request) {
	asked := r.Header.Get("Expect") != "" // before it sends, and was not told to
	if s.ended || r.ContentLength == 0 || asked && !s.begun {
		return
	}
	http.NewResponseController(w).Flush()            //nolint:errcheck // a writer that can't send at once does so in the end
	io.CopyN(io.Discard, s.Reader, bodyBytesDropped) //nolint:errcheck // what goes wrong with the rest changes no answer
}

// readBody reads a whole body of a route that needs no key, within its limit, in time, and within what all of them may hold: done gives
// that back.
func (a *api) readBody(w http.ResponseWriter, r *http.Request, bytesMax int64) (bytes []byte, done func(), err error) {
	b := &body{of: &a.bodies}
	err = b.read(http.MaxBytesReader(w, r.Body, bytesMax), r.ContentLength, bytesMax)
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		http.NewResponseController(w).SetReadDeadline(time.Time{}) //nolint:errcheck // as in limitBody: what follows may last
		return b.bytes, b.done, nil
	case errors.As(err, &tooLarge):
		err = problem(http.StatusRequestEntityTooLarge, "body_too_large", "the body has more than "+strconv.FormatInt(bytesMax, 10)+" bytes: have its sender send less, or a reference")
	case errors.Is(err, errNoRoom):
		err = problem(http.StatusTooManyRequests, "busy", "too many large bodies are being sent at once: try again after Retry-After")
	default:
		err = problem(http.StatusBadRequest, "bad_request", "the body did not arrive whole")
	}
	b.done()
	return nil, nil, err
}
