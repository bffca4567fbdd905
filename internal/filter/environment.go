package filter

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// recursionMax bounds how deep an expression may be nested: far more than a person reads.
const recursionMax = 50

// environment is what every expression is compiled in. It never changes.
var environment = newEnvironment()

// standard are the functions of CEL that a filter has. The arithmetic of numbers is our own.
var standard = []string{
	operators.Conditional, operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.NotStrictlyFalse,
	operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals,
	operators.In, operators.Index, operators.Modulo, operators.Negate,
	overloads.Size, overloads.Contains, overloads.StartsWith, overloads.EndsWith, overloads.Matches,
	overloads.TypeConvertBool, overloads.TypeConvertDouble, overloads.TypeConvertDuration, overloads.TypeConvertDyn, overloads.TypeConvertInt,
	overloads.TypeConvertString, overloads.TypeConvertTimestamp, overloads.TypeConvertType, overloads.TypeConvertUint,
}

// calendar are the functions that read a timestamp, each with its form for UTC: those with a time zone would read files.
var calendar = map[string]string{
	overloads.TimeGetFullYear:     overloads.TimestampToYear,
	overloads.TimeGetMonth:        overloads.TimestampToMonth,
	overloads.TimeGetDayOfYear:    overloads.TimestampToDayOfYear,
	overloads.TimeGetDayOfMonth:   overloads.TimestampToDayOfMonthZeroBased,
	overloads.TimeGetDate:         overloads.TimestampToDayOfMonthOneBased,
	overloads.TimeGetDayOfWeek:    overloads.TimestampToDayOfWeek,
	overloads.TimeGetHours:        overloads.TimestampToHours,
	overloads.TimeGetMinutes:      overloads.TimestampToMinutes,
	overloads.TimeGetSeconds:      overloads.TimestampToSeconds,
	overloads.TimeGetMilliseconds: overloads.TimestampToMilliseconds,
}

func newEnvironment() *cel.Env {
	subset := &env.LibrarySubset{}
	for _, name := range standard {
		subset.AddIncludedFunctions(env.NewFunction(name))
	}
	for name, inUTC := range calendar {
		subset.AddIncludedFunctions(env.NewFunction(name, &env.Overload{ID: inUTC}))
	}
	environment, err := cel.NewCustomEnv(
		cel.StdLib(cel.StdLibSubset(subset)),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.Variable("payload", types.DynType),
		cel.Variable("event.id", types.StringType),
		cel.Variable("event.event", types.StringType),
		cel.Variable("event.createdAt", types.TimestampType),
		cel.Variable("event.payload", types.DynType),
		cel.Variable("run.id", types.StringType),
		cel.Variable("run.key", types.StringType),
		cel.Variable("run.payload", types.DynType),
		arithmetic(operators.Add, add,
			cel.Overload(overloads.AddString, []*cel.Type{types.StringType, types.StringType}, types.StringType),
			cel.Overload(overloads.AddList, []*cel.Type{listOfAny, listOfAny}, listOfAny),
			cel.Overload(overloads.AddDurationDuration, []*cel.Type{types.DurationType, types.DurationType}, types.DurationType),
			cel.Overload(overloads.AddDurationTimestamp, []*cel.Type{types.DurationType, types.TimestampType}, types.TimestampType),
			cel.Overload(overloads.AddTimestampDuration, []*cel.Type{types.TimestampType, types.DurationType}, types.TimestampType),
		),
		arithmetic(operators.Subtract, subtract,
			cel.Overload(overloads.SubtractDurationDuration, []*cel.Type{types.DurationType, types.DurationType}, types.DurationType),
			cel.Overload(overloads.SubtractTimestampDuration, []*cel.Type{types.TimestampType, types.DurationType}, types.TimestampType),
			cel.Overload(overloads.SubtractTimestampTimestamp, []*cel.Type{types.TimestampType, types.TimestampType}, types.DurationType),
		),
		arithmetic(operators.Multiply, multiply),
		arithmetic(operators.Divide, divide),
		cel.ParserRecursionLimit(recursionMax),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), patterns{}),
	)
	if err != nil {
		panic(err) // it depends on nothing but the lines above
	}
	return environment
}

var listOfAny = types.NewListType(types.NewTypeParamType("A"))

// arithmetic declares an operator for each two of the three kinds of numbers, and for what else is given. Of numbers it is dyn, so
// that what is computed compares with every number, as what stands in the payload does.
func arithmetic(operator string, apply func(left, right ref.Val) ref.Val, more ...cel.FunctionOpt) cel.EnvOption {
	numbers := []*cel.Type{types.IntType, types.UintType, types.DoubleType}
	for _, left := range numbers {
		for _, right := range numbers {
			more = append(more, cel.Overload(operator+left.TypeName()+"_"+right.TypeName(), []*cel.Type{left, right}, types.DynType))
		}
	}
	return cel.Function(operator, append(more, cel.SingletonBinaryBinding(apply))...)
}

func add(left, right ref.Val) ref.Val {
	if left, ok := left.(types.String); ok {
		if right, ok := right.(types.String); ok && len(left)+len(right) > joinedBytesMax {
			return types.NewErr("the joined text has more than %d bytes", joinedBytesMax)
		}
	}
	return compute(left, right, func(left, right ref.Val) ref.Val {
		if left, ok := left.(traits.Adder); ok {
			return left.Add(right)
		}
		return types.MaybeNoSuchOverloadErr(left)
	})
}

func subtract(left, right ref.Val) ref.Val {
	return compute(left, right, func(left, right ref.Val) ref.Val {
		if left, ok := left.(traits.Subtractor); ok {
			return left.Subtract(right)
		}
		return types.MaybeNoSuchOverloadErr(left)
	})
}

func multiply(left, right ref.Val) ref.Val {
	return compute(left, right, func(left, right ref.Val) ref.Val {
		if left, ok := left.(traits.Multiplier); ok {
			return left.Multiply(right)
		}
		return types.MaybeNoSuchOverloadErr(left)
	})
}

func divide(left, right ref.Val) ref.Val {
	if !isNumber(left) || !isNumber(right) {
		return types.MaybeNoSuchOverloadErr(left)
	}
	by := right.ConvertToType(types.DoubleType).(types.Double)
	if by == 0 {
		return types.NewErr("division by zero")
	}
	return left.ConvertToType(types.DoubleType).(types.Double) / by
}

// compute applies an operation. Numbers of different kinds, and those whose result does not fit their kind, are computed as doubles.
func compute(left, right ref.Val, apply func(left, right ref.Val) ref.Val) ref.Val {
	if !isNumber(left) || !isNumber(right) {
		return apply(left, right)
	}
	if left.Type() == right.Type() {
		if result := apply(left, right); !types.IsError(result) {
			return result
		}
	}
	return apply(left.ConvertToType(types.DoubleType), right.ConvertToType(types.DoubleType))
}

func isNumber(value ref.Val) bool {
	switch value.(type) {
	case types.Int, types.Uint, types.Double:
		return true
	}
	return false
}
