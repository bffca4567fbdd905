package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/config"
)

// FuzzFinish: whatever is set, a server gets settings that it can run with, or a sentence; and no key is ever in it.
func FuzzFinish(f *testing.F) {
	const long = "0123456789abcdef0123456789abcdef"
	f.Add(true, "127.0.0.1:6355", "http://127.0.0.1:3000/api/nelkap", int64(5*time.Minute), 100, "", "", "")
	f.Add(false, ":6355", "https://shop.example.com", int64(time.Hour), 1, "https://nelkap.example.com/", "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", long)
	f.Add(false, "[::1]:0", "ftp://x", int64(-1), 0, "nelkap.example.com", "whsec_short", "short key with spaces")
	f.Add(true, "0.0.0.0:80", "http://%zz", int64(5*time.Second), 10_001, "http://user:password@host", long+"\n", long+"é")
	f.Fuzz(func(t *testing.T, dev bool, addr, app string, lease int64, concurrency int, url, signingKey, apiKey string) {
		s := config.Server{Dev: dev, Addr: addr, Data: "data", Apps: []string{app}, Lease: time.Duration(lease), Stall: config.StallStd, Grace: config.GraceStd, EventsFor: config.EventsForStd, Concurrency: concurrency}
		err := s.Finish([]string{"NELKAP_URL=" + url, "NELKAP_SIGNING_KEY=" + signingKey, "NELKAP_API_KEY=" + apiKey, "NELKAP_SIGNING_KEYS=" + signingKey})
		said := append([]string{}, s.Warnings...)
		if err != nil {
			said = append(said, err.Error())
		}
		for _, sentence := range said {
			for _, key := range []string{signingKey, apiKey} {
				if len(key) >= 12 && strings.Contains(sentence, key) && !strings.Contains(addr+app+url, key) {
					t.Errorf("a key is shown: %s", sentence)
				}
			}
		}
		if len(s.Warnings) == 0 {
			t.Error("a variable that is misspelt is passed over")
		}
		if err != nil {
			return
		}
		if s.Lease < config.LeaseMin || s.Concurrency < 1 || s.Data == "" {
			t.Errorf("accepted: %+v", s)
		}
		if !dev && (len(s.SigningKeys) == 0 || s.Keys.Allow("") || !s.Keys.Allow("Bearer "+apiKey)) {
			t.Error("a server without keys that hold")
		}
	})
}
