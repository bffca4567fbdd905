// Package deploy is what people install a server with: an image, compose files, a Helm chart and a systemd unit. There is no Go in it but
// its tests, which read each of them with its own tool's parser, hold its flags and variables to the table in internal/config, and run what
// can be run without an engine or a cluster. It is a module of its own, so that none of those parsers reaches the server.
package deploy
