// Package standin is what the order fulfillment examples find outside themselves, on one machine and without accounts: as
// much of Stripe's API as they use, a mail provider, and a ticket desk.
//
// Payments keep Stripe's documented rules for idempotency keys (file keys.go), so that Stripe's own client libraries work
// against it. The mail provider takes keys too. The ticket desk takes none: whoever asks twice gets two tickets.
//
// Everything that would leave a trace in the world, such as a charge, is written down as a mark. The paths below /control
// hold an answer back, fail a request or slow all of them down: they are how the demo and the tests cut a caller off at a
// chosen moment. State lives in memory; only marks outlive the process.
package standin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// bodyBytesMax is far above any request of the examples.
const bodyBytesMax = 1 << 20

// Server answers for Stripe, the mail provider and the ticket desk. It is an http.Handler.
type Server struct {
	mux     *http.ServeMux
	keys    *keys
	control *control
	now     func() time.Time

	mu      sync.Mutex // guards what follows, marks included
	marks   io.Writer
	counts  Counts
	intents map[string]*paymentIntent
	tickets map[string][]ticket // by order
	drawn   int                 // ids drawn
}

// Counts says how often each effect happened.
type Counts struct {
	Charges int `json:"charges"`
	Refunds int `json:"refunds"`
	Emails  int `json:"emails"`
	Tickets int `json:"tickets"`
}

// New makes a Server that writes its marks to marks, one line of JSON each. now is the clock that idempotency keys grow old
// by; nil is time.Now.
func New(marks io.Writer, now func() time.Time) *Server {
	if now == nil {
		now = time.Now
	}
	s := &Server{
		mux: http.NewServeMux(), keys: newKeys(now), control: newControl(), now: now,
		marks: marks, intents: map[string]*paymentIntent{}, tickets: map[string][]ticket{},
	}
	s.mux.HandleFunc("POST /v1/payment_intents", s.stripePost(s.checkPaymentIntent, s.createPaymentIntent))
	s.mux.HandleFunc("GET /v1/payment_intents/{id}", s.getPaymentIntent)
	s.mux.HandleFunc("POST /v1/refunds", s.stripePost(s.checkRefund, s.createRefund))
	s.mux.HandleFunc("POST /emails", s.sendEmail)
	s.mux.HandleFunc("GET /tickets", s.findTickets)
	s.mux.HandleFunc("POST /tickets", s.createTicket)
	s.mux.HandleFunc("GET /control/counts", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, s.Counts()) })
	s.mux.HandleFunc("POST /control/holds", s.control.addHold)
	s.mux.HandleFunc("GET /control/holds/{id}", s.control.getHold)
	s.mux.HandleFunc("DELETE /control/holds/{id}", s.control.releaseHold)
	s.mux.HandleFunc("POST /control/failures", s.control.addFailure)
	s.mux.HandleFunc("PUT /control/pace", s.control.setPace)
	return s
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, bodyBytesMax)
	s.mux.ServeHTTP(w, r)
}

// Counts says how often each effect happened so far.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Mark is one trace in the world.
type Mark struct {
	Mark  string `json:"mark"` // charge, refund, email or ticket
	Order string `json:"order"`
	What  string `json:"what,omitempty"` // an email's template
	ID    string `json:"id"`
}

// mark writes an effect down and counts it. s.mu is held. Where it can't be written the request ends here, without an answer
// and without being counted: net/http closes the connection and goes on with others.
func (s *Server) mark(m Mark, count *int) {
	line, err := json.Marshal(m)
	if err == nil {
		_, err = s.marks.Write(append(line, '\n'))
	}
	if err != nil {
		panic(fmt.Errorf("writing the mark of a %s: %w", m.Mark, err))
	}
	*count++
}

// id draws an id that looks like the provider's. s.mu is held.
func (s *Server) id(prefix string) string {
	s.drawn++
	return fmt.Sprintf("%s_standin%06d", prefix, s.drawn)
}

func reply(w http.ResponseWriter, status int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer{status: status, body: text}.write(w)
}

// answer is an answer that can be kept and given again.
type answer struct {
	status int
	body   []byte
}

func (a answer) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	w.Write(a.body)
}
