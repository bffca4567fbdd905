package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/httpapi"
	"github.com/nelkap/nelkap/internal/store/memory"
)

// Rule N5: a held store takes nothing new, from nobody, and whoever asks may try again. Reads and cancels pass.
func TestAHeldStoreAnswersReadsAndCancelsAlone(t *testing.T) {
	s := memory.New()
	h := httpapi.New(httpapi.Options{Engine: engine.New(s, nil, engine.Options{Held: true}), Reader: s, Hooks: hooks(t), Held: true})
	for route, want := range map[string]int{
		"POST /v1/runs":                    http.StatusServiceUnavailable,
		"POST /v1/runs/run_1/replay":       http.StatusServiceUnavailable,
		"POST /v1/events":                  http.StatusServiceUnavailable,
		"POST /v1/saves":                   http.StatusServiceUnavailable,
		"POST /v1/heartbeats":              http.StatusServiceUnavailable,
		"POST /v1/ends":                    http.StatusServiceUnavailable,
		"POST /hooks/stripe":               http.StatusServiceUnavailable,
		"POST /callbacks/abc":              http.StatusServiceUnavailable,
		"PUT /v1/schedules/daily":          http.StatusServiceUnavailable,
		"GET /v1/runs":                     http.StatusOK,
		"GET /v1/apps":                     http.StatusOK,
		"GET /healthz":                     http.StatusOK,
		"GET /readyz":                      http.StatusOK,
		"POST /v1/runs/run_1/cancel":       http.StatusNotFound,
		"GET /v1/runs/run_1":               http.StatusNotFound,
		"POST /v1/nothing/of/that/kind":    http.StatusNotFound,
		"DELETE /v1/runs/run_1/cancel/not": http.StatusNotFound,
	} {
		method, path, _ := strings.Cut(route, " ")
		answer := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader("{}"))
		request.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(answer, request)
		if answer.Code != want {
			t.Errorf("%s: %d %s, want %d", route, answer.Code, answer.Body, want)
		}
		if says := strings.Contains(answer.Body.String(), `"held":true`); says != (path == "/readyz") {
			t.Errorf("%s: %s", route, answer.Body)
		}
		isHeld := strings.Contains(answer.Body.String(), `"code":"held"`) && strings.Contains(answer.Body.String(), "restore --go-on") && answer.Header().Get("Retry-After") != ""
		if isHeld != (want == http.StatusServiceUnavailable) {
			t.Errorf("%s: %s", route, answer.Body)
		}
	}
}
