package engine

import "sync"

// sideBySide does n things, begun in their order and at most so many at once. After a failure, of which the first is given, it begins no more.
func sideBySide(n, most int, do func(i int) error) error {
	var group sync.WaitGroup
	slots, failed := make(chan struct{}, most), make(chan error, 1)
	for i := range n {
		slots <- struct{}{}
		if len(failed) > 0 {
			break
		}
		group.Go(func() {
			defer func() { <-slots }()
			if err := do(i); err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
