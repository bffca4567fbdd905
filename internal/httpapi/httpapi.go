// Package httpapi is the server's HTTP face: the public API (described by OpenAPI 3.1 at /openapi.json), the protocol's messages from
// apps, webhooks in, and health. It turns requests into calls of the engine and its errors into RFC 9457 problems; it decides
// nothing about runs.
//
// Every route but those in open needs an API key: a new route is closed unless it is named there. Every body has a limit.
package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/nelkap/nelkap/internal/auth"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/webhook"
)

// Options configure the API.
type Options struct {
	Engine *engine.Engine
	Reader store.Reader
	// Keys are the API keys. Without any the API is open: only for dev, on loopback.
	Keys auth.Keys
	// Hooks are the configured webhooks. Any other name takes whatever comes.
	Hooks webhook.Hooks
	// Dev: the server is for one person's machine: it answers only to loopback names, and takes apps at private addresses.
	Dev bool
	// Held: the store was restored, and only reads and cancels are answered (N5).
	Held    bool
	Version string
	Logger  *slog.Logger
	// Stopping is closed when the server has been told to stop: it still answers, and says that it is not ready. Nil: it never is.
	Stopping <-chan struct{}
	// Schemas are shared with handlers that were made before; nil: they are its own.
	Schemas *Schemas
}

// Schemas describe the values of the API. Making them is most of what New does, so that a process which makes many handlers, one after
// the other, may have them made once. They are written only by the first New.
type Schemas struct{ registry huma.Registry }

// Bounds of requests. Each body's own limit stands at its route.
const (
	headerBytesMax    = 64 << 10
	readHeaderTimeout = 10 * time.Second
	bodyTimeout       = 60 * time.Second
	requestIDBytesMax = 128
)

type api struct {
	Options
	mux    *http.ServeMux
	look   look
	bodies budget
}

// New makes the handler of everything that the server answers.
func New(o Options) http.Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &api{Options: o, mux: http.NewServeMux(), look: look{turn: make(chan struct{}, 1)}}
	a.public()
	a.protocol()
	a.mux.HandleFunc("POST /hooks/{name}", a.hook)
	a.mux.HandleFunc("POST /callbacks/{token}", a.endCallback)
	a.mux.HandleFunc("GET /callbacks/{token}", a.confirmCallback)
	for _, path := range []string{"GET /livez", "GET /healthz", "GET /health"} {
		a.mux.HandleFunc(path, alive)
	}
	a.mux.HandleFunc("GET /readyz", a.readyz)
	return a.middleware(a.mux)
}

// Server makes the http.Server for a handler of New. Its requests may last: polls and waits are held.
func Server(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: readHeaderTimeout, MaxHeaderBytes: headerBytesMax, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// public registers the routes that OpenAPI describes.
func (a *api) public() huma.API {
	setUpHuma()
	config := huma.DefaultConfig("Nelkap", a.Version)
	config.Info.Description = "Runs, events, apps and workflows of a Nelkap server. Errors are RFC 9457 problems with a stable `code`."
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "/openapi", "", ""
	config.CreateHooks = nil
	config.RejectUnknownQueryParameters = true
	format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshal}
	config.Formats = map[string]huma.Format{"application/json": format, "json": format}
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"key": {Type: "http", Scheme: "bearer", Description: "an API key"}}
	config.Security = []map[string][]string{{"key": {}}}
	if a.Schemas != nil {
		if a.Schemas.registry == nil {
			a.Schemas.registry = config.Components.Schemas
		}
		config.Components.Schemas = a.Schemas.registry
	}
	described := humago.New(a.mux, config)
	described.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
		address := ctx.URL()
		if err := checkQuery(address.RawQuery); err != nil {
			huma.WriteErr(described, ctx, http.StatusBadRequest, err.Error()) //nolint:errcheck // the client may be gone
			return
		}
		next(ctx)
	})
	a.runs(described)
	a.events(described)
	a.apps(described)
	a.schedules(described)
	a.deliveries(described)
	a.verifications(described)
	complete(described)
	return described
}

// open are the routes that need no key: health, webhooks (whose senders have none), callbacks, whose address is the secret, and the
// protocol's messages, which bear their calls' tokens.
var open = []string{
	"GET /livez", "GET /healthz", "GET /health", "GET /readyz", "POST /hooks/{name}", "POST /callbacks/{token}", "GET /callbacks/{token}",
	"POST /v1/saves", "POST /v1/heartbeats", "POST /v1/ends", "GET /v1/calls/{id}/steps",
}

// cancelPattern is the one route besides reads that a held store answers.
const cancelPattern = "POST /v1/runs/{id}/cancel"

type requestIDKey struct{}

// middleware wraps every route: an id for each request, no panic past here, who may ask, and problems for routes that are not
// there.
func (a *api) middleware(next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
		w := &answering{ResponseWriter: to}
		limitBody(to, r)
		requestID := r.Header.Get("X-Request-Id")
		if requestID == "" || len(requestID) > requestIDBytesMax || !printable(requestID) {
			requestID = id.Secret()
		}
		_, pattern := a.mux.Handler(r)
		w.Header().Set("X-Request-Id", requestID)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		r = r.WithContext(context.WithValue(r.Context(), requestIDKey{}, requestID))
		incoming := &sent{Reader: r.Body}
		r.Body = incoming // of a copy: net/http looks at its own
		defer a.recovered(w, r)
		switch {
		case a.Dev && !loopbackHost(r.Host):
			a.fail(w, r, problem(http.StatusForbidden, "host_not_allowed", "the development server answers only to localhost: open it as http://127.0.0.1, not as "+r.Host))
		case crossOrigin.Check(r) != nil:
			a.fail(w, r, problem(http.StatusForbidden, "cross_origin", "a page of another origin may not call this server"))
		case !slices.Contains(open, pattern) && !a.Keys.Allow(r.Header.Get("Authorization")):
			w.Header().Set("WWW-Authenticate", "Bearer")
			a.fail(w, r, problem(http.StatusUnauthorized, "unauthorized", unauthorized(r)))
		case pattern == "":
			a.nothingThere(w, r)
		case a.Held && r.Method != http.MethodGet && r.Method != http.MethodHead && pattern != cancelPattern:
			a.fail(w, r, problem(http.StatusServiceUnavailable, "held", "this server's store was restored from a backup, and its runs are held: only reads and cancels are answered. Stop the server, run nelkap restore --go-on, and start it again"))
		default:
			next.ServeHTTP(w, r)
		}
		incoming.drop(to, r)
	})
}

// unauthorized tells a key that is missing from one that is not the server's, and shows neither.
func unauthorized(r *http.Request) string {
	if r.Header.Get("Authorization") == "" {
		return "this needs an API key: send Authorization: Bearer KEY, or set NELKAP_API_KEY for the CLI and the SDKs"
	}
	return "the API key is not this server's: send the NELKAP_API_KEY that it was started with, as Authorization: Bearer KEY, or set it for the CLI and the SDKs"
}

// nothingThere gives problems, not text, for paths and methods that are not there.
func (a *api) nothingThere(w http.ResponseWriter, r *http.Request) {
	if allowed := a.allowed(r); len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		a.fail(w, r, problem(http.StatusMethodNotAllowed, "method_not_allowed", "this path takes "+strings.Join(allowed, ", ")+", not "+r.Method))
		return
	}
	a.fail(w, r, problem(http.StatusNotFound, "not_found", "there is nothing at "+r.URL.Path+"; /openapi.json lists the routes"))
}

func (a *api) allowed(r *http.Request) []string {
	var list []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := a.mux.Handler(other); pattern != "" {
			list = append(list, method)
		}
	}
	return list
}

// answering knows whether an answer has begun.
type answering struct {
	http.ResponseWriter
	begun bool
}

func (w *answering) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *answering) Write(b []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *answering) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// recovered answers a panic, which is a fault of ours: strangers get an id, the log gets the rest. Where an answer has begun, the connection
// is broken off: half of one must not look whole.
func (a *api) recovered(w *answering, r *http.Request) {
	if v := recover(); v != nil {
		if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(v)
		}
		a.Logger.Error("a request panicked", "path", r.URL.Path, "requestId", requestID(r.Context()), "panic", v, "stack", string(debug.Stack()))
		if w.begun {
			panic(http.ErrAbortHandler)
		}
		a.fail(w, r, problem(http.StatusInternalServerError, "internal", "the server failed; its log has the details under this requestId"))
	}
}

func requestID(ctx context.Context) string {
	text, _ := ctx.Value(requestIDKey{}).(string)
	return text
}

func printable(text string) bool {
	for _, r := range text {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return true
}

// loopbackHost tells whether a Host header names this machine: a page that had its name rebound to it does not pass.
func loopbackHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	ip := net.ParseIP(name)
	return strings.EqualFold(name, "localhost") || (ip != nil && ip.IsLoopback())
}
