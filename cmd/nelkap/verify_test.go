package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/call"
)

// A page of a verify is there before the client gives up, also where the app is slow with each run: four are played at once.
func TestAVerifyAsksForPagesThatComeInTime(t *testing.T) {
	const side, answerWithin = 4, 60 * time.Second
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Limit  int
			Cursor string
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		if took := time.Duration((body.Limit+side-1)/side) * call.VerifyLimit; body.Limit == 0 || took > answerWithin/2 {
			t.Errorf("a page of %d may take %v", body.Limit, took)
		}
		answer := `{"app":"shop","data":[],"nextCursor":"more"}`
		if asked++; asked == 2 {
			answer = `{"app":"shop","data":[],"nextCursor":null}`
			if body.Cursor != "more" {
				t.Errorf("the second page begins at %q", body.Cursor)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(answer))
	}))
	defer server.Close()
	if code, said := ask(t, nil, "verify", "--url", server.URL, "--app", "http://shop"); code != exitOK || asked != 2 {
		t.Errorf("exit code %d after %d pages: %s", code, asked, said)
	}
}
