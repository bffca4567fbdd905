package filter

import (
	"strconv"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// decimal is the value of a JSON number: digits, which neither begin nor end with a zero, times ten to the exponent. Zero has no digits
// and no sign. Equal numbers are equal decimals, however they are written.
type decimal struct {
	negative bool
	digits   string
	exponent int64
}

// decimalOf reads a JSON number. It is not ok if the exponent is beyond 32 bits.
func decimalOf(text string) (decimal, bool) {
	text, negative := strings.CutPrefix(text, "-")
	mantissa, power := text, int64(0)
	ok := true
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		var err error
		mantissa = text[:at]
		power, err = strconv.ParseInt(text[at+1:], 10, 32)
		ok = err == nil
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return decimal{}, true
	}
	power -= int64(len(fraction))
	trimmed := strings.TrimRight(digits, "0")
	return decimal{negative, trimmed, power + int64(len(digits)-len(trimmed))}, ok
}

// number is what an expression sees of a JSON number: an int or uint if its value is whole and fits into 64 bits, else the nearest double,
// which is infinite for what is beyond all doubles.
func number(text string) ref.Val {
	const digitsMax = 20 // of a whole number of 64 bits
	if d, ok := decimalOf(text); ok && d.exponent >= 0 && int64(len(d.digits))+d.exponent <= digitsMax {
		whole, err := strconv.ParseUint("0"+d.digits+strings.Repeat("0", int(d.exponent)), 10, 64)
		switch {
		case err != nil:
		case !d.negative && whole < 1<<63:
			return types.Int(whole)
		case !d.negative:
			return types.Uint(whole)
		case whole <= 1<<63:
			return types.Int(-whole)
		}
	}
	double, _ := strconv.ParseFloat(text, 64) // out of range, it is infinite all the same
	return types.Double(double)
}
