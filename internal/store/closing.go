package store

// BeginsToClose tells whether u expects the history to have so many entries.
func (u *UpdateRun) BeginsToClose() (entries int64, begins bool) {
	if !u.CloseWaits || !u.Run.Closing() {
		return 0, false
	}
	return u.Run.Ending.Entries, true
}
