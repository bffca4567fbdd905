package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// body is a shop's mark: the body of a step began.
type body struct {
	App     string `json:"app"`
	Run     string `json:"run"`
	Step    string `json:"step"`
	Order   string `json:"order"`
	Attempt int    `json:"attempt"`
	Process int    `json:"process"`
}

// bodyCount is what the marks say, by app.
type bodyCount struct {
	steps   map[string]int
	bodies  map[string]int
	repeats map[string]int // after a cut
	retries map[string]int // after an error
	charges map[string]int // bodies of the step charge, by order
	wrong   []string
}

// countBodies counts bodies and judges those that ran again. A shop's steps run one after the other, so a kill can cut off
// one step of a run: the last that began. A body may therefore run again only right after itself: as the same attempt in
// another process, or as the next attempt, after an error. Whatever else repeats is a step that was saved, or one that nobody
// cut off.
func countBodies(marks []body) *bodyCount {
	c := &bodyCount{steps: map[string]int{}, bodies: map[string]int{}, repeats: map[string]int{}, retries: map[string]int{}, charges: map[string]int{}}
	last := map[string]body{}
	seen := map[[2]string]bool{}
	for _, b := range marks {
		before, began := last[b.Run]
		last[b.Run] = b
		c.bodies[b.App]++
		if b.Step == "charge" {
			c.charges[b.Order]++
		}
		switch {
		case !seen[[2]string{b.Run, b.Step}]:
			seen[[2]string{b.Run, b.Step}] = true
			c.steps[b.App]++
		case began && before.Step == b.Step && b.Attempt == before.Attempt+1:
			c.retries[b.App]++
		case began && before.Step == b.Step && b.Attempt == before.Attempt && before.Process != b.Process:
			c.repeats[b.App]++
		default:
			c.wrong = append(c.wrong, fmt.Sprintf("%s ran the body of step %q of run %s (order %s) again, though nothing had cut it off", b.App, b.Step, b.Run, b.Order))
		}
	}
	return c
}

// readLines reads a file of JSON lines.
func readLines[Line any](name string) ([]Line, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading marks: %w", err)
	}
	defer file.Close()
	var lines []Line
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		var line Line
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("reading marks in %s: %w", name, err)
		}
		lines = append(lines, line)
	}
	return lines, scanner.Err()
}
