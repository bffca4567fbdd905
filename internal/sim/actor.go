package sim

import (
	"sync"
	"time"
)

// actor is what can be paused and killed from outside: a node, or a process of an app.
type actor struct {
	name  string
	world *world
	app   string        // whose process it is; empty: it is none
	died  chan struct{} // closed when it dies

	mu      sync.Mutex
	dead    bool
	resumed chan struct{} // not nil while it is paused; closed when it goes on
	sends   map[*exchange]struct{}
	takes   map[*exchange]struct{}
}

func newActor(w *world, name string) actor {
	return actor{name: name, world: w, died: make(chan struct{}), sends: map[*exchange]struct{}{}, takes: map[*exchange]struct{}{}}
}

// pass lets d go by, and as long as the actor is paused. It is false when the actor has died: then it has come back only because
// the simulation is over, and whoever asked must give up.
func (a *actor) pass(d time.Duration) bool {
	for {
		if !a.awake() {
			return false
		}
		time.Sleep(d)
		// After a pause it waits for d once more: those who wake together must not act at one instant.
		if a.runs() {
			return true
		}
	}
}

func (a *actor) runs() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.dead && a.resumed == nil
}

// awake waits until the actor is not paused; false if it has died.
func (a *actor) awake() bool {
	for {
		a.mu.Lock()
		dead, resumed := a.dead, a.resumed
		a.mu.Unlock()
		switch {
		case dead:
			<-a.world.over
			return false
		case resumed == nil:
			return true
		}
		select {
		case <-resumed:
		case <-a.died:
		}
	}
}

// pause stops the actor at its boundaries until resume.
func (a *actor) pause() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.dead && a.resumed == nil {
		a.resumed = make(chan struct{})
	}
}

func (a *actor) resume() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.resumed != nil {
		close(a.resumed)
		a.resumed = nil
	}
}

// kill ends the actor. Its connections break, each after some time of its own; of a silent death nobody is told.
func (a *actor) kill(silent bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dead {
		return
	}
	a.dead = true
	close(a.died)
	if silent {
		return
	}
	for x := range a.takes {
		time.AfterFunc(x.between(time.Microsecond, 2*time.Millisecond), func() { x.settle(result{err: errReset}) })
	}
	for x := range a.sends {
		time.AfterFunc(x.between(time.Microsecond, 2*time.Millisecond), x.hangUp)
	}
}

func (a *actor) isDead() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.dead
}

// rest waits for d.
func rest(d time.Duration) { time.Sleep(d) }
