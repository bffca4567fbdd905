package nelkap

import (
	"context"
	"log/slog"

	"github.com/nelkap/nelkap/sdk/go/internal/play"
)

// Log is the run's logger: it writes to the app's Options.Logger, with the attributes run and attempt, and in a step with the
// step's name. Outside a run it is slog.Default.
func Log(ctx context.Context) *slog.Logger {
	f := play.From(ctx)
	if f == nil {
		return slog.Default()
	}
	return f.Logger()
}
