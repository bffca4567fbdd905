package standin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// keyCharsMax is the longest idempotency key that Stripe takes.
const keyCharsMax = 255

// stripeError is an error in the shape that Stripe's client libraries read.
type stripeError struct {
	status      int
	Type        string         `json:"type"`
	Code        string         `json:"code,omitempty"`
	DeclineCode string         `json:"decline_code,omitempty"`
	Param       string         `json:"param,omitempty"`
	Message     string         `json:"message"`
	Intent      *paymentIntent `json:"payment_intent,omitempty"`
}

func (e *stripeError) answer() answer {
	text, err := json.Marshal(map[string]*stripeError{"error": e})
	if err != nil {
		panic(err) // the type above is JSON
	}
	return answer{status: e.status, body: text}
}

func invalid(param, code, message string) *stripeError {
	return &stripeError{status: http.StatusBadRequest, Type: "invalid_request_error", Code: code, Param: param, Message: message}
}

// stripePost answers a POST of Stripe's API. check refuses what never begins; run carries out what check let pass, and its
// answer is kept under the request's key, also where it is an error.
func (s *Server) stripePost(check func(url.Values) *stripeError, run func(url.Values) answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		account, refusal := authenticate(r)
		if refusal == nil {
			refusal = readForm(r)
		}
		if refusal != nil {
			refusal.answer().write(w)
			return
		}
		request := func() answer {
			s.control.enter(r, holdWork)
			if failure := s.control.failure(r.URL.Path); failure != 0 {
				// Stripe may fail before or after the effect. After it is the worse case, so this is it.
				run(r.PostForm)
				return (&stripeError{status: failure, Type: "api_error", Message: "Something went wrong on Stripe's end."}).answer()
			}
			return run(r.PostForm)
		}
		key := r.Header.Get("Idempotency-Key")
		if key == "" {
			s.unkeyed(w, r, check, request)
			return
		}
		w.Header().Set("Idempotency-Key", key)
		scoped := account + " " + key
		kind, kept := s.keys.begin(scoped, r.Method+" "+r.URL.Path+"?"+r.PostForm.Encode())
		switch kind {
		case again:
			w.Header().Set("Idempotent-Replayed", "true")
		case differs:
			kept = keyDiffers(key).answer()
		case inUse:
			kept = keyInUse(key).answer()
		case first:
			if refusal := check(r.PostForm); refusal != nil {
				s.keys.forget(scoped)
				kept = refusal.answer()
				break
			}
			kept = request()
			s.keys.keep(scoped, kept)
		}
		s.control.enter(r, holdAnswer)
		kept.write(w)
	}
}

func (s *Server) unkeyed(w http.ResponseWriter, r *http.Request, check func(url.Values) *stripeError, request func() answer) {
	if refusal := check(r.PostForm); refusal != nil {
		refusal.answer().write(w)
		return
	}
	a := request()
	s.control.enter(r, holdAnswer)
	a.write(w)
}

func keyDiffers(key string) *stripeError {
	return &stripeError{
		status: http.StatusBadRequest, Type: "idempotency_error",
		Message: fmt.Sprintf("Keys for idempotent requests can only be used with the same parameters they were first used with. "+
			"Try using a key other than '%s' if you meant to execute a different request.", key),
	}
}

func keyInUse(key string) *stripeError {
	return &stripeError{
		status: http.StatusConflict, Type: "invalid_request_error", Code: "idempotency_key_in_use",
		Message: "There is currently another in-progress request using this Idempotent Key (that probably means you submitted " +
			"twice, and the other request is still going through): " + key + ". Please try again later.",
	}
}

// authenticate gives the account, which any secret key names.
func authenticate(r *http.Request) (account string, refusal *stripeError) {
	account, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || !strings.HasPrefix(account, "sk_") {
		return "", &stripeError{
			status: http.StatusUnauthorized, Type: "invalid_request_error",
			Message: "You did not provide an API key: send 'Authorization: Bearer sk_test_…'. The stand-in takes any text that begins with sk_.",
		}
	}
	return account, nil
}

func readForm(r *http.Request) *stripeError {
	if kind := r.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/x-www-form-urlencoded") {
		return invalid("", "", fmt.Sprintf("Bodies are form-encoded, not %q.", kind))
	}
	if err := r.ParseForm(); err != nil {
		return invalid("", "", "The body is not form-encoded: "+err.Error())
	}
	if len(r.Header.Get("Idempotency-Key")) > keyCharsMax {
		return invalid("", "", fmt.Sprintf("Idempotency keys have up to %d characters.", keyCharsMax))
	}
	return nil
}

// metadata reads metadata[name]=value.
func metadata(form url.Values) map[string]string {
	found := map[string]string{}
	for field := range form {
		if name, ok := strings.CutPrefix(field, "metadata["); ok && strings.HasSuffix(name, "]") {
			found[strings.TrimSuffix(name, "]")] = form.Get(field)
		}
	}
	return found
}
