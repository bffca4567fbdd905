package sim

import "sync"

// beside is work that goes on beside: faults, and restarts that any node's death may start at any time. That is why it is no
// sync.WaitGroup: there, what is added while somebody waits for none to be left is a mistake.
type beside struct {
	mu   sync.Mutex
	left int
	none chan struct{} // closed when nothing is left; nil: nobody waits
}

// start starts work.
func (b *beside) start(work func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left++
	go func() {
		defer b.done()
		work()
	}()
}

func (b *beside) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left--; b.left == 0 && b.none != nil {
		close(b.none)
		b.none = nil
	}
}

// wait returns when nothing is left.
func (b *beside) wait() {
	b.mu.Lock()
	if b.left == 0 {
		b.mu.Unlock()
		return
	}
	if b.none == nil {
		b.none = make(chan struct{})
	}
	none := b.none
	b.mu.Unlock()
	<-none
}
