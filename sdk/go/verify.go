package nelkap

import (
	"net/http"
	"strconv"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

const (
	// verifyTime is how long the code of a verify has where the server names no limit, and verifyTimeMax whatever it names.
	verifyTime    = 5 * time.Second
	verifyTimeMax = time.Minute
)

// verify plays a run's code against its history without acting (D3). It is no call: nothing names it to the server, and Shutdown does not
// wait for it, since code that never comes to rest goes on for as long as it likes.
func (a *App) verify(w http.ResponseWriter, request *wire.Request) *refusal {
	call := &request.Call
	switch {
	case call.Run.ID == "":
		return badRequest("a verify needs a run")
	case call.Steps.Next != nil || call.Ending != nil:
		return badRequest("a verify has the whole history in one page, and is not for a run that closes")
	}
	d, refused := a.declared(call.Run.Workflow)
	if refused != nil {
		return refused
	}
	limit := time.Duration(min(request.LimitMs, verifyTimeMax.Milliseconds())) * time.Millisecond
	if limit <= 0 {
		limit = verifyTime
	}
	s := a.settings()
	address := s.url
	if address == "" {
		address = defaultURL
	}
	host := a.host
	host.Done = func(*play.Playing) {}
	liftDeadlines(w)
	p := play.Start(&host, play.Config{
		Call: call, URL: address, APIKey: s.apiKey, Retries: d.retriesOr(defaultRetries), Code: a.code(call, d), Verify: limit,
	})
	answer := <-p.Answers() // which comes within the limit
	w.Header().Set("Content-Type", wire.ContentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(answer.Body)))
	w.Write(answer.Body)
	return nil
}
