import type Stripe from 'stripe';

declare module 'nelkap' {
  interface Events {
    'order.paid': { id: string; total: number };
    'order.approved': { id: string; by: string };
    'order.rejected': { id: string; reason: string };
    'user.gone': null;
    'webhook.declared': { json?: unknown };
    [stripe: `stripe.${string}`]: { type: string; data: Stripe.Event.Data };
  }
}
