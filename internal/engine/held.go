package engine

import "context"

// runHeld is Run for a store that was restored, and whose runs are held (N5): what was done since the backup is not known here, so that
// nothing may happen by itself. No timer fires, nothing is matched, no app is asked for anything and no call begins; who cancels a run still
// ends it, or has it closed once the runs go on. httpapi lets through nothing but that and reads.
func (e *Engine) runHeld(ctx context.Context, ready func()) error {
	if err := e.readApps(ctx, e.apps.load); err != nil {
		return err
	}
	e.log.Warn("this store was restored from a backup, and its runs are held: the server answers reads and cancels alone. Stop it and run nelkap restore --go-on, and they go on")
	ready()
	<-ctx.Done()
	e.stop()
	return nil
}
