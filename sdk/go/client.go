package nelkap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/play"
)

const (
	// patience is how long a request is tried again where the server can't be reached: about as long as a restart takes.
	patience = 30 * time.Second
	// requestTime bounds one try, beyond what the server may hold it.
	requestTime = 15 * time.Second
	// pauseMax is the longest pause between tries, unless the server asks for a longer one.
	pauseMax = 2 * time.Second
	// askedPauseMax is the longest pause that the server's Retry-After gets: more would use patience up for a single try.
	askedPauseMax = 5 * time.Second
	// responseBytesMax bounds what is read of a response.
	responseBytesMax = 64 << 20
)

// request is one request to the HTTP API. It is sent again with the same body where that can't do anything twice.
type request struct {
	method, path string
	body         []byte
	key          string        // Idempotency-Key; empty: the body has what makes it repeatable
	hold         time.Duration // how long the server may hold it
}

// target is where requests go: to the server of the call that ctx belongs to, else to the app's.
func (a *App) target(ctx context.Context) (address, apiKey string) {
	if f := play.From(ctx); f != nil && f.Playing.Client() == a {
		return f.Playing.SendTo()
	}
	s := a.settings()
	if play.StageOf(ctx) != nil {
		return play.StageURL, ""
	}
	if s.url == "" {
		return defaultURL, s.apiKey
	}
	return s.url, s.apiKey
}

// send sends r until it is answered, for as long as ctx and patience allow, and reads the answer into into.
func (a *App) send(ctx context.Context, r request, into any) error {
	address, key := a.target(ctx)
	started := time.Now()
	pause := 100 * time.Millisecond
	for first := true; ; first = false {
		again, asked, err := a.try(ctx, address, key, &r, into)
		if first && r.hold > 0 {
			started = time.Now() // what the server held it for was no failure
		}
		if (!first || inRun(ctx)) && r.method == http.MethodDelete && isAPIError(err, "not_found") {
			return nil // a try before this one removed it, or the code when it was played before
		}
		if err == nil || !again || ctx.Err() != nil || time.Since(started) > patience {
			return err
		}
		timer := time.NewTimer(max(pause, asked))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
		pause = min(2*pause, pauseMax)
	}
}

// try sends r once. again says that another try may succeed, asked is the pause before it that the server asks for.
func (a *App) try(caller context.Context, address, key string, r *request, into any) (again bool, asked time.Duration, err error) {
	ctx, cancel := context.WithTimeout(caller, r.hold+requestTime)
	defer cancel()
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	request, err := http.NewRequestWithContext(ctx, r.method, address+r.path, body)
	if err != nil {
		return false, 0, fmt.Errorf("nelkap: %w", err)
	}
	if r.body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	if r.key != "" {
		request.Header.Set("Idempotency-Key", r.key)
	}
	client := a.settings().client
	if stage := play.StageOf(ctx); stage != nil {
		stage.Met(a, a.settings().app)
		client = stage.Client()
	}
	response, err := client.Do(request)
	if err != nil && caller.Err() != nil {
		return false, 0, fmt.Errorf("nelkap: the context ended before the server at %s had answered: %w", address, context.Cause(caller))
	}
	if err != nil {
		return true, 0, fmt.Errorf("nelkap: the server at %s can't be reached: %w", address, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, responseBytesMax))
	if err != nil {
		return true, 0, fmt.Errorf("nelkap: reading the server's answer: %w", err)
	}
	if response.Header.Get("Nelkap-Sdk") != "" {
		return false, 0, fmt.Errorf("nelkap: an app answers at %s, and no Nelkap server: set NELKAP_URL to the server's address", address)
	}
	again, err = judge(response.StatusCode, text, into)
	return again, askedPause(response), err
}

// askedPause is the pause that a 429 or 503 asks for with Retry-After in seconds, bounded; 0 where none does.
func askedPause(response *http.Response) time.Duration {
	if response.StatusCode != http.StatusTooManyRequests && response.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	seconds, err := strconv.ParseUint(response.Header.Get("Retry-After"), 10, 32)
	if err != nil {
		return 0 // absent, or a date, which clocks that differ would make anything of
	}
	return min(time.Duration(seconds)*time.Second, askedPauseMax)
}

// judge reads an answer. again says that it is one that passes.
func judge(status int, text []byte, into any) (again bool, err error) {
	switch status {
	case http.StatusNoContent:
		return false, nil
	case http.StatusOK, http.StatusCreated:
		if err := json.Unmarshal(text, into); err != nil {
			return false, fmt.Errorf("nelkap: the server's answer is not what this SDK knows: is NELKAP_URL right? (%w)", err)
		}
		return false, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	}
	refused := &APIError{}
	_ = json.Unmarshal(text, refused) // a page that is no problem document leaves code and detail empty
	refused.Status = status
	if refused.Code == "" {
		refused.Code, refused.Detail = "unknown", http.StatusText(status)+": is NELKAP_URL the address of a Nelkap server?"
	}
	return again, refused
}

// frozen is true in code that is played without acting: what would act there answers as if it had.
func frozen(ctx context.Context) bool {
	f := play.From(ctx)
	return f != nil && f.Frozen()
}

// inRun is true where ctx belongs to a run of this app's process.
func inRun(ctx context.Context) bool { return play.From(ctx) != nil }

// isAPIError is true where err is the server's refusal with that code.
func isAPIError(err error, code string) bool {
	refused, ok := errors.AsType[*APIError](err)
	return ok && refused.Code == code
}
