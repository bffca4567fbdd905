package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Duration adds a flag for a duration, such as 90m or 30d, to flags.
func Duration(flags *pflag.FlagSet, into *time.Duration, name string, std time.Duration, usage string) {
	*into = std
	flags.Var((*duration)(into), name, usage)
}

// duration is what such a flag is set to.
type duration time.Duration

// Type names the value in help texts.
func (*duration) Type() string { return "duration" }

func (d *duration) String() string { return time.Duration(*d).String() }

// Set reads what time.ParseDuration reads, and days of 24 hours before it: 30d, 1d12h.
func (d *duration) Set(text string) error {
	days, rest := time.Duration(0), text
	if count, after, found := strings.Cut(text, "d"); found {
		n, err := strconv.ParseUint(count, 10, 16)
		if err != nil {
			return notDuration(text)
		}
		days, rest = time.Duration(n)*24*time.Hour, after
	}
	if rest == "" && days > 0 {
		rest = "0s"
	}
	parsed, err := time.ParseDuration(rest)
	if err != nil || days > 0 && parsed < 0 {
		return notDuration(text)
	}
	if days+parsed < parsed {
		return notDuration(text)
	}
	*d = duration(days + parsed)
	return nil
}

func notDuration(text string) error {
	return fmt.Errorf("%q is no duration: write it like 90s, 5m, 24h or 30d", text)
}
