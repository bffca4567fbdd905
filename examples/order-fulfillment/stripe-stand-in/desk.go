package standin

import (
	"encoding/json"
	"net/http"
)

// email is what the mail provider takes. order and template are for the marks: a real one calls such things tags.
type email struct {
	To       string `json:"to"`
	Subject  string `json:"subject"`
	Text     string `json:"text"`
	Order    string `json:"order"`
	Template string `json:"template"`
}

type ticket struct {
	ID    string `json:"id"`
	Order string `json:"order"`
}

// sendEmail sends one email for each Idempotency-Key, and one for each request without a key.
func (s *Server) sendEmail(w http.ResponseWriter, r *http.Request) {
	var mail email
	if !read(w, r, &mail) {
		return
	}
	if mail.To == "" || mail.Subject == "" {
		refuse(w, http.StatusUnprocessableEntity, "an email needs to and subject")
		return
	}
	send := func() answer {
		s.control.enter(r, holdWork)
		s.mu.Lock()
		defer s.mu.Unlock()
		id := s.id("email")
		s.mark(Mark{Mark: "email", Order: mail.Order, What: mail.Template, ID: id}, &s.counts.Emails)
		return object(map[string]string{"id": id})
	}
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		sent := send()
		s.control.enter(r, holdAnswer)
		sent.write(w)
		return
	}
	request, err := json.Marshal(mail)
	if err != nil {
		panic(err) // it was JSON before
	}
	scoped := "emails " + key
	kind, kept := s.keys.begin(scoped, string(request))
	switch kind {
	case again: // what is kept is the answer
	case differs:
		refuse(w, http.StatusConflict, "this Idempotency-Key sent another email")
		return
	case inUse:
		refuse(w, http.StatusConflict, "the first request with this Idempotency-Key still runs: try again later")
		return
	case first:
		kept = send()
		s.keys.keep(scoped, kept)
	}
	s.control.enter(r, holdAnswer)
	kept.write(w)
}

func (s *Server) findTickets(w http.ResponseWriter, r *http.Request) {
	s.control.enter(r, holdWork)
	s.mu.Lock()
	found := append([]ticket{}, s.tickets[r.URL.Query().Get("order")]...)
	s.mu.Unlock()
	s.control.enter(r, holdAnswer)
	reply(w, http.StatusOK, map[string][]ticket{"data": found})
}

// createTicket makes a ticket each time it is asked: the desk takes no key.
func (s *Server) createTicket(w http.ResponseWriter, r *http.Request) {
	var made ticket
	if !read(w, r, &made) {
		return
	}
	if made.Order == "" {
		refuse(w, http.StatusUnprocessableEntity, "a ticket needs an order")
		return
	}
	s.control.enter(r, holdWork)
	s.mu.Lock()
	made.ID = s.id("ticket")
	s.tickets[made.Order] = append(s.tickets[made.Order], made)
	s.mark(Mark{Mark: "ticket", Order: made.Order, ID: made.ID}, &s.counts.Tickets)
	s.mu.Unlock()
	s.control.enter(r, holdAnswer)
	reply(w, http.StatusCreated, made)
}

// read decodes a JSON body; where it is none it answers and returns false.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		refuse(w, http.StatusBadRequest, "the body is not the JSON that was expected: "+err.Error())
		return false
	}
	return true
}

func refuse(w http.ResponseWriter, status int, message string) {
	reply(w, status, map[string]string{"message": message})
}
