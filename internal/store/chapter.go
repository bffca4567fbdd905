package store

import (
	"encoding/json/jsontext"
	"time"

	"github.com/nelkap/nelkap/internal/workflow"
)

// Chapter is a history that a restart has closed (Z2).
type Chapter struct {
	Restart  int
	Payload  jsontext.Value
	Entries  int64
	ClosedAt time.Time
}

// ChaptersKept is how many closed chapters of a run are kept; of the first, its payload always, which a replay begins with.
const ChaptersKept = 100

// LogLine is a line of a run's log. StepID is empty for a line outside steps; then Entry is the highest entry that the code had been
// shown.
type LogLine struct {
	Position int64 // in the order in which lines were stored; set by the store
	Restart  int   // set by the store
	At       time.Time
	Level    string
	Message  string
	Fields   jsontext.Value
	workflow.StepID
	Entry   int64
	Attempt int
	Line    int
}

// LogQuery selects lines of a run's log, after the given position.
type LogQuery struct {
	Env   string
	RunID string
	After int64
	Limit int
}
