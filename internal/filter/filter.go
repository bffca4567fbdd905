// Package filter decides which events a trigger, a wait or a cancellation means. It reads the two ways in which users say so:
//
//   - `if: 'payload.total > 0'`, an expression in CEL (Compile, Filter.Match);
//   - `match: { 'payload.id': 'o_1' }`, values at paths, of which it makes a key that an index finds (ParseMatch, Paths.Key).
//
// It evaluates and never decides what follows: an error of Match is "no match", and its caller records it (E3). It reads no clock, file
// or store, and keeps nothing between calls: whoever compiles the same text often keeps the Filter.
//
// # What an expression sees
//
// `payload` is the event's payload, and `event` has `event.id`, `event.event` (its name), `event.createdAt` (a timestamp) and
// `event.payload`. The filter of a wait or a cancelOn also sees its run: `run.id`, `run.key` (empty without one) and `run.payload`, so that
// `payload.id == run.payload.id` means the event of this very order; in a trigger there is no run, and what asks for it matches nothing.
// There are CEL's standard functions and macros, but for time zones (timestamps are read in UTC). The pattern of
// matches must stand in the expression.
//
// Numbers are JSON's. 3, 3.0 and 3e0 are one number; it compares with 3, 3.5 and 3u by value, whole numbers of up to 64 bits exactly;
// what else there is, is the nearest double. Unlike in plain CEL, whole numbers and fractions can be added and so on, and 7 / 2 is 3.5.
// A field that is missing is an error, therefore no match: `has(payload.x)` asks whether it is there. null is a value of its own.
//
// # What a match sees
//
// A path begins with payload; its parts, parted by dots, are names of members, or numbers of elements of an array. All paths of a match
// must hold its values, which are texts, numbers, true, false or null. Texts are compared exactly, numbers by value and exactly (1 is
// 1.0). A path that leads nowhere holds nothing, not null.
//
// # Invariants
//
//  1. The same filter and event give the same answer, on every node and at any time.
//  2. Whatever the text and the event, compiling and matching end soon: texts, payloads, steps and the work of each step are bounded.
//  3. Two events have the same key for the same paths only if their values there are equal, and so are those of a match.
//
// The engine calls it when an app is described, when a wait is made and when an event has come.
package filter

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/interpreter"
)

const (
	// TextBytesMax bounds an expression: the protocol's bound of a trigger's options.
	TextBytesMax = 4 << 10
	// CostMax bounds the steps of one evaluation. A step is an operation, or ten bytes of a text that one looks at: about 20 ms in all.
	CostMax = 100_000

	// shownBytesMax bounds what an error shows of a filter or of what the parser says.
	shownBytesMax = 200
)

// Filter is a compiled expression. It never changes, and may be used by many at once.
type Filter struct {
	text    string
	program cel.Program
}

// Compile reads an expression. The error is a sentence that says where it is wrong and what to do; it is for who wrote the filter.
func Compile(text string) (*Filter, error) {
	if len(text) > TextBytesMax {
		return nil, fmt.Errorf("the filter has %d bytes: use at most %d, and decide the rest in the workflow", len(text), TextBytesMax)
	}
	ast, issues := environment.Compile(text)
	if found := issues.Errors(); len(found) > 0 {
		place := ""
		if at := found[0].Location; at.Line() > 0 { // what is too deep or too long has no place
			place = fmt.Sprintf("line %d, column %d: ", at.Line(), at.Column()+1)
		}
		return nil, fmt.Errorf("the filter %s can't be used: %s%s. Write an expression over payload, event.id, event.event and event.createdAt, such as payload.total > 0",
			shown(text), place, bounded(found[0].Message))
	}
	if result := ast.OutputType(); !result.IsExactType(types.BoolType) && !result.IsExactType(types.DynType) {
		return nil, fmt.Errorf("the filter %s is of type %s: compare it with something, so that it is true or false", shown(text), result)
	}
	program, err := environment.Program(ast, cel.CostLimit(CostMax), cel.CostTracking(price{}), cel.CustomDecoratorV2(guard))
	if err != nil {
		return nil, fmt.Errorf("the filter %s can't be used: %w", shown(text), err)
	}
	return &Filter{text, program}, nil
}

// String returns the filter's text.
func (f *Filter) String() string { return f.text }

// Match tells whether an event is meant. With an error, which is a sentence for the record, it is not (E3).
func (f *Filter) Match(event Event) (bool, error) {
	result, _, err := f.program.Eval(event.variables())
	if err != nil {
		if cancelled := (interpreter.EvalCancelledError{}); errors.As(err, &cancelled) {
			return false, fmt.Errorf("the filter %s takes more than %d steps on event %s: let it look at less of the payload", shown(f.text), CostMax, event.ID)
		}
		return false, fmt.Errorf("the filter %s failed on event %s: %s", shown(f.text), event.ID, bounded(err.Error()))
	}
	matches, ok := result.(types.Bool)
	if !ok {
		return false, fmt.Errorf("the filter %s gave a value of type %s for event %s: compare it with something, so that it is true or false",
			shown(f.text), result.Type().TypeName(), event.ID)
	}
	return bool(matches), nil
}

func shown(text string) string { return fmt.Sprintf("%.*q", shownBytesMax, text) }

// bounded makes a line of what a library says, which may quote its input.
func bounded(text string) string {
	line := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
	if len(line) <= shownBytesMax {
		return line
	}
	return fmt.Sprintf("%.*s …", shownBytesMax, line)
}
