import { randomUUID } from 'node:crypto';
import Stripe from 'stripe';
import { expect, test } from 'vitest';
import { order, type Order } from '../src/order.js';
import { charge, connectStripe, refund } from '../src/payment.js';
import { counts, failNext, hold, outside } from './outside.js';

// Stripe's client tries again by itself. Without that, each answer can be looked at.
const stripe = new Stripe('sk_test_shop', {
  protocol: 'http',
  host: outside.hostname,
  port: Number(outside.port),
  maxNetworkRetries: 0,
});
const path = '/v1/payment_intents';

function newOrder(): Order {
  return order.parse({ id: randomUUID(), email: 'ada@example.com', name: 'Ada', amount: 1999 });
}

test('charging twice with one key charges once', async () => {
  const placed = newOrder();
  const before = await counts();
  const first = await charge(stripe, placed);
  const second = await charge(stripe, placed);
  expect(second).toBe(first);
  expect((await counts()).charges).toBe(before.charges + 1);
});

test('the second answer says that it is the first one again', async () => {
  const params = { amount: 1999, currency: 'eur', payment_method: 'pm_card_visa', confirm: true };
  const key = { idempotencyKey: randomUUID() };
  const first = await stripe.paymentIntents.create(params, key);
  const second = await stripe.paymentIntents.create(params, key);
  expect(first.lastResponse.headers['idempotent-replayed']).toBeUndefined();
  expect(second.lastResponse.headers['idempotent-replayed']).toBe('true');
  expect(second.status).toBe('succeeded');
});

test('one key for another amount is refused', async () => {
  const placed = newOrder();
  await charge(stripe, placed);
  await expect(charge(stripe, { ...placed, amount: 2999 })).rejects.toBeInstanceOf(
    Stripe.errors.StripeIdempotencyError,
  );
});

test('a key whose first request still runs is a conflict, and answers later', async () => {
  const placed = newOrder();
  const held = await hold(path, `charge_${placed.id}`, 'work');
  const first = charge(stripe, placed);
  await held.holding();
  await expect(charge(stripe, placed)).rejects.toMatchObject({
    statusCode: 409,
    code: 'idempotency_key_in_use',
  });
  await held.release();
  expect(await charge(stripe, placed)).toBe(await first);
});

test('a caller that was cut off after the charge finds it', async () => {
  const placed = newOrder();
  const before = await counts();
  const held = await hold(path, `charge_${placed.id}`, 'answer');
  const cutOff = charge(stripe, placed);
  await held.holding();
  const second = await charge(stripe, placed);
  await held.release();
  expect(await cutOff).toBe(second);
  expect((await counts()).charges).toBe(before.charges + 1);
});

test("an error of Stripe's is kept under its key", async () => {
  const placed = newOrder();
  await failNext(path);
  await expect(charge(stripe, placed)).rejects.toBeInstanceOf(Stripe.errors.StripeAPIError);
  await expect(charge(stripe, placed)).rejects.toBeInstanceOf(Stripe.errors.StripeAPIError);
});

test('a request that fails validation uses up no key', async () => {
  const placed = newOrder();
  await expect(charge(stripe, { ...placed, amount: 1 })).rejects.toBeInstanceOf(
    Stripe.errors.StripeInvalidRequestError,
  );
  await expect(charge(stripe, placed)).resolves.toMatch(/^pi_/);
});

test('refunding twice refunds once', async () => {
  const placed = newOrder();
  const client = connectStripe(outside);
  const paymentIntent = await charge(client, placed);
  const before = await counts();
  const first = await refund(client, placed.id, paymentIntent);
  expect(await refund(client, placed.id, paymentIntent)).toBe(first);
  expect((await counts()).refunds).toBe(before.refunds + 1);
});
