package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// answerBytesMax is far above any answer that the demo gets.
const answerBytesMax = 16 << 20

var client = &http.Client{Timeout: time.Minute}

// request sends JSON and reads JSON; a nil body sends none, a nil into reads none.
func request(ctx context.Context, method, address string, body, into any) error {
	var text bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&text).Encode(body); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, address, &text)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, answerBytesMax))
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s %s was answered %d: %s", method, address, response.StatusCode, bytes.TrimSpace(answer))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

// outside is the stand-in's control.
type outside struct{ url string }

// hold has the answer to the next charge of a shop held back.
func (o outside) hold(ctx context.Context, prefix string) (*hold, error) {
	var made struct {
		ID string `json:"id"`
	}
	wanted := map[string]string{"path": "/v1/payment_intents", "keyPrefix": "charge_" + prefix, "at": "answer"}
	err := request(ctx, http.MethodPost, o.url+"/control/holds", wanted, &made)
	return &hold{url: o.url + "/control/holds/" + made.ID}, err
}

// slow makes every answer from outside take that long, so that many orders are under way at a time.
func (o outside) slow(ctx context.Context, pace time.Duration) error {
	return request(ctx, http.MethodPut, o.url+"/control/pace", map[string]int64{"delayMs": pace.Milliseconds()}, nil)
}

// hold is an answer held back.
type hold struct{ url string }

// order waits until a charge is held, and says for which order.
func (h *hold) order(ctx context.Context) (string, error) {
	var state struct {
		Holding bool   `json:"holding"`
		Key     string `json:"key"`
	}
	if err := request(ctx, http.MethodGet, h.url+"?waitMs=30000", nil, &state); err != nil {
		return "", err
	}
	if !state.Holding {
		return "", fmt.Errorf("no charge came within half a minute")
	}
	return strings.TrimPrefix(state.Key, "charge_"), nil
}

func (h *hold) release(ctx context.Context) error {
	return request(ctx, http.MethodDelete, h.url, nil, nil)
}

// api is the server's HTTP API.
type api struct{ url string }

// runRecord is what of a run the demo looks at.
type runRecord struct {
	ID       string          `json:"id"`
	Workflow string          `json:"workflow"`
	App      string          `json:"app"`
	Status   string          `json:"status"`
	Payload  json.RawMessage `json:"payload"`
	Error    *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// eventRecord is what of an event the demo looks at.
type eventRecord struct {
	Payload json.RawMessage `json:"payload"`
}

func (a api) emit(ctx context.Context, event string, payload any) error {
	return request(ctx, http.MethodPost, a.url+"/v1/events", map[string]any{"event": event, "payload": payload}, nil)
}

func (a api) hook(ctx context.Context, name string, body any) error {
	return request(ctx, http.MethodPost, a.url+"/hooks/"+name, body, nil)
}

func (a api) readyApps(ctx context.Context) ([]string, error) {
	var apps struct {
		Data []struct {
			Name   *string `json:"name"`
			Status string  `json:"status"`
		} `json:"data"`
	}
	if err := request(ctx, http.MethodGet, a.url+"/v1/apps", nil, &apps); err != nil {
		return nil, err
	}
	var ready []string
	for _, app := range apps.Data {
		if app.Name != nil && app.Status == "ready" {
			ready = append(ready, *app.Name)
		}
	}
	return ready, nil
}

func (a api) runs(ctx context.Context) ([]runRecord, error) {
	return all[runRecord](ctx, a.url+"/v1/runs", nil)
}

func (a api) events(ctx context.Context, name string) ([]eventRecord, error) {
	return all[eventRecord](ctx, a.url+"/v1/events", url.Values{"event": {name}})
}

// all reads a list page by page.
func all[Row any](ctx context.Context, address string, query url.Values) ([]Row, error) {
	if query == nil {
		query = url.Values{}
	}
	query.Set("limit", "100")
	var rows []Row
	for {
		var page struct {
			Data       []Row   `json:"data"`
			NextCursor *string `json:"nextCursor"`
		}
		if err := request(ctx, http.MethodGet, address+"?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		rows = append(rows, page.Data...)
		if page.NextCursor == nil {
			return rows, nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}
