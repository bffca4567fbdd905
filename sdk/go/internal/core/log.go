package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/wire"
)

const (
	// linesMax is how many unsent lines a playing keeps: the protocol's bound.
	linesMax = 1000
	// lineBytesMax bounds them together, so that whatever carries them stays below what a request and an answer may have.
	lineBytesMax = 2 << 20
	// handlerLines is where the numbers of a handler's lines begin: beyond those that the server keeps of the function, which may have
	// written after the same entry.
	handlerLines = 10_000
	// logPause is how long a line waits for a save that would go anyway.
	logPause = time.Second
)

// log has the lines of this playing that were not sent yet. Lines outside steps are numbered by the entry that the code was shown
// last; while that is lower than base, the last one that came with the call, the code is shown what it was shown before, and its lines
// were written then.
type log struct {
	base    int64
	entry   int64
	number  int // of the last line since entry
	first   int // where number begins
	lines   []*wire.Line
	bytes   int
	dropped int
	last    *wire.Line // that was dropped
	due     time.Time  // when lines travel by themselves; zero: there are none
}

// shown notes that the code is shown an entry.
func (l *log) shown(entry int64) {
	if entry > l.entry {
		l.entry, l.number = entry, l.first
	}
}

// handlerBegins has the handler's lines count from what was saved before its own steps.
func (l *log) handlerBegins(m *Machine) {
	l.first, l.number = handlerLines, handlerLines
	for _, e := range m.ends {
		if !strings.HasPrefix(e.Name, m.config.Handler) {
			l.shown(e.Entry)
		}
	}
}

// LineOf numbers a line that is about to be written: in the given attempt of s, or where s is nil outside steps. written is false where
// it is not to be written at all, since it was before, or the function is only played again. sent is false where it only stays here:
// the call is over for it, or too many lines wait to be sent.
func (m *Machine) LineOf(s *Step, attempt int, now time.Time) (line *wire.Line, written, sent bool) {
	over := m.phase == phaseOver || m.over != nil
	if s != nil {
		if over || !m.Current(s, attempt) {
			return nil, true, false
		}
		if s.linesOf != attempt {
			s.linesOf, s.lines = attempt, 0
		}
		s.lines++
		line = &wire.Line{At: now, Step: s.ref(), Attempt: attempt, Number: s.lines}
		return line, true, m.log.room(line)
	}
	switch {
	case m.config.Verify || m.inFunction() || m.log.entry < m.log.base:
		return nil, false, false
	case over || m.phase != phasePlaying:
		return nil, true, false
	}
	m.log.number++
	line = &wire.Line{At: now, Entry: m.log.entry, Attempt: m.call.Run.Attempt, Number: m.log.number}
	return line, true, m.log.room(line)
}

// room is true where line can be kept until it is sent; else it is dropped.
func (l *log) room(line *wire.Line) bool {
	if len(l.lines) < linesMax && l.bytes+line.Size() <= lineBytesMax {
		return true
	}
	l.dropped, l.last = l.dropped+1, line
	return false
}

// Log sends a line of LineOf with what goes next.
func (m *Machine) Log(line *wire.Line, now time.Time) {
	if m.phase == phaseOver || m.over != nil {
		return
	}
	l := &m.log
	if !l.room(line) {
		return
	}
	l.sayDropped()
	l.add(line)
	if l.due.IsZero() {
		l.due = now.Add(logPause)
	}
}

func (l *log) add(line *wire.Line) {
	l.lines = append(l.lines, line)
	l.bytes += line.Size()
}

// sayDropped says how many lines were dropped, in the place of the last of them.
func (l *log) sayDropped() {
	if l.dropped == 0 {
		return
	}
	said := *l.last
	said.Level, said.Message, said.Fields = wire.LevelWarn, fmt.Sprintf("%d lines were dropped", l.dropped), nil
	l.dropped, l.last = 0, nil
	l.add(&said)
}

// take hands over the lines that are not sent, after those of the save that is not decided: the server keeps a line once.
func (l *log) take(undecided *wire.Save) (lines []*wire.Line) {
	if undecided != nil {
		lines = slices.Clone(undecided.Logs)
	}
	l.sayDropped()
	lines = append(lines, l.lines...)
	l.lines, l.bytes, l.due = nil, 0, time.Time{}
	return lines
}
