package nelkap_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/step"
)

type Invoice struct {
	ID string `json:"id"`
}

// A workflow is a function in steps; the app is an http.Handler that serves it.
func Example() {
	app := nelkap.New(nelkap.Options{App: "shop"})

	nelkap.NewWorkflow(app, "send invoice", func(ctx context.Context, orderID string) (Invoice, error) {
		id, err := step.Run(ctx, "invoice id", func(ctx context.Context) (string, error) { return "inv_" + orderID, nil })
		if err != nil {
			return Invoice{}, err
		}
		err = step.Do(ctx, "invoice", func(ctx context.Context) error {
			return createInvoice(ctx, id, step.IdempotencyKey(ctx))
		}, step.Timeout(30*time.Second))
		return Invoice{ID: id}, err
	}, nelkap.OnEvent("order.paid"), nelkap.Retries(4))

	mux := http.NewServeMux()
	mux.Handle("/api/nelkap", app)

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/nelkap", nil))
	fmt.Println(w.Body)
	// Output: {"nelkap":true}
}

func createInvoice(context.Context, string, string) error { return nil }

// Start a run with a key: a second start answers the first run.
func ExampleRun() {
	server := exampleServer(`{"id":"run_01h455vb4pex5vsknk084sn02q","workflow":"send invoice","created":false}`)
	defer server.Close()
	app := nelkap.New(nelkap.Options{URL: server.URL})
	sendInvoice := nelkap.NewWorkflow(app, "send invoice", func(ctx context.Context, orderID string) (Invoice, error) {
		return Invoice{}, nil
	})

	run, err := nelkap.Run(context.Background(), sendInvoice, "o_1", nelkap.Key("o_1"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.ID, run.Created)
	// Output: run_01h455vb4pex5vsknk084sn02q false
}

func ExampleApp_Emit() {
	server := exampleServer(`[{"id":"paid o_1","created":true}]`)
	defer server.Close()
	app := nelkap.New(nelkap.Options{URL: server.URL})

	emitted, err := app.Emit(context.Background(), nelkap.Event{Name: "order.paid", Payload: "o_1", ID: "paid o_1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(emitted[0].ID, emitted[0].Created)
	// Output: paid o_1 true
}

func ExampleHandle_Result() {
	server := exampleServer(`{"id":"run_1","created":true,"status":"failed","error":{"name":"CardError","message":"no money"}}`)
	defer server.Close()
	app := nelkap.New(nelkap.Options{URL: server.URL})
	charge := nelkap.Ref[string, Invoice](app, "charge", nelkap.InApp("billing"))

	run, err := nelkap.Run(context.Background(), charge, "o_1")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = run.Result(context.Background())
	var failed *nelkap.RunError
	if errors.As(err, &failed) {
		fmt.Println(failed.Name, failed.Message)
	}
	// Output: CardError no money
}

func ExampleNonRetriable() {
	err := nelkap.NonRetriable(fmt.Errorf("charging: %w", errNoMoney))
	fmt.Println(err, errors.Is(err, errNoMoney))
	// Output: charging: no money true
}

var errNoMoney = errors.New("no money")

// exampleServer answers every request with text.
func exampleServer(text string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, text) }))
}
