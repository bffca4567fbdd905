package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// rounds is how often something is killed: the shops in rounds 0 and 2, the server in rounds 1 and 3.
const rounds = 4

// pace is how long each answer from outside takes: long enough that a kill finds other orders half done too.
const pace = 40 * time.Millisecond

// settleTime is how long the runs of a round may take to end. Ten seconds of it may pass until the server takes a call for cut
// off whose process was killed while it polled; the rest is for machines that are busy otherwise.
const settleTime = time.Minute

// mailDomain ends every customer's address; before it stands the order's id.
const mailDomain = "@example.com"

// order is one order of the demo, and how it is told to the shops.
type order struct {
	ID       string `json:"id"`
	Shop     string `json:"shop"`
	Email    string `json:"email"`
	Name     string `json:"name"`
	Amount   int    `json:"amount"`
	webhook  bool   // else it comes as an event
	twice    bool   // told twice
	returned bool   // sent back in the end
	round    int
}

// placeable makes the orders: for both shops alike, half of them by webhook, every fifth told twice, every tenth returned.
func placeable(perShop int) []*order {
	var orders []*order
	for n := range perShop {
		for _, shop := range []string{"ts", "go"} {
			id := fmt.Sprintf("%s-%02d", shop, n+1)
			orders = append(orders, &order{
				ID: id, Shop: "shop-" + shop, Email: id + mailDomain, Name: "Customer " + id, Amount: 1000 + n,
				webhook: n%2 == 0, twice: n%5 == 0, returned: n%10 == 0, round: n * rounds / perShop,
			})
		}
	}
	return orders
}

// play tells the story: four rounds of orders, and a kill in each.
func (s *stage) play(ctx context.Context) error {
	s.say("starting the stand-in for Stripe, the shops in TypeScript and Go, and the server")
	if err := s.start(ctx); err != nil {
		return err
	}
	if err := s.outside.slow(ctx, pace); err != nil {
		return err
	}
	for round := range rounds {
		kill := s.killShops
		if round%2 == 1 {
			kill = s.killServer
		}
		if err := s.round(ctx, round, kill); err != nil {
			return err
		}
	}
	return s.returns(ctx)
}

// round places orders, waits until each shop has charged one and does not know it yet, and has something killed then.
func (s *stage) round(ctx context.Context, round int, kill func(context.Context, []*hold, []string) error) error {
	var holds []*hold
	for _, shop := range s.shops {
		h, err := s.outside.hold(ctx, shop.prefix)
		if err != nil {
			return err
		}
		holds = append(holds, h)
	}
	if err := s.place(ctx, round); err != nil {
		return err
	}
	var held []string
	for _, h := range holds {
		id, err := h.order(ctx)
		if err != nil {
			return err
		}
		held = append(held, id)
	}
	s.say("%s are charged at Stripe, and the shops don't know it yet", strings.Join(held, " and "))
	if err := kill(ctx, holds, held); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	s.say("all runs have ended")
	return nil
}

func (s *stage) place(ctx context.Context, round int) error {
	placed := 0
	for _, o := range s.orders {
		if o.round != round {
			continue
		}
		times := 1
		if o.twice {
			times = 2
		}
		for range times {
			if err := s.tell(ctx, o); err != nil {
				return fmt.Errorf("placing order %s: %w", o.ID, err)
			}
		}
		placed++
	}
	s.say("round %d: placed %d orders, by webhook and by event", round+1, placed)
	return nil
}

func (s *stage) tell(ctx context.Context, o *order) error {
	if o.webhook {
		return s.api.hook(ctx, o.Shop, o)
	}
	return s.api.emit(ctx, "order.placed", o)
}

// killShops kills both shops and starts them again. What they were doing is cut off.
func (s *stage) killShops(ctx context.Context, _ []*hold, held []string) error {
	s.say("killing both shops (kill -9) and starting them again")
	for _, shop := range s.shops {
		shop.kill()
	}
	s.cut = append(s.cut, held...)
	for _, shop := range s.shops {
		if err := shop.start(ctx); err != nil {
			return err
		}
	}
	s.say("the shops are back; the server picks their runs up")
	return nil
}

// killServer kills the server, lets Stripe answer while it is away, and starts it again. The shops go on.
func (s *stage) killServer(ctx context.Context, holds []*hold, held []string) error {
	s.kept = append(s.kept, held...)
	s.say("killing the server (kill -9); Stripe answers the shops while it is away")
	s.server.kill()
	for _, h := range holds {
		if err := h.release(ctx); err != nil {
			return err
		}
	}
	if err := s.server.start(ctx); err != nil {
		return err
	}
	s.say("the server is back; the shops save what they did meanwhile")
	return nil
}

// settle waits until no run is under way, and names those that still are when the time is up.
func (s *stage) settle(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	var left []runRecord
	err := poll(limit, "all runs to end", func() (bool, error) {
		runs, err := s.api.runs(limit)
		left = slices.DeleteFunc(runs, func(r runRecord) bool { return ended(r.Status) })
		return len(left) == 0, err
	})
	if err != nil && ctx.Err() == nil {
		for _, r := range left {
			s.say("run %s of %q in %s is still %s", r.ID, r.Workflow, r.App, r.Status)
		}
	}
	return err
}

func ended(status string) bool {
	return slices.Contains([]string{"completed", "failed", "cancelled", "skipped"}, status)
}

// returns sends some orders back, each event emitted twice.
func (s *stage) returns(ctx context.Context) error {
	count := 0
	for _, o := range s.orders {
		if !o.returned {
			continue
		}
		for range 2 {
			if err := s.api.emit(ctx, "order.returned", map[string]string{"id": o.ID, "shop": o.Shop}); err != nil {
				return err
			}
		}
		count++
	}
	s.say("%d orders come back, each told twice", count)
	return s.settle(ctx)
}
