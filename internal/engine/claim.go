package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"slices"
	"time"

	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// claim takes a key for a run, or finds who owns it: the owner is the run itself where the claim is its own (K4).
func (e *Engine) claim(ctx context.Context, run *workflow.Run, f wire.Fence, item *wire.Item) (owner string, err error) {
	key := store.Key{
		Env: run.Env, Kind: store.KeyClaim, Scope: runScope(*run) + "\x00" + item.Name, Key: item.Key, Owner: run.ID,
		LastsFor: time.Duration(item.ForMs) * time.Millisecond, UntilFailed: item.Until == wire.UntilFailed,
	}
	fence := store.SaveSteps{RunID: run.ID, CallID: f.Call, Nonce: f.Nonce}
	for range applyTries {
		res, err := e.committer.commit(store.Change{store.TakeKey{Key: key, Now: e.now()}, fence})
		if err != nil {
			return "", err
		}
		if res.Bound {
			return "", store.ErrStale // the run has changed by its first word: what follows starts from there
		}
		if res.Keys[0].Taken || res.Keys[0].Key.Owner == run.ID {
			return run.ID, nil
		}
		standing := res.Keys[0].Key
		status, endedAt, err := e.ownerOf(ctx, standing)
		if errors.Is(err, store.ErrNotFound) {
			continue // dropped just now: the key says how it ended
		}
		if err != nil {
			return "", err
		}
		if !e.freed(run, standing, status, endedAt) {
			return standing.Owner, nil
		}
		_, err = e.committer.commit(store.Change{store.PassKey{Key: key, From: standing.Owner}, fence})
		if err == nil {
			return run.ID, nil
		}
		if !errors.Is(err, store.ErrStale) {
			return "", err
		}
	}
	return "", ErrBusy
}

// ownerOf says how and when a claim's owner ended, if it has. Keys outlive the retention of runs. ErrNotFound: neither run nor key says so.
func (e *Engine) ownerOf(ctx context.Context, key store.Key) (workflow.Status, time.Time, error) {
	if key.OwnerStatus != "" {
		return key.OwnerStatus, key.OwnerEndedAt, nil
	}
	owner, err := e.store.Record(ctx, key.Env, key.Owner)
	return owner.Status, owner.EndedAt, err
}

// freed tells whether a claim may pass on: by its own rule, or from an ended run to a replay of it (K3, K5).
func (e *Engine) freed(run *workflow.Run, key store.Key, status workflow.Status, endedAt time.Time) bool {
	at := key.FreeAt(status, endedAt)
	return status.Final() && (run.ReplayOf == key.Owner || !at.IsZero() && !e.now().Before(at))
}

// callbackOutput is what the code gets of a callback.
type callbackOutput struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}

// newCallback makes a callback of a run's step, and its entry's output. Only a hash of the token is stored.
func (e *Engine) newCallback(run *workflow.Run, item *wire.Item) (store.Callback, jsontext.Value, error) {
	due, err := timeoutOf(item, e.now())
	if err != nil {
		return store.Callback{}, nil, err
	}
	token := id.Secret()
	output, err := json.Marshal(callbackOutput{URL: e.options.URL + "/callbacks/" + token, Token: token})
	return store.Callback{TokenHash: tokenHash(token), Env: run.Env, RunID: run.ID, StepID: stepID(item), DueAt: due}, output, err
}

func tokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Errors of posting to a callback.
var (
	// ErrCallbackOver: the callback was posted to before, or its time or its run is over.
	ErrCallbackOver = errors.New("the callback is over")
)

// EndCallback gives a callback its payload. It is durable on return. ErrNotFound, ErrCallbackOver.
func (e *Engine) EndCallback(ctx context.Context, token string, payload jsontext.Value) error {
	hash := tokenHash(token)
	callback, err := e.store.Callback(ctx, store.CallbackQuery{TokenHash: hash})
	if err != nil {
		return err
	}
	run, _, err := e.store.Load(ctx, callback.RunID)
	if err != nil {
		return err
	}
	awaited, err := e.mayAwait(ctx, &run, callback.StepID)
	if err != nil {
		return err
	}
	if !awaited {
		return ErrCallbackOver
	}
	_, err = e.committer.commit(store.Change{store.EndCallback{TokenHash: hash, Payload: payload, Now: e.now()}})
	if errors.Is(err, store.ErrStale) {
		return ErrCallbackOver
	}
	e.matching.wake()
	return err
}

// mayAwait tells whether a run may still wait for a callback that a step made: one that is ending does for those alone that its closing made (Z1).
func (e *Engine) mayAwait(ctx context.Context, run *workflow.Run, madeBy workflow.StepID) (bool, error) {
	if run.Status.Final() || run.Ending != nil && !run.Closing() {
		return false, nil
	}
	if run.Ending == nil {
		return true, nil
	}
	for after := run.Ending.Entries; ; {
		page, err := e.store.Entries(ctx, store.EntryQuery{RunID: run.ID, After: after, EntriesMax: wire.PageEntriesMax, BytesMax: wire.PageBytesMax})
		if err != nil || len(page) == 0 {
			return false, err
		}
		if slices.ContainsFunc(page, func(entry store.Entry) bool { return entry.StepID == madeBy }) {
			return true, nil
		}
		after = page[len(page)-1].Entry
	}
}
