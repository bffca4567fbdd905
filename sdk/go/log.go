package nelkap

import (
	"context"
	"log/slog"

	"github.com/nelkap/nelkap/sdk/go/internal/play"
)

// Log is the run's logger. It writes to the app's Options.Logger, with the attributes run and attempt, and in a step with the step's
// name; and to the run's log on the server, where each line stands with its level, its message, its attributes and its step. Outside a
// run it is slog.Default.
//
// Code outside steps runs again on every call: lines that it wrote before what is saved are not written again, to neither of the two. In
// a closing the workflow's function writes none; OnFailure and OnCancel do.
//
// It never fails a run and may be used by many goroutines. The run's log has every level, also those that the app's logger leaves out. A
// message of more than 8 KiB is cut; attributes that JSON can't hold, or of more than 8 KiB together, are replaced by the reason. Of
// lines that come faster than they can be sent the newest are dropped, which the log says. Lines that were not sent when a process died
// are lost.
func Log(ctx context.Context) *slog.Logger {
	f := play.From(ctx)
	if f == nil {
		return slog.Default()
	}
	return f.Logger()
}
