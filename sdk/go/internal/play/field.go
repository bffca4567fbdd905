package play

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// messageBytesMax and fieldBytesMax bound a line of the log: the protocol's bounds.
	messageBytesMax = 8 << 10
	fieldBytesMax   = 8 << 10
	// whyBytesMax bounds why fields were dropped: a sentence.
	whyBytesMax = 256
	// groupsMax bounds how deep groups nest: values that make groups of themselves would go on for ever.
	groupsMax = 16
)

// messageOf is text as a line has it: UTF-8, and cut on a whole character.
func messageOf(text string) string { return cutText(text, messageBytesMax) }

func cutText(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	keep := min(len(text), most)
	for keep < len(text) && !utf8.RuneStart(text[keep]) {
		keep--
	}
	return text[:keep]
}

// fields are the attributes of a line as a JSON object, groups as objects in it; nil where there are none. What JSON can't hold, or is
// too much, is replaced as a whole by the reason.
func (h *logHandler) fields(r slog.Record) (fields json.RawMessage) {
	defer func() {
		if panicked := recover(); panicked != nil {
			fields = dropped("a value's own method panicked")
		}
	}()
	root := map[string]any{}
	at := root
	var err error
	for _, g := range h.given {
		if g.group != "" {
			at = open(at, g.group)
		}
		for _, a := range g.attrs {
			err = errors.Join(err, addField(at, a, 0))
		}
	}
	r.Attrs(func(a slog.Attr) bool {
		err = errors.Join(err, addField(at, a, 0))
		return err == nil
	})
	if prune(root); err == nil && len(root) == 0 {
		return nil
	}
	var text json.RawMessage
	if err == nil {
		text, err = encoded(root)
	}
	if err != nil {
		return dropped(err.Error())
	}
	if len(text) > fieldBytesMax {
		return dropped(fmt.Sprintf("the fields have %d bytes, and at most %d are kept", len(text), fieldBytesMax))
	}
	return text
}

// dropped stands for fields that can't be kept.
func dropped(why string) json.RawMessage {
	text, err := json.Marshal(map[string]string{"dropped": cutText(why, whyBytesMax)})
	if err != nil {
		return json.RawMessage(`{"dropped":"the fields can't be written"}`)
	}
	return text
}

// open is the object of a group.
func open(in map[string]any, group string) map[string]any {
	if there, ok := in[group].(map[string]any); ok {
		return there
	}
	made := map[string]any{}
	in[group] = made
	return made
}

// prune takes out groups without fields, as slog leaves them out.
func prune(object map[string]any) {
	for key, v := range object {
		if inner, ok := v.(map[string]any); ok {
			if prune(inner); len(inner) == 0 {
				delete(object, key)
			}
		}
	}
}

// addField adds an attribute. It fails for one that JSON can't hold.
func addField(to map[string]any, a slog.Attr, depth int) error {
	v := a.Value.Resolve() // which gives an error for a LogValuer that panics
	switch {
	case a.Key == "" && v.Kind() != slog.KindGroup:
		if a.Equal(slog.Attr{}) {
			return nil
		}
	case v.Kind() == slog.KindGroup:
		if depth >= groupsMax {
			return fmt.Errorf("groups are nested more than %d deep", groupsMax)
		}
		if a.Key != "" {
			to = open(to, a.Key)
		}
		for _, inner := range v.Group() {
			if err := addField(to, inner, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	text, err := fieldOf(v)
	if err != nil {
		return fmt.Errorf("%s: %w", a.Key, err)
	}
	to[a.Key] = text
	return nil
}

// fieldOf is v as JSON. An error is its message, as slog writes it, and a duration is its text.
func fieldOf(v slog.Value) (json.RawMessage, error) {
	var held any
	switch v.Kind() {
	case slog.KindDuration:
		held = v.Duration().String()
	case slog.KindTime:
		held = v.Time().UTC().Format(time.RFC3339Nano)
	default:
		held = v.Any()
	}
	if err, ok := held.(error); ok {
		if _, own := held.(json.Marshaler); !own {
			held = err.Error()
		}
	}
	return encoded(held)
}

// encoded is v as JSON. What a value writes itself may not be UTF-8, and the server takes no message with such a line.
func encoded(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.ToValidUTF8(bytes.TrimSuffix(b.Bytes(), []byte("\n")), []byte("\uFFFD")), nil
}
