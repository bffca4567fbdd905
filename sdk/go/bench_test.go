package nelkap_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// BenchmarkSteps has runs of 50 steps of 100 bytes in flight, against a server that answers at once, over loopback. The
// server's half of the work is in the figures. Besides the time per step it says how many steps went into a save.
func BenchmarkSteps(b *testing.B) {
	for _, flight := range []int{1, 16, 128} {
		b.Run(strconv.Itoa(flight), func(b *testing.B) { benchmarkSteps(b, flight) })
	}
}

const stepsPerRun = 50

func benchmarkSteps(b *testing.B, flight int) {
	var requests, entry atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		out := []byte(`{"saves":[`)
		var message struct{ Saves []struct{ Call string } }
		json.Unmarshal(body, &message)
		for i, s := range message.Saves {
			if i > 0 {
				out = append(out, ',')
			}
			out = fmt.Appendf(out, `{"call":%q,"status":"accepted","items":[{"status":"saved","entry":%d}],"entries":[],"ending":null}`, s.Call, entry.Add(1))
		}
		w.Write(append(out, "]}"...))
	}))
	defer server.Close()
	result := string(bytes.Repeat([]byte("x"), 98))
	app := nelkap.New(nelkap.Options{SigningKey: testKey, URL: server.URL})
	nelkap.NewWorkflow(app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
		for range stepsPerRun {
			if _, err := step.Run(ctx, "a", func(context.Context) (string, error) { return result, nil }); err != nil {
				return err
			}
		}
		return nil
	}))
	var call atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	for b.Loop() {
		for range flight {
			wg.Go(func() {
				text := fmt.Appendf(nil, `{"type":"call","run":{"id":"run_1","workflow":"w","root":"run_1"},"steps":{"entries":[]},"call":{"id":"call_%d","token":"t","leaseMs":300000,"heartbeatMs":5000}}`, call.Add(1))
				w := httptest.NewRecorder()
				app.ServeHTTP(w, signed(context.Background(), text))
				if w.Code != 200 {
					b.Errorf("%d %s", w.Code, w.Body)
				}
			})
		}
		wg.Wait()
	}
	steps := float64(call.Load()) * stepsPerRun
	b.ReportMetric(steps/b.Elapsed().Seconds(), "steps/s")
	b.ReportMetric(steps/float64(requests.Load()), "steps/save")
}
