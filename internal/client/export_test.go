package client

import "net/http"

// Through has requests go another way than over the network.
func (c *Client) Through(way http.RoundTripper) { c.http.Transport = way }
