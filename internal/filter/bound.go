package filter

import (
	"errors"
	"fmt"
	"regexp"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// The library counts a step after it is done, and some of CEL's operations have no bound of their own: two lists whose elements are the
// same list over and over take forever to compare, and a pattern can take time for each of its states and each byte. Here each
// operation is bounded by itself, and priced by what it looks at.
const (
	// comparedMax is how many values, with those inside them, are compared as one: more than a literal holds that a person writes.
	comparedMax = 100
	// searchedMax is how many elements of a list are searched at once: as many as a payload holds, and as an evaluation has steps.
	searchedMax = PayloadValuesMax
	// joinedBytesMax bounds texts that a filter puts together.
	joinedBytesMax = 64 << 10
	// searchedBytesMax and patternStatesMax bound matches, to some 20 ms: their product is the most that it does.
	searchedBytesMax = 16 << 10
	patternStatesMax = 250
)

// guard replaces the operations that have no bound of their own.
func guard(step interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := step.(interpreter.InterpretableCall)
	if !ok {
		return step, nil
	}
	var apply func(values ...ref.Val) ref.Val
	switch call.Function() {
	case operators.Equals:
		apply = equal
	case operators.NotEquals:
		apply = func(values ...ref.Val) ref.Val {
			result := equal(values...)
			if types.IsError(result) {
				return result
			}
			return result.(types.Bool).Negate()
		}
	case operators.In:
		apply = contained
	case overloads.Matches:
		search, err := searcher(call)
		if err != nil {
			return nil, err
		}
		apply = search
	default:
		return step, nil
	}
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), apply), nil
}

func equal(values ...ref.Val) ref.Val {
	left, right := values[0], values[1]
	if isComposite(left) && isComposite(right) && (count(left, comparedMax) > comparedMax || count(right, comparedMax) > comparedMax) {
		return types.NewErr("more than %d values are compared at once: compare the fields that matter", comparedMax)
	}
	return types.Equal(left, right)
}

func contained(values ...ref.Val) ref.Val {
	if isComposite(values[0]) {
		return types.NewErr("a list or map is looked for: use exists, and compare the fields that matter")
	}
	container, ok := values[1].(traits.Container)
	if !ok {
		return types.MaybeNoSuchOverloadErr(values[1])
	}
	// It is counted before it is searched: a list that is put together of itself again and again has billions of elements, and no memory.
	if list, ok := values[1].(traits.Lister); ok {
		if size, ok := list.Size().(types.Int); !ok || size > searchedMax {
			return types.NewErr("a list of more than %d values is searched: look at less of the payload", searchedMax)
		}
	}
	return container.Contains(values[0])
}

// patterns checks what matches is given, while there is still a place to name: a pattern stands in the expression, can be read, and is
// small.
type patterns struct{}

// Name implements cel.ASTValidator.
func (patterns) Name() string { return "nelkap.patterns" }

// Validate implements cel.ASTValidator.
func (patterns) Validate(_ *cel.Env, _ cel.ValidatorConfig, tree *ast.AST, issues *cel.Issues) {
	for _, call := range ast.MatchDescendants(ast.NavigateAST(tree), ast.FunctionMatcher(overloads.Matches)) {
		arguments := call.AsCall().Args()
		pattern := arguments[len(arguments)-1]
		if pattern.Kind() != ast.LiteralKind {
			issues.ReportErrorAtID(pattern.ID(), "the pattern of matches is computed: write it as a text")
			continue
		}
		switch states, err := types.RegexProgramSize(fmt.Sprint(pattern.AsLiteral().Value())); {
		case err != nil:
			issues.ReportErrorAtID(pattern.ID(), "%v", err)
		case states > patternStatesMax:
			issues.ReportErrorAtID(pattern.ID(), "the pattern of matches has %d states: simplify it to at most %d", states, patternStatesMax)
		}
	}
}

// searcher makes a matches for one pattern, which is compiled once.
func searcher(call interpreter.InterpretableCall) (func(values ...ref.Val) ref.Val, error) {
	literal, ok := call.Args()[1].(interpreter.InterpretableConst)
	if !ok {
		return nil, errors.New("the pattern of matches is computed") // patterns has refused it
	}
	pattern, err := regexp.Compile(fmt.Sprint(literal.Value().Value()))
	if err != nil {
		return nil, err
	}
	return func(values ...ref.Val) ref.Val {
		text, ok := values[0].(types.String)
		switch {
		case !ok:
			return types.MaybeNoSuchOverloadErr(values[0])
		case len(text) > searchedBytesMax:
			return types.NewErr("matches was given a text of %d bytes: it searches at most %d", len(text), searchedBytesMax)
		}
		return types.Bool(pattern.MatchString(string(text)))
	}, nil
}

func isComposite(value ref.Val) bool {
	switch value.(type) {
	case traits.Lister, traits.Mapper:
		return true
	}
	return false
}

// count is how many values a value has, itself and those inside it. It stops when there are more than enough.
func count(value ref.Val, enough int) int {
	if !isComposite(value) {
		return 1
	}
	found := 1
	container, isMap := value.(traits.Mapper)
	for each := value.(traits.Iterable).Iterator(); each.HasNext() == types.True && found <= enough; {
		inner := each.Next()
		if isMap {
			inner = container.Get(inner)
		}
		found += count(inner, enough-found)
	}
	return found
}

// price is what the steps of an evaluation cost: one each, and more by the texts and lists that they look at.
type price struct{}

// CallCost implements cost.ActualCostEstimator.
func (price) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	const bytesPerStep = 10
	steps := 1
	for _, arg := range args {
		if text, ok := arg.(types.String); ok {
			steps += len(text) / bytesPerStep
		}
	}
	switch function {
	case overloads.Matches:
		steps *= 10 // it looks at each byte in several states
	case operators.Equals, operators.NotEquals:
		if isComposite(args[0]) && isComposite(args[1]) {
			steps += comparedMax
		}
	case operators.In:
		if list, ok := args[len(args)-1].(traits.Lister); ok {
			if size, ok := list.Size().(types.Int); ok {
				steps += int(size)
			}
		}
	}
	total := uint64(steps)
	return &total
}
