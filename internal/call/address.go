package call

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"code.dny.dev/ssrf"
)

// ErrAddress: the address may not be called. A name and what it resolves to are not told apart: the address that is about to be
// dialed is checked, so a name that changes its address in between gains nothing.
var ErrAddress = errors.New("this address may not be called")

// addressCheck decides about an address just before it is dialed.
type addressCheck struct {
	guardian *ssrf.Guardian
	private  bool
}

// control is a net.Dialer's Control.
func (check addressCheck) control(network, address string, raw syscall.RawConn) error {
	host, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q is no address", ErrAddress, address)
	}
	ip := host.Addr().WithZone("").Unmap()
	for _, prefix := range metadata {
		if prefix.Contains(ip) {
			return fmt.Errorf("%w: %s belongs to the host that this server runs on (link-local or metadata), and is never an app's", ErrAddress, ip)
		}
	}
	if err := check.guardian.Safe(network, address, raw); err != nil {
		if check.private {
			return fmt.Errorf("%w: %s is reserved, and is neither public, private nor loopback", ErrAddress, ip)
		}
		return fmt.Errorf("%w: %s is not a public address, and only the server's operator may name such an app, with --app of nelkap serve", ErrAddress, ip)
	}
	return nil
}

// metadata are addresses at which hosts give secrets to whoever runs on them, besides link-local ones. An operator who means an
// app never means these.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"),     // link-local; the metadata of most clouds
	netip.MustParsePrefix("fe80::/10"),          // link-local
	netip.MustParsePrefix("fd00:ec2::/32"),      // Amazon's metadata, over IPv6
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google's metadata, over IPv6
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba's metadata
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure's host, which has machines' certificates; public by its number
}

// publicAddresses allows what IANA's registries call public, on any port.
var publicAddresses = addressCheck{guardian: ssrf.New(ssrf.WithAnyPort())}

// privateAddresses allows loopback and private networks too.
var privateAddresses = addressCheck{
	private: true,
	guardian: ssrf.New(
		ssrf.WithAnyPort(),
		ssrf.WithAllowedV4Prefixes(
			netip.MustParsePrefix("10.0.0.0/8"),
			netip.MustParsePrefix("100.64.0.0/10"), // shared address space: Kubernetes and overlay networks use it
			netip.MustParsePrefix("127.0.0.0/8"),
			netip.MustParsePrefix("172.16.0.0/12"),
			netip.MustParsePrefix("192.168.0.0/16"),
		),
		ssrf.WithAllowedV6Prefixes(
			netip.MustParsePrefix("::1/128"),
			netip.MustParsePrefix("fc00::/7"),
		),
	),
}
