// Package backoff computes the pause before another attempt. It is pure: the randomness comes in as a number.
package backoff

import "time"

// The policy of promise 13: 1, 2, 4, 8 … s, each ± 20 %, at most 5 min.
const (
	First  = time.Second
	Max    = 5 * time.Minute
	Jitter = 0.2
)

// Pause is the pause after the given number of failed attempts (1 is the first), moved by jitter, which is in [0, 1) and 0.5
// for no move at all. It never exceeds Max by more than the jitter.
func Pause(attempts int, jitter float64) time.Duration {
	return Grow(attempts, First, Max, jitter)
}

// Grow is Pause with other bounds: first doubles with every attempt up to limit. It is whole milliseconds, as stores keep instants:
// what is stored is due when it was said to be.
func Grow(attempts int, first, limit time.Duration, jitter float64) time.Duration {
	pause := first
	for i := 1; i < attempts && pause < limit; i++ {
		pause *= 2
	}
	pause = min(pause, limit)
	return (pause + time.Duration((jitter-0.5)*2*Jitter*float64(pause))).Round(time.Millisecond)
}
