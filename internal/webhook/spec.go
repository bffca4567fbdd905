package webhook

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nelkap/nelkap/internal/signature"
)

// The encodings of a digest.
const (
	Hex    = "hex"
	Base64 = "base64"
)

// The bounds of a hook's settings.
const (
	nameBytesMax   = 64
	optionBytesMax = 128
	// secretBytesMin finds a secret that was cut off or left out. How long it is, is most providers' choice.
	secretBytesMin = 8
)

// Spec says what a hook is, all but its secrets.
type Spec struct {
	Name     string
	Provider string
	// Dedupe: a delivery with an id that came before emits nothing.
	Dedupe bool
	// Of the provider hmac: the header of the signature, how its digest is written, what stands before it, and the header of the
	// delivery's id, if it has one.
	Header   string
	Encoding string
	Prefix   string
	IDHeader string
}

// Parse reads a hook as it stands on the command line: NAME=PROVIDER, then options after commas, such as
// `erp=hmac,header=X-Signature,encoding=base64,prefix=sha256=,id=X-Delivery,dedupe`.
func Parse(text string) (Spec, error) {
	parts := strings.Split(text, ",")
	name, kind, _ := strings.Cut(parts[0], "=")
	s := Spec{Name: name, Provider: kind}
	if err := checkName(name); err != nil {
		return Spec{}, err
	}
	if _, ok := find(kind); !ok {
		return Spec{}, fmt.Errorf("hook %s: its provider is one of %s: write it like %s=stripe", name, strings.Join(Providers(), ", "), name)
	}
	if kind == HMAC {
		s.Header, s.Encoding = "X-Signature", Hex
	}
	for _, part := range parts[1:] {
		if err := s.option(part); err != nil {
			return Spec{}, fmt.Errorf("hook %s: %w", name, err)
		}
	}
	if kind == HMAC && s.Dedupe && s.IDHeader == "" {
		return Spec{}, fmt.Errorf("hook %s: to deduplicate, say which header has the delivery's id: id=X-Delivery-Id", name)
	}
	return s, nil
}

func (s *Spec) option(text string) error {
	key, value, given := strings.Cut(text, "=")
	switch {
	case key == "dedupe" && !given:
		s.Dedupe = true
		return nil
	case s.Provider != HMAC:
		return fmt.Errorf("%s takes the option dedupe and no other", s.Provider)
	case len(value) > optionBytesMax:
		return fmt.Errorf("an option has at most %d bytes", optionBytesMax)
	}
	switch key {
	case "header", "id":
		if !isHeader(value) {
			return fmt.Errorf("%s= takes the name of a header, such as X-Signature", key)
		}
		if key == "id" {
			s.IDHeader = value
		} else {
			s.Header = value
		}
	case "encoding":
		if value != Hex && value != Base64 {
			return errors.New("encoding= takes hex or base64")
		}
		s.Encoding = value
	case "prefix":
		s.Prefix = value
	default:
		return errors.New("the options of hmac are header=, encoding=, prefix=, id= and dedupe; a secret is no option: it comes from its variable")
	}
	return nil
}

// checkName takes names that stand in an address and in a variable's name as they are. It does not show one that it refuses: who
// mixes up the parts may have written a secret there.
func checkName(name string) error {
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	}
	switch {
	case name == "" || len(name) > nameBytesMax || strings.ContainsFunc(name, bad) || strings.ContainsAny(name[:1], "-_."):
		return fmt.Errorf("a hook is NAME=PROVIDER, and its name has lower-case letters, digits, -, _ and ., at most %d: write it like shop=stripe", nameBytesMax)
	case name == "webhook" || strings.HasPrefix(name, "webhook."):
		return errors.New("a hook may not be named webhook, nor begin with webhook. and more: its events would bear the names of other hooks'")
	}
	return nil
}

func isHeader(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

// Variable is the name of the variable that holds the hook's secret; the one before it, while it is changed, is in that name with
// _PREVIOUS.
func (s Spec) Variable() string {
	return "NELKAP_HOOK_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(s.Name)) + "_SECRET"
}

// Hook makes the hook with its secrets: the current one, then the one before while there is one. Empty texts are left out. The error
// says what to do, and shows no secret.
func (s Spec) Hook(secrets ...string) (Hook, error) {
	row, ok := find(s.Provider)
	if !ok {
		return Hook{}, fmt.Errorf("hook %s: there is no provider %q", s.Name, s.Provider)
	}
	h := Hook{Spec: s, row: row}
	if len(secrets) == 0 || secrets[0] == "" {
		return Hook{}, fmt.Errorf("hook %s needs its secret: set %s to %s", s.Name, s.Variable(), row.where)
	}
	secrets = slices.DeleteFunc(slices.Clone(secrets), func(text string) bool { return text == "" })
	for i, text := range secrets {
		if text != strings.TrimSpace(text) {
			return Hook{}, fmt.Errorf("%s: the secret begins or ends with white space: remove it", s.Variable())
		}
		if len(text) < secretBytesMin {
			return Hook{}, fmt.Errorf("%s: the secret has %d bytes, and should have %d or more: it is %s", s.Variable(), len(text), secretBytesMin, row.where)
		}
		secrets[i] = text
		h.secrets = append(h.secrets, func() []byte { return []byte(text) })
	}
	if !row.isStandard {
		return h, nil
	}
	for i, text := range secrets {
		secrets[i] = strings.TrimPrefix(text, "v1,") // as some senders show it
	}
	var err error
	if h.standard, err = signature.ParseKeys(secrets...); err != nil {
		return Hook{}, fmt.Errorf("%s: %w", s.Variable(), err)
	}
	h.secrets = nil
	return h, nil
}
