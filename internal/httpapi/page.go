package httpapi

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/nelkap/nelkap/internal/id"
)

// Bounds of a page's memory: one value has up to 4 MiB, a run has two.
const (
	pageBytesMax = 16 << 20 // values of one page: as many as a call has
	readMax      = 10       // rows read at once, whose sizes nobody knows before
)

// PageInput says which page of a list is asked for.
type PageInput struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"20" doc:"at most so many; fewer where they are large"`
	Cursor string `query:"cursor" doc:"the nextCursor of the page before"`
}

// number is the position of a list that is numbered; 0 without a cursor.
func (p PageInput) number() (int64, error) {
	position, err := p.position()
	if err != nil || position == "" {
		return 0, err
	}
	n, err := strconv.ParseInt(position, 10, 64)
	if err != nil || n < 0 {
		return 0, badCursor()
	}
	return n, nil
}

// cursor makes a position opaque: what it is made of may change.
func cursor(position string) *string {
	text := base64.RawURLEncoding.EncodeToString([]byte(position))
	return &text
}

func (p PageInput) position() (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	if err != nil || len(b) > keyBytesMax || !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 { // no database has such a text
		return "", badCursor()
	}
	return string(b), nil
}

// run is the position of a list of runs; empty without a cursor.
func (p PageInput) run() (string, error) {
	position, err := p.position()
	if err == nil && position != "" && id.Check(id.Run, position) != nil {
		return "", badCursor()
	}
	return position, err
}

func badCursor() error {
	return problem(http.StatusUnprocessableEntity, "bad_cursor", "cursor must be the nextCursor of a page before, unchanged")
}

// gather reads a page few rows at a time, and ends it where its values are too large together; one row there is always. read gives the rows
// after last, nil for the first. more says that others follow.
func gather[R any](limit int, read func(last *R, limit int) ([]R, error), bytes func(*R) int) (page []R, more bool, err error) {
	var last *R
	for total := 0; ; {
		n := min(readMax, limit+1-len(page))
		rows, err := read(last, n)
		if err != nil {
			return nil, false, err
		}
		for i := range rows {
			total += bytes(&rows[i])
			if len(page) == limit || (len(page) > 0 && total > pageBytesMax) {
				return page, true, nil
			}
			page = append(page, rows[i])
		}
		if len(rows) < n {
			return page, false, nil
		}
		last = &page[len(page)-1]
	}
}
