package postgres

import "time"

// SetBounds changes how long one try of a batch may take, and how long it may hold a lock or wait for one.
func (s *Store) SetBounds(transaction, lock time.Duration) {
	s.transactionTime, s.lockTime = transaction, lock
}
