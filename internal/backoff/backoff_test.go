package backoff_test

import (
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/backoff"
)

func TestPausesDoubleUpToFiveMinutes(t *testing.T) {
	want := []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}
	for i, seconds := range want {
		if got := backoff.Pause(i+1, 0.5); got != seconds*time.Second {
			t.Errorf("after %d attempts: %v, want %v s", i+1, got, int(seconds))
		}
	}
}

func TestJitterMovesAPauseByAFifthEachWay(t *testing.T) {
	if got := backoff.Pause(1, 0); got != 800*time.Millisecond {
		t.Errorf("least: %v", got)
	}
	if got := backoff.Pause(1, 0.999999); got < 1199*time.Millisecond || got > 1200*time.Millisecond {
		t.Errorf("most: %v", got)
	}
}

func TestAHugeNumberOfAttemptsDoesNotOverflow(t *testing.T) {
	if got := backoff.Pause(1<<40, 0.5); got != backoff.Max {
		t.Errorf("got %v", got)
	}
}
