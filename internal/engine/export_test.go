package engine

import "time"

// Held counts what the engine holds in memory of runs, calls, processes, and of those who wait.
func (e *Engine) Held() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	held := len(e.live) + len(e.playing) + len(e.processes) + len(e.waiters)
	for _, q := range e.queues {
		held += len(q.ready) + len(q.waiting) + q.inFlight
	}
	return held
}

// StoodStill has the engine find that its process stood still for d until now.
func (e *Engine) StoodStill(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pulse = time.Now().Add(-d - pulseEvery)
}
