package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"time"

	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// life is what frees a claim; zero: nothing does (K3).
type life struct {
	UntilFailed bool  `json:"untilFailed,omitzero"`
	ForMs       int64 `json:"forMs,omitzero"`
}

// claim takes a key for a run, or finds who owns it: the owner is the run itself where the claim is its own (K4).
func (e *Engine) claim(ctx context.Context, run *workflow.Run, f wire.Fence, item *wire.Item) (owner string, err error) {
	rule, err := json.Marshal(life{UntilFailed: item.Until == wire.UntilFailed, ForMs: item.ForMs})
	if err != nil {
		return "", err
	}
	key := store.Key{Env: run.Env, Kind: store.KeyClaim, Scope: runScope(*run) + "\x00" + item.Name, Key: item.Key, Owner: run.ID, Answer: rule}
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
		free, expires, err := e.freed(ctx, run, standing)
		next := key
		switch {
		case err != nil:
			return "", err
		case !expires.IsZero():
			next = standing
			next.ExpiresAt = expires
		case !free:
			return standing.Owner, nil
		}
		_, err = e.committer.commit(store.Change{store.PassKey{Key: next, From: standing.Owner}, fence})
		if err == nil {
			return next.Owner, nil
		}
		if !errors.Is(err, store.ErrStale) {
			return "", err
		}
	}
	return "", ErrBusy
}

// freed tells whether a claim may pass on: by its own rule, or from an ended run to a replay of it (K3, K5). Where it is only now known when
// it may, it has no such time yet and is to get it: expires.
func (e *Engine) freed(ctx context.Context, run *workflow.Run, key store.Key) (free bool, expires time.Time, err error) {
	owner, err := e.store.Record(ctx, run.Env, key.Owner)
	gone := errors.Is(err, store.ErrNotFound)
	if gone {
		// Keys outlive the retention of runs. When it ended nobody knows, but that was as long ago as runs are kept. How it ended nobody
		// knows either: what it claimed until it failed is its own for good.
		owner, err = store.RunRecord{Run: workflow.Run{ID: key.Owner, EndedAt: e.now().Add(-e.options.RunsFor)}}, nil
	}
	if err != nil || (!gone && !owner.Status.Final()) {
		return false, time.Time{}, err
	}
	var rule life
	if err := json.Unmarshal(key.Answer, &rule); err != nil {
		return false, time.Time{}, err
	}
	switch {
	case run.ReplayOf == owner.ID:
		return true, time.Time{}, nil
	case rule.UntilFailed && owner.Status == workflow.Failed:
		return true, time.Time{}, nil
	case rule.ForMs > 0:
		over := owner.EndedAt.Add(time.Duration(rule.ForMs) * time.Millisecond)
		if free = !e.now().Before(over); !free && gone && key.ExpiresAt.IsZero() {
			expires = over
		}
		return free, expires, nil
	}
	return false, time.Time{}, nil
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
	if run.Status.Final() {
		return ErrCallbackOver
	}
	_, err = e.committer.commit(store.Change{store.EndCallback{TokenHash: hash, Payload: payload, Now: e.now()}})
	if errors.Is(err, store.ErrStale) {
		return ErrCallbackOver
	}
	e.matching.wake()
	return err
}
