package nelkap

import (
	"context"
	"fmt"
	"runtime"
	"strings"

	"github.com/nelkap/nelkap/sdk/go/internal/play"
)

// sending is where a send stands: sends is nil outside steps.
type sending struct {
	frame *play.Frame
	sends []play.Send
	done  func()
}

// beginSends gives the sends their places in the step that ctx belongs to (K1). Outside steps they act each time the code
// runs, which is warned of once for each place in the code.
func (a *App) beginSends(ctx context.Context, names []play.SendName) (*sending, error) {
	f := play.From(ctx)
	if f == nil {
		if a.settings().dev && play.Bodies() > 0 {
			a.warnOnce(ctx, "nelkap: Run or Emit without a step's context while a step runs: if it belongs to the step, give it the step's context")
		}
		return &sending{done: func() {}}, nil
	}
	where, sends, done, err := f.BeginSends(names)
	if err != nil {
		return nil, NonRetriable(err)
	}
	switch where {
	case play.SendsInCode:
		a.warnOnce(ctx, "nelkap: Run and Emit outside steps act each time the code runs, on every call of the run: place them in a step")
	case play.SendsInStep, play.SendsNowhere: // they act once, or not at all
	case play.SendsAfterStep:
		a.warnOnce(ctx, "nelkap: Run and Emit with the context of a step that has ended act as outside any run: wait for them in the step")
	}
	return &sending{f, sends, done}, nil
}

// judge makes the step fail where the server says that two of its sends changed places.
func (s *sending) judge(err error) error {
	if s.sends == nil || !isAPIError(err, "ambiguous_send") {
		return err
	}
	s.frame.Attempt.Ambiguous()
	return NonRetriable(fmt.Errorf("%w (%w)", play.ErrAmbiguousSend, err))
}

// warnOnce logs text with the place in the user's code, the first time for each.
func (a *App) warnOnce(ctx context.Context, text string) {
	place := caller()
	if _, seen := a.warned.LoadOrStore(text+place, true); !seen {
		logger := a.settings().logger
		if f := play.From(ctx); f != nil {
			logger = f.Local()
		}
		logger.Warn(text, "place", place)
	}
}

const ownPackage = "github.com/nelkap/nelkap/sdk/go."

// caller is the file and line of the nearest caller that is not of this package.
func caller() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		if !strings.HasPrefix(frame.Function, ownPackage) || !more {
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
	}
}
