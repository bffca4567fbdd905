package nelkap

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/contact"
	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/signature"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

// Options configure an App; a field that is empty is read from the environment when the app is first used.
type Options struct {
	// App is the app's name: NELKAP_APP, or "app".
	App string
	// URL is where the server is: NELKAP_URL. Without one a call's saves go to the server that called, and requests outside a
	// call to http://127.0.0.1:6355.
	URL string
	// APIKey authenticates to the server: NELKAP_API_KEY.
	APIKey string
	// SigningKey is the key that the server signs its calls with: NELKAP_SIGNING_KEY.
	SigningKey string
	// SigningKeyPrevious is the key before it, while keys are changed: NELKAP_SIGNING_KEY_PREVIOUS.
	SigningKeyPrevious string
	// HTTPClient speaks to the server. Its redirects are not followed. The default uses no proxy.
	HTTPClient *http.Client
	// Logger takes what Log and the SDK write; the default is slog.Default.
	Logger *slog.Logger
	// MaxDuration is how long the host lets a request take, such as a serverless function's limit; 0 is no limit. When less
	// than a fifth of it is left, at most ten seconds, a call that has saved a step starts no further one and is called again.
	MaxDuration time.Duration
}

// defaultURL is where `nelkap dev` serves.
const defaultURL = "http://127.0.0.1:6355"

// App serves workflows and speaks to the server. It is an http.Handler, to be mounted at any path. Its methods may be used by
// many goroutines.
type App struct {
	options Options
	process *contact.Process
	host    play.Host

	once   sync.Once
	set    settings // by once
	warned sync.Map // the places in users' code that were warned of

	mu        sync.Mutex // guards what follows
	workflows map[string]*definition
	manifest  *manifest // nil after a change of workflows
	playings  map[*play.Playing]struct{}
	active    int // playings that began, or are about to, and have not ended
	stopping  bool
	idle      chan struct{} // closed when active becomes 0 while stopping
}

// settings are the options with the environment's values in place.
type settings struct {
	app, url, apiKey string
	keys             []signature.Key
	keyErr           error // a key that is none: every call is refused
	dev              bool
	client           *http.Client
	logger           *slog.Logger
}

// process is this process's contact with servers, whatever the number of apps.
var process = contact.NewProcess()

// New makes an App. It can't fail: what is wrong with the options is said by the first use.
func New(options Options) *App {
	a := &App{
		options: options, process: process,
		workflows: map[string]*definition{}, playings: map[*play.Playing]struct{}{},
	}
	a.host = play.Host{Client: a, Failure: failureOf, StepError: stepError, Done: a.played}
	return a
}

// FromContext is the app of the run that ctx belongs to, or nil outside a run.
func FromContext(ctx context.Context) *App {
	f := play.From(ctx)
	if f == nil {
		return nil
	}
	app, _ := f.Playing.Client().(*App)
	return app
}

// settings reads the environment, once.
func (a *App) settings() *settings {
	a.once.Do(func() {
		o := &a.options
		s := &a.set
		s.app = cmp.Or(o.App, os.Getenv("NELKAP_APP"), "app")
		s.url = strings.TrimRight(cmp.Or(o.URL, os.Getenv("NELKAP_URL")), "/")
		s.apiKey = cmp.Or(o.APIKey, os.Getenv("NELKAP_API_KEY"))
		s.dev = os.Getenv("NELKAP_DEV") == "1"
		s.logger = cmp.Or(o.Logger, slog.Default())
		s.client = clientOf(o.HTTPClient)
		for name, text := range map[string]string{
			"NELKAP_SIGNING_KEY":          cmp.Or(o.SigningKey, os.Getenv("NELKAP_SIGNING_KEY")),
			"NELKAP_SIGNING_KEY_PREVIOUS": cmp.Or(o.SigningKeyPrevious, os.Getenv("NELKAP_SIGNING_KEY_PREVIOUS")),
		} {
			s.addKey(name, text)
		}
		a.host.Logger = s.logger
	})
	return &a.set
}

func (s *settings) addKey(name, text string) {
	if text == "" {
		return
	}
	key, err := signature.ParseKey(text)
	if err != nil {
		s.keyErr = fmt.Errorf("%s: %w", name, err)
		return
	}
	s.keys = append(s.keys, key)
}

// sharedClient is used by every app without a client of its own. Each saver, poll and user's request finds an idle
// connection; none of them goes through a proxy that the environment happens to name.
var sharedClient = &http.Client{
	Transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        256,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     60 * time.Second,
		TLSHandshakeTimeout: 5 * time.Second,
		// A connection of HTTP/2 outlives the requests on it that get no answer: one that is dead must be known before they are tried again.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second},
		// A request of many saves is one write, and its answer one read.
		WriteBufferSize: 64 << 10,
		ReadBufferSize:  64 << 10,
	},
	CheckRedirect: noRedirect,
}

// noRedirect keeps tokens, keys and users' data from going where a redirect says.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func clientOf(given *http.Client) *http.Client {
	if given == nil {
		return sharedClient
	}
	client := *given
	client.CheckRedirect = noRedirect
	client.Timeout = 0 // the SDK bounds each request itself, and a poll is meant to be long
	return &client
}

// declare adds a workflow.
func (a *App) declare(d *definition) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.workflows[d.name] != nil {
		panic(fmt.Sprintf("nelkap: the app has a workflow %q already: give this one a name of its own", d.name))
	}
	a.workflows[d.name] = d
	a.manifest = nil
}

// described is the manifest as of now.
func (a *App) described() manifest {
	name := a.settings().app
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.manifest == nil {
		m := newManifest(name, a.workflows)
		a.manifest = &m
	}
	return *a.manifest
}

func (a *App) workflow(name string) *definition {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.workflows[name]
}

// errStopping says that Shutdown was called: the app takes no further call.
var errStopping = errors.New("the app is stopping")

// play starts a playing, unless the app is stopping.
func (a *App) play(config play.Config) (*play.Playing, error) {
	a.mu.Lock()
	if a.stopping {
		a.mu.Unlock()
		return nil, errStopping
	}
	a.active++
	a.mu.Unlock()
	p := play.Start(&a.host, config)
	a.mu.Lock()
	if !p.Finished() {
		a.playings[p] = struct{}{}
	}
	stopping := a.stopping
	a.mu.Unlock()
	if stopping {
		p.Stop()
	}
	return p, nil
}

// code runs the workflow's function for call.
func (a *App) code(call *wire.Call, d *definition) func(context.Context) (json.RawMessage, error) {
	return func(ctx context.Context) (json.RawMessage, error) { return d.play(ctx, call.Run.Payload) }
}

// own has the playing claim the key of the run's own, unless that was answered before. A key that can't be had fails the run.
func (a *App) own(config *play.Config, call *wire.Call, d *definition) {
	answered := func(e wire.Entry) bool { return e.Kind == wire.KindClaim && e.Name == "" }
	if call.Ending != nil || d.onceKey == nil || slices.ContainsFunc(call.Steps.Entries, answered) {
		return
	}
	key, err := d.onceKey(call.Run.Payload)
	if err != nil {
		config.Code = func(context.Context) (json.RawMessage, error) { return nil, err }
		return
	}
	config.Once = &key
}

// played takes out a playing of which nothing is left.
func (a *App) played(p *play.Playing) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.playings, p)
	a.active--
	if a.active == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
}

// Shutdown ends the app's calls before a deploy: it starts no body, finishes and saves the running ones, and has the server
// call again, elsewhere or later. It returns when nothing of any call is left, or with ctx's error when that takes too long.
// From then on calls are answered 503. Call it before the server's own Shutdown. It may be called twice.
func (a *App) Shutdown(ctx context.Context) error {
	a.mu.Lock()
	a.stopping = true
	var playings []*play.Playing
	for p := range a.playings {
		playings = append(playings, p)
	}
	if a.active > 0 && a.idle == nil {
		a.idle = make(chan struct{})
	}
	idle := a.idle
	a.mu.Unlock()
	for _, p := range playings {
		p.Stop()
	}
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("nelkap: shutting down with calls left: %w", context.Cause(ctx))
	}
}
