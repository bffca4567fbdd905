package sim

import "time"

// chance is a seed. It draws the same numbers for the same name, whoever asks and in whatever order.
type chance uint64

// dice draws numbers one after the other for one thing: a message, a commit, a plan.
type dice struct{ state uint64 }

// dice are those of the nth thing of that name.
func (c chance) dice(name string, nth int) *dice {
	// FNV-1a over the name, and the finalizer of SplitMix64 over all.
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return &dice{mix(h ^ mix(uint64(c)) ^ mix(uint64(nth)+1)<<1)}
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (d *dice) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	return mix(d.state)
}

// split gives dice of their own to something that goes on beside.
func (d *dice) split() *dice { return &dice{d.next()} }

// below draws from [0, n).
func (d *dice) below(n int) int { return int(d.next() % uint64(n)) }

// odds is true in so many of a thousand draws.
func (d *dice) odds(perMille int) bool { return d.below(1000) < perMille }

// between draws a duration, to the nanosecond.
func (d *dice) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.next()%uint64(most-least+1))
}

// pick draws an index by weight.
func (d *dice) pick(weights ...int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	at := d.below(sum)
	for i, w := range weights {
		if at -= w; at < 0 {
			return i
		}
	}
	return len(weights) - 1
}
