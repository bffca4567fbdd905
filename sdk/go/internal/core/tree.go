package core

import "github.com/nelkap/nelkap/sdk/go/internal/wire"

// trees are what b waits for, as the server is told it (H4): the code goes on when one of them is satisfied.
//
// A branch is a function: what comes after the step that it waits for only its code knows, and may be what another branch waits for. So
// whatever comes to a branch calls the run, unless the step is said to be the branch's last: what comes to those matters when all have
// come, or one has failed. While a fork has branches that have not started (Limit), the end of each matters, since the next one starts.
func (b *Branch) trees() []wire.Wait {
	switch {
	case b.closed:
		return nil
	case b.open != nil:
		return []wire.Wait{b.open.leaf()}
	case b.fork == nil:
		return nil
	}
	f := b.fork
	var trees, last []wire.Wait
	for _, branch := range f.branches {
		if branch.last && branch.open != nil && len(f.branches) == f.Size && f.Join == JoinAll {
			last = append(last, branch.trees()...)
		} else {
			trees = append(trees, branch.trees()...)
		}
	}
	if len(last) > 0 {
		trees = append(trees, wire.Wait{All: last})
	}
	if f.Join == JoinRace && len(trees) > 1 {
		return []wire.Wait{{Race: trees}}
	}
	return trees
}

// leaf is s as a tree.
func (s *Step) leaf() wire.Wait {
	if s.state == stepRetrying {
		return wire.Wait{Retry: s.ref()}
	}
	return wire.Wait{Wait: s.ref()}
}
