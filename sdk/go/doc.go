// Package nelkap is the Go SDK of Nelkap: workflows that survive crashes, deploys and time limits.
//
// A workflow is a plain function in your own app, written in steps (package step). Each step's result is saved, and a saved
// step never runs again in its run. When something cuts a run off, Nelkap calls the app again: the function runs from its
// top, saved steps give back their results at once, and work goes on at the step that was cut off. Steps also sleep, wait for events,
// for other runs and for people, and run side by side; while a run waits, nothing of it is held in the app.
//
//	var app = nelkap.New(nelkap.Options{App: "shop"})
//
//	var SendInvoice = nelkap.NewWorkflow(app, "send invoice", func(ctx context.Context, orderID string) (Invoice, error) {
//		id, err := step.Run(ctx, "invoice id", func(ctx context.Context) (string, error) { return rand.Text(), nil })
//		if err != nil {
//			return Invoice{}, err
//		}
//		err = step.Do(ctx, "invoice", func(ctx context.Context) error { return createInvoice(ctx, id, orderID) })
//		return Invoice{ID: id}, err
//	}, nelkap.OnEvent("order.paid"))
//
//	http.Handle("/api/nelkap", app)
//
// # What code must know
//
//   - Code outside steps runs again on every call of the run: keep it free of effects, and let what it decides depend on the
//     payload and on steps' results alone.
//   - Results, payloads and outputs travel as JSON, also the first time. What JSON can't hold is an error that names the
//     path: NaN, channels, functions, text that is not UTF-8, structs with unexported fields and no MarshalJSON, or with an embedded
//     type's MarshalJSON alone, fields that lose their JSON name to another, and whole numbers beyond ±2^53 in an interface.
//   - An error that a step threw comes back as a *StepError, not as the error it was: errors.Is(err, sql.ErrNoRows) is false
//     in the workflow, on the first pass too. Decide inside the step.
//   - A call of a run may end at a step, for example while the step sleeps or waits for its next attempt. The function's goroutine
//     then ends there, as by runtime.Goexit: deferred functions do run, and CallOver tells them. A step in such a deferred
//     function returns ErrCallOver. Goroutines that the function started itself don't end with it: for steps side by side use
//     step.Parallel, Map and Race, whose branches do, and take turns outside bodies, so that every call goes the same way.
//   - A run that failed for good, timed out or was cancelled closes in calls of its own, where it has something to undo (step.Undo) or a
//     handler (OnFailure, OnCancel): the function is played again with what was saved, and starts nothing.
//   - A step's body gets a context of its own, without the values of the workflow's. It ends only when the call was superseded,
//     the run was cancelled or timed out, or the step's Timeout has passed; context.Cause says which.
//
// # Configuration
//
// What Options leave empty is read from the environment when the app is first used: NELKAP_URL, NELKAP_API_KEY,
// NELKAP_SIGNING_KEY, NELKAP_SIGNING_KEY_PREVIOUS and NELKAP_APP. NELKAP_DEV, when it is exactly 1, has an app without a
// signing key accept unsigned calls from its own machine.
package nelkap
