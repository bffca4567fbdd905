import Stripe from 'stripe';
import type { Order } from './order.js';

/** Stripe's own client. In production it is `new Stripe(secret)`; here it talks to the stand-in. */
export function connectStripe(url: URL): Stripe {
  return new Stripe('sk_test_shop', { protocol: 'http', host: url.hostname, port: Number(url.port) });
}

/**
 * Charges an order. The key is made from the order alone, so every attempt, in whatever process, sends the same one, and
 * Stripe answers a second attempt with the first one's payment.
 */
export async function charge(stripe: Stripe, order: Order): Promise<string> {
  const payment = await stripe.paymentIntents.create(
    {
      amount: order.amount,
      currency: order.currency,
      payment_method: 'pm_card_visa',
      automatic_payment_methods: { enabled: true, allow_redirects: 'never' },
      confirm: true,
      metadata: { order: order.id },
    },
    { idempotencyKey: `charge_${order.id}` },
  );
  return payment.id;
}

export async function refund(stripe: Stripe, orderId: string, paymentIntent: string): Promise<string> {
  const made = await stripe.refunds.create(
    { payment_intent: paymentIntent },
    { idempotencyKey: `refund_${orderId}` },
  );
  return made.id;
}
