import { z } from 'zod';

/** The name of this shop, of its app and of its webhook. Every shop hears `order.placed`; each takes its own orders. */
export const shop = 'shop-ts';

export const order = z.object({
  id: z.string().min(1),
  email: z.email(),
  name: z.string(),
  /** In cents. */
  amount: z.int().positive(),
  currency: z.string().length(3).default('eur'),
  /** For which shop the order is; for this one unless given. */
  shop: z.string().default(shop),
});
export type Order = z.infer<typeof order>;

/** An order comes as an event's payload, or as the JSON body of a request to the webhook. Both end as an `Order`. */
export const arrivingOrder = z.union([order, z.object({ json: order }).transform((request) => request.json)]);

export const returnedOrder = z.object({ id: z.string().min(1), shop: z.string().default(shop) });

declare module 'nelkap' {
  interface Events {
    'order.placed': z.input<typeof order>;
    'order.returned': z.input<typeof returnedOrder>;
    /** The order's id. */
    'order.paid': string;
  }
}
