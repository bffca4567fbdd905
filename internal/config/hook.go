package config

import (
	"fmt"
	"strings"

	"github.com/nelkap/nelkap/internal/webhook"
)

// hooksMax bounds the configured hooks: each has a secret that somebody must know.
const hooksMax = 1_000

// The variables of hooks' secrets: between the two stands the hook's name.
const (
	hookPrefix         = "NELKAP_HOOK_"
	hookSuffix         = "_SECRET"
	hookSuffixPrevious = "_SECRET_PREVIOUS"
	previous           = "_PREVIOUS"
)

// finishHooks makes the hooks that --hook names, with the secrets that their variables hold. Each has a variable of its own.
func (s *Server) finishHooks(env func(string) string) error {
	if len(s.hooks) > hooksMax {
		return fmt.Errorf("--hook is given %d times: the most is %d", len(s.hooks), hooksMax)
	}
	s.Hooks = webhook.Hooks{}
	byVariable := map[string]string{}
	for _, text := range s.hooks {
		spec, err := webhook.Parse(text)
		if err != nil {
			return fmt.Errorf("--hook: %w", err)
		}
		variable := spec.Variable()
		if other, ok := byVariable[variable]; ok {
			return fmt.Errorf("--hook: the hooks %s and %s would share the variable %s: rename one of them", other, spec.Name, variable)
		}
		byVariable[variable] = spec.Name
		h, err := spec.Hook(env(variable), env(variable+previous))
		if err != nil {
			return err
		}
		s.Hooks[spec.Name] = h
	}
	return nil
}

func (s *Server) finishDeliveries(func(string) string) error {
	if s.DeliveriesFor < deliveriesForMin || s.DeliveriesFor > deliveriesForMax {
		return fmt.Errorf("--deliveries-for takes 1h to %dh, not %v", int(deliveriesForMax.Hours()), s.DeliveriesFor)
	}
	if s.DeliveriesMax < 1 || s.DeliveriesMax > deliveriesMax {
		return fmt.Errorf("--deliveries-max takes 1 to %d deliveries, not %d", deliveriesMax, s.DeliveriesMax)
	}
	return nil
}

// strayHooks gives a sentence for each variable of a hook's secret that no --hook asks for: its webhooks would be taken unchecked.
func (s *Server) strayHooks(environ []string) []string {
	known := map[string]bool{}
	for _, h := range s.Hooks {
		known[h.Variable()], known[h.Variable()+previous] = true, true
	}
	var sentences []string
	for _, line := range environ {
		name, _, _ := strings.Cut(line, "=")
		if isHookVariable(name) && !known[name] {
			sentences = append(sentences, fmt.Sprintf("the variable %s is for no hook: give --hook NAME=PROVIDER too, or webhooks are taken in without a check", name))
		}
	}
	return sentences
}

func isHookVariable(name string) bool {
	return strings.HasPrefix(name, hookPrefix) && (strings.HasSuffix(name, hookSuffix) || strings.HasSuffix(name, hookSuffixPrevious))
}
