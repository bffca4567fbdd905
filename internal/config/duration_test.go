package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/nelkap/nelkap/internal/config"
)

func TestDurationsMayHaveDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"5m": 5 * time.Minute, "0": 0, "0s": 0, "-1s": -time.Second, "1d": 24 * time.Hour, "30d": 720 * time.Hour, "1d12h": 36 * time.Hour,
		"1.5h": 90 * time.Minute, "65535d": 65535 * 24 * time.Hour,
	} {
		flags, got := pflag.NewFlagSet("", pflag.ContinueOnError), time.Duration(-7)
		config.Duration(flags, &got, "for", time.Hour, "")
		if got != time.Hour {
			t.Errorf("without the flag it is %v", got)
		}
		if err := flags.Parse([]string{"--for=" + text}); err != nil || got != want {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "1", "-1d", "1.5d", "65536d", "1d-1h", "1d1d", "1day", "1d2562047h", "Inf"} {
		flags, got := pflag.NewFlagSet("", pflag.ContinueOnError), time.Duration(0)
		config.Duration(flags, &got, "for", time.Hour, "")
		if err := flags.Parse([]string{"--for=" + text}); err == nil || !strings.Contains(err.Error(), "write it like") {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}
