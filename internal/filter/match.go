package filter

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// PathsMax bounds how many values a match compares.
	PathsMax = 10
	// PathBytesMax bounds a path: the protocol's bound of a name.
	PathBytesMax = 256
	// PathsBytesMax bounds all paths of a match together: they stand in an index with the event's name, and a row of Postgres's has at most
	// 2,704 bytes.
	PathsBytesMax = 2000
	// ValueBytesMax bounds a value of a match, as it is written in JSON.
	ValueBytesMax = 4 << 10
)

// root is what every path begins with.
const root = "payload"

// Paths are the paths of a match, in their order of bytes; none holds a control character. They are the class of all matches that
// compare the same fields: of an event there is one key for each class, and whoever keeps matches looks it up among them.
type Paths []string

// Match is what a wait's match is kept as: its paths, and the key that an event must have for them.
type Match struct {
	Paths Paths
	Key   string
}

// ParseMatch reads a match: paths, each with the JSON of its value. The error is a sentence that says what to do.
func ParseMatch(match map[string]jsontext.Value) (Match, error) {
	if len(match) == 0 {
		return Match{}, errors.New("match is empty: leave it out to take any event, or write a path and a value, such as payload.id")
	}
	if len(match) > PathsMax {
		return Match{}, fmt.Errorf("match has %d paths: use at most %d", len(match), PathsMax)
	}
	paths := Paths(slices.Sorted(maps.Keys(match)))
	if n := len(strings.Join(paths, "")); n > PathsBytesMax {
		return Match{}, fmt.Errorf("the paths of match have %d bytes together: use at most %d", n, PathsBytesMax)
	}
	key := newKey(paths)
	for _, path := range paths {
		if err := checkPath(path); err != nil {
			return Match{}, err
		}
		value := jsontext.Value(bytes.TrimSpace(match[path]))
		if len(value) > ValueBytesMax {
			return Match{}, fmt.Errorf("match: the value of %q has %d bytes: use at most %d", path, len(value), ValueBytesMax)
		}
		if !value.IsValid(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)) || !key.add(scalar(value)) {
			return Match{}, fmt.Errorf("match: the value of %q can't be compared: use a text, a number, true, false or null", path)
		}
	}
	return Match{paths, key.String()}, nil
}

func checkPath(path string) error {
	if len(path) > PathBytesMax {
		return fmt.Errorf("match: the path %.*q… has %d bytes: use at most %d", shownBytesMax, path, len(path), PathBytesMax)
	}
	parts := strings.Split(path, ".")
	if parts[0] != root || slices.Contains(parts, "") || !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl) {
		return fmt.Errorf("match: the path %q leads nowhere: write payload and the names of members, parted by dots, such as payload.order.id", path)
	}
	return nil
}

// Key returns the key of an event for the paths of a match: that of the match, if the event holds its values. It is not ok if the event
// holds nothing at one of them, or what no match can be for; then no match with these paths is for it.
func (paths Paths) Key(event Event) (key string, ok bool) {
	made := newKey(paths)
	for _, path := range paths {
		value, ok := at(event.payload, path)
		if !ok || !made.add(value) {
			return "", false
		}
	}
	return made.String(), true
}

// at returns the scalar that a path leads to.
func at(tree any, path string) (scalar, bool) {
	for _, part := range strings.Split(path, ".")[1:] {
		switch node := tree.(type) {
		case map[string]any:
			tree = node[part]
		case []any:
			index, err := strconv.Atoi(part)
			if err != nil || index < 0 || index >= len(node) || strconv.Itoa(index) != part {
				return "", false
			}
			tree = node[index]
		default:
			return "", false
		}
	}
	value, ok := tree.(scalar)
	return value, ok
}

// key collects what a key is made of: paths and values, each behind its length, so that different ones never look alike.
type key struct{ parts []byte }

func newKey(paths Paths) *key {
	made := &key{binary.AppendUvarint(nil, uint64(len(paths)))}
	for _, path := range paths {
		made.append(path)
	}
	return made
}

func (k *key) append(text string) {
	k.parts = append(binary.AppendUvarint(k.parts, uint64(len(text))), text...)
}

// add adds a value. It is not ok if the value can't be compared: an object or array, a text that is no Unicode, an absurd number.
func (k *key) add(value scalar) bool {
	kind := value.kind()
	switch kind {
	case 'n', 't', 'f':
		k.append(string(kind))
	case '"':
		text, exact := value.text()
		if !exact {
			return false
		}
		k.append(`"` + text)
	case '0':
		number, ok := decimalOf(string(value))
		if !ok {
			return false
		}
		k.append(fmt.Sprintf("0%t %s %d", number.negative, number.digits, number.exponent))
	default:
		return false
	}
	return true
}

// String returns the key: 43 characters that are safe in a URL.
func (k *key) String() string {
	sum := sha256.Sum256(k.parts)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
