package wire

// Verify asks an app to play a run's code against its history without acting (D3).
type Verify struct {
	Type    string `json:"type"`
	Run     Run    `json:"run"`
	Steps   Steps  `json:"steps"`
	Limits  Limits `json:"limits"`
	LimitMs int64  `json:"limitMs"`
}

// How code that is verified ended, where it does not wait.
const (
	VerifiedReturned = "returned"
	VerifiedThrew    = "threw"
	VerifiedLate     = "late"
)

// Verified is what the code asked for.
type Verified struct {
	Type    string    `json:"type"`
	Unasked []Waiting `json:"unasked"`
	Asked   []Waiting `json:"asked"`
	End     string    `json:"end,omitzero"`
	Error   *Error    `json:"error,omitzero"`
}
