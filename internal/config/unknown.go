package config

import (
	"fmt"
	"slices"
	"strings"
)

// distanceMax is how many letters a name may be off to be taken for a slip of the pen.
const distanceMax = 4

// Unknown gives a sentence for each variable that is named like a setting and is none. It shows no value.
func Unknown(environ []string) []string {
	var sentences []string
	for _, line := range environ {
		name, _, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, variablePrefix) || known(name) || isHookVariable(name) {
			continue
		}
		sentence := fmt.Sprintf("the variable %s is not known", name)
		if nearest := nearest(name); nearest != "" {
			sentence += ": did you mean " + nearest + "?"
		}
		sentences = append(sentences, sentence)
	}
	slices.Sort(sentences)
	return sentences
}

func known(name string) bool {
	return slices.ContainsFunc(Table, func(s Setting) bool { return s.Variable == name })
}

func nearest(name string) string {
	best, least := "", distanceMax+1
	for _, s := range Table {
		if d := distance(name, s.Variable); s.Variable != "" && d < least {
			best, least = s.Variable, d
		}
	}
	return best
}

// distance is the number of letters to add, remove or replace to make one text of the other (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
