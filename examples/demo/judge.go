package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// kinds are the traces that an order leaves once each, as the table shows them. Only returned orders leave a refund.
var kinds = []struct{ name, plural string }{
	{"charge", "charges"},
	{"contact", "contact rows"},
	{"invoice", "invoice rows"},
	{"ticket", "tickets"},
	{"invoice run", "invoice runs"},
	{"paid event", "paid events"},
	{"confirmation email", "confirmation emails"},
	{"invoice email", "invoice emails"},
	{"refund", "refunds"},
}

func (o *order) wanted(kind string) int {
	if kind == "refund" && !o.returned {
		return 0
	}
	return 1
}

// traces counts what was left, by kind and order.
type traces map[string]map[string]int

func (t traces) add(kind, order string) {
	if t[kind] == nil {
		t[kind] = map[string]int{}
	}
	t[kind][order]++
}

// of counts a kind over all orders of a shop.
func (t traces) of(kind string, shop *shop) (sum int) {
	for order, n := range t[kind] {
		if strings.HasPrefix(order, shop.prefix) {
			sum += n
		}
	}
	return sum
}

// judge counts what the orders left, shows it, and fails unless each order left one of each kind.
func (s *stage) judge(ctx context.Context) error {
	left := traces{}
	runs, err := s.count(ctx, left)
	if err != nil {
		return err
	}
	bodies, err := readLines[body](s.bodies)
	if err != nil {
		return err
	}
	ran := countBodies(bodies)
	s.showTable(left, ran)

	wrong := append(unended(runs), s.differences(left)...)
	wrong = append(wrong, ran.wrong...)
	for _, id := range s.cut {
		if n := ran.charges[id]; n != 2 {
			wrong = append(wrong, fmt.Sprintf("the charge of %s was cut off once, and its body ran %d times, not 2", id, n))
		}
	}
	for _, id := range s.kept {
		if n := ran.charges[id]; n != 1 {
			wrong = append(wrong, fmt.Sprintf("the charge of %s was not cut off, and its body ran %d times, not once", id, n))
		}
	}
	if len(wrong) > 0 {
		fmt.Println("Wrong:\n  " + strings.Join(wrong, "\n  "))
		s.showLogs()
		return errCounts
	}
	fmt.Println("Each order left exactly one of each kind. No saved step ran again: only those that a kill had cut off.")
	return nil
}

// count gathers what was left outside, in the shops' databases and at the server.
func (s *stage) count(ctx context.Context, left traces) ([]runRecord, error) {
	marks, err := readLines[struct{ Mark, Order, What string }](s.marks)
	if err != nil {
		return nil, err
	}
	for _, m := range marks {
		left.add(strings.TrimSpace(m.What+" "+m.Mark), m.Order)
	}
	for _, shop := range s.shops {
		if err := shop.countRows(ctx, left); err != nil {
			return nil, err
		}
	}
	runs, err := s.api.runs(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		if r.Workflow == "send invoice" {
			left.add("invoice run", text(r.Payload))
		}
	}
	events, err := s.api.events(ctx, "order.paid")
	for _, e := range events {
		left.add("paid event", text(e.Payload))
	}
	return runs, err
}

func (s *shop) countRows(ctx context.Context, left traces) error {
	var contacts []struct{ Email string }
	if err := request(ctx, http.MethodGet, s.url+"/contacts", nil, &contacts); err != nil {
		return err
	}
	for _, c := range contacts {
		left.add("contact", strings.TrimSuffix(c.Email, mailDomain))
	}
	var invoices []struct{ OrderID string }
	if err := request(ctx, http.MethodGet, s.url+"/invoices", nil, &invoices); err != nil {
		return err
	}
	for _, i := range invoices {
		left.add("invoice", i.OrderID)
	}
	return nil
}

// text reads a payload that is a text.
func text(payload json.RawMessage) string {
	var value string
	if json.Unmarshal(payload, &value) != nil {
		return string(payload)
	}
	return value
}

// unended finds the runs that did not complete.
func unended(runs []runRecord) (wrong []string) {
	for _, r := range runs {
		if r.Status == "completed" {
			continue
		}
		why := ""
		if r.Error != nil {
			why = ": " + r.Error.Message
		}
		wrong = append(wrong, fmt.Sprintf("run %s of %q in %s is %s%s", r.ID, r.Workflow, r.App, r.Status, why))
	}
	return wrong
}

// differences finds the orders that left more or less than one of a kind, and traces of no order.
func (s *stage) differences(left traces) (wrong []string) {
	ours := map[string]bool{}
	for _, o := range s.orders {
		ours[o.ID] = true
		for _, kind := range kinds {
			if got, want := left[kind.name][o.ID], o.wanted(kind.name); got != want {
				wrong = append(wrong, fmt.Sprintf("order %s left %d %s, not %d", o.ID, got, kind.plural, want))
			}
		}
	}
	for kind, orders := range left {
		for id, n := range orders {
			if !ours[id] {
				wrong = append(wrong, fmt.Sprintf("%d of kind %q belong to no order: %q", n, kind, id))
			}
		}
	}
	return wrong
}

func (s *stage) showTable(left traces, ran *bodyCount) {
	line := func(what string, cell func(*shop) any) {
		fmt.Printf("%-38s", what)
		for _, shop := range s.shops {
			fmt.Printf("%9v", cell(shop))
		}
		fmt.Println()
	}
	ordersThat := func(fits func(*order) bool) func(*shop) any {
		return func(shop *shop) any {
			n := 0
			for _, o := range s.orders {
				if o.Shop == shop.name && fits(o) {
					n++
				}
			}
			return n
		}
	}
	fmt.Println()
	line("", func(shop *shop) any { return shop.name })
	line("orders", ordersThat(func(*order) bool { return true }))
	line("  of them told twice", ordersThat(func(o *order) bool { return o.twice }))
	line("  of them returned", ordersThat(func(o *order) bool { return o.returned }))
	for _, kind := range kinds {
		line(kind.plural, func(shop *shop) any { return left.of(kind.name, shop) })
	}
	line("steps", func(shop *shop) any { return ran.steps[shop.name] })
	line("bodies run", func(shop *shop) any { return ran.bodies[shop.name] })
	line("  of them run again after a cut", func(shop *shop) any { return ran.repeats[shop.name] })
	line("  of them tried again after an error", func(shop *shop) any { return ran.retries[shop.name] })
	fmt.Println()
}
