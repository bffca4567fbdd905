package store

// ExpectsEntries tells whether u expects the history to have so many entries, and no other number.
func (u *UpdateRun) ExpectsEntries() (entries int64, expects bool) {
	switch {
	case u.CloseWaits && u.Run.Closing():
		return u.Run.Ending.Entries, true
	case u.Entries != nil:
		return *u.Entries, true
	}
	return 0, false
}
