// Command order-fulfillment is a shop whose orders survive crashes, with one charge, one email and one row each. README.md
// says what each file shows and how to run it.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
)

// stopTime is how long running bodies get when the process is asked to end.
const stopTime = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serve(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "shop-go:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context) (err error) {
	app := nelkap.New(nelkap.Options{App: shopName})
	shop, err := OpenShop(ctx, app, Settings{
		Database: cmp.Or(os.Getenv("SHOP_DATA"), "./shop.db"),
		Outside:  cmp.Or(os.Getenv("SHOP_OUTSIDE"), "http://127.0.0.1:12111"),
		Marks:    os.Getenv("SHOP_MARKS"),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shop.Close()) }()

	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", cmp.Or(os.Getenv("PORT"), "3002")))
	if err != nil {
		return fmt.Errorf("listening (choose another port with PORT): %w", err)
	}
	fmt.Printf("%s serves its workflows at http://%s/api/nelkap\n", shopName, listener.Addr())

	mux := http.NewServeMux()
	mux.Handle("/api/nelkap", app)
	// For whoever wants to see the shop's rows.
	mux.HandleFunc("GET /contacts", page(shop.database.Contacts))
	mux.HandleFunc("GET /invoices", page(shop.database.Invoices))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()

	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// A deploy ends the process politely: running bodies finish and are saved, and the next process goes on from there.
	left, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return errors.Join(app.Shutdown(left), server.Shutdown(left))
}

// page answers with what load finds, as JSON.
func page[Row any](load func(context.Context) ([]Row, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rows, err := load(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		text, err := json.Marshal(rows)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(text)
	}
}
