package config

// Target is the server that a command asks, and the key that it sends.
type Target struct {
	URL string
	Key string // empty: none
}

// Asking settles which server a command asks: the flag's, else the variable's, else the one of this machine.
func Asking(flag string, environ []string) (Target, error) {
	env := lookup(environ)
	t := Target{URL: flag, Key: env(VariableAPIKey)}
	if t.URL == "" {
		t.URL = env(VariableURL)
	}
	if t.URL == "" {
		t.URL = "http://" + AddrStd
	}
	return t, CheckAPIKey(t.Key)
}
