package nelkap

import "net/http"

// SharedTransport is that of the client that apps without one of their own use.
func SharedTransport() *http.Transport { return sharedClient.Transport.(*http.Transport).Clone() }
